//! Random and mutated files: no panic, no byte outside what is reported.

use std::io::Cursor;

use proptest::prelude::*;
use tare_abi::layout::MIB;
use tare_boot::{GuestMemoryMmap, LoadOptions, load};
use vm_memory::{Bytes, GuestAddress};

use crate::images::{elf, memory, valid_segments};

fn load_into(memory: &GuestMemoryMmap, file: &[u8]) {
    let options = LoadOptions {
        cmdline: "x",
        initramfs: None,
        cpus: 1,
    };
    let result = load(memory, &mut Cursor::new(file), options);
    let mut bytes = vec![0; 7 * MIB as usize];
    memory.read_slice(&mut bytes, GuestAddress(MIB)).unwrap();
    let written = match &result {
        Ok(loaded) => loaded.image.clone(),
        Err(_) => MIB..MIB,
    };
    let zeros = vec![0; bytes.len()];
    // Slices compare fast also without optimisation, iterators do not.
    let untouched = |range: std::ops::Range<u64>| {
        let range = (range.start - MIB) as usize..(range.end - MIB) as usize;
        bytes[range.clone()] == zeros[range]
    };
    assert!(untouched(MIB..written.start.max(MIB)), "{result:?}");
    assert!(untouched(written.end..8 * MIB), "{result:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_do_no_harm(file in proptest::collection::vec(any::<u8>(), 0..512)) {
        load_into(&memory(8), &file);
    }

    #[test]
    fn mutated_images_do_no_harm(
        // Headers decide; bytes of segments do not.
        changes in proptest::collection::vec((0_usize..232, any::<u8>()), 1..4),
        word in any::<Option<(u8, u64)>>(),
    ) {
        let mut file = elf(&valid_segments());
        for (at, byte) in changes {
            file[at] = byte;
        }
        if let Some((at, value)) = word {
            let at = usize::from(at).min(224);
            file[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        load_into(&memory(8), &file);
    }
}
