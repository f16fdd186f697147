//! Entry point for fuzzing: bytes are an image file. It may not panic nor touch
//! memory outside what it reports, whatever the bytes are; the corpus replays in
//! tests.

use std::io::Cursor;
use std::ops::Range;

use tare_abi::layout::{HIGH_RAM, KIB, PVH_START_INFO, ZERO_PAGE};
use vm_memory::{Bytes, GuestAddress};

use crate::{GuestMemoryMmap, LoadOptions, Protocol, load};

/// Little above the boot information, so that looking through it takes no time.
const MEMORY_BYTES: u64 = HIGH_RAM + 64 * KIB;

/// Loads `file` into a machine of little more than 1 MiB.
///
/// # Panics
///
/// When memory outside what the loader reports was written: that is what is looked for.
pub fn image(file: &[u8]) {
    loads(file, Protocol::Pvh);
}

/// The same for a file that claims to be a Linux kernel.
///
/// # Panics
///
/// As [`image`] does.
pub fn kernel(file: &[u8]) {
    loads(file, Protocol::Linux);
}

fn loads(file: &[u8], protocol: Protocol) {
    let ranges = [(GuestAddress(0), MEMORY_BYTES as usize)];
    let Ok(memory) = GuestMemoryMmap::from_ranges(&ranges) else {
        return;
    };
    let options = LoadOptions {
        cmdline: "x",
        initramfs: None,
        cpus: 1,
        protocol,
    };
    match load(&memory, &mut Cursor::new(file), options) {
        Err(_) => {
            assert_zero(&memory, PVH_START_INFO..ZERO_PAGE);
            assert_zero(&memory, HIGH_RAM..MEMORY_BYTES);
        }
        Ok(loaded) => {
            assert!(loaded.image.contains(&loaded.entry.rip));
            assert_zero(&memory, HIGH_RAM..loaded.image.start);
            assert_zero(&memory, loaded.image.end..MEMORY_BYTES);
        }
    }
}

/// Slices compare fast also without optimisation, iterators do not.
fn assert_zero(memory: &GuestMemoryMmap, range: Range<u64>) {
    let mut bytes = vec![0; (range.end - range.start) as usize];
    let zeros = bytes.clone();
    let read = memory.read_slice(&mut bytes, GuestAddress(range.start));
    assert!(
        read.is_ok() && bytes == zeros,
        "memory in {range:x?} was written"
    );
}

#[cfg(test)]
mod tests;
