//! What a damaged file system must not do, whatever the damage. Shared by the
//! fuzz target and libos's replay of the corpus.
//!
//! The bytes are a patch: the first chooses a file system that mke2fs made (with
//! files `a`, `d/b` and the link `l`), each four that follow put a byte at a place
//! of its first 64 KiB. Without checksums, so that damage reaches what reads it.

use tare_libos::block::{Access, Disk};
use tare_libos::fs::Volume;

const BASES: [&[u8]; 2] = [include_bytes!("ext2.img"), include_bytes!("ext4.img")];
/// Why there is no answer when the thread that reads has ended, in a panic.
const ENDED: [&str; 2] = [
    "the thread that reads the disk has ended",
    "the disk's files are gone",
];

/// Mounting, listing and reading end, with an answer or an error.
pub(crate) fn judge(bytes: &[u8]) {
    let Some((base, patch)) = bytes.split_first() else {
        return;
    };
    let mut image = BASES[usize::from(*base) % BASES.len()].to_vec();
    for place in patch.as_chunks::<4>().0 {
        let at = usize::from(u16::from_le_bytes([place[0], place[1]]));
        if let Some(byte) = image.get_mut(at) {
            *byte = place[2] ^ place[3];
        }
    }
    let disk = Disk::in_memory("disk0", image, Access::ReadOnly);
    let volume = match Volume::open(&disk) {
        Ok(volume) => volume,
        Err(error) => return assert_alive(&error.to_string()),
    };
    for path in ["", "a", "d/b", "l", "d/b/x", "none"] {
        let _ = volume
            .metadata(path)
            .map_err(|error| assert_alive(&error.to_string()));
        let _ = volume
            .read_dir(path)
            .map_err(|error| assert_alive(&error.to_string()));
        match volume.read(path) {
            Ok((content, metadata)) => assert_eq!(content.len() as u64, metadata.len()),
            Err(error) => assert_alive(&error.to_string()),
        }
    }
}

fn assert_alive(error: &str) {
    assert!(!ENDED.contains(&error), "{error}");
}
