//! Random and mutated files, and the corpus.

#[path = "../../../../fuzz/judges/corpus.rs"]
mod corpus;

use proptest::prelude::*;

use super::{image, kernel};

/// The corpus's image that loads.
const VALID: &[u8] = include_bytes!("../../../../fuzz/corpus/loader/valid");
/// The corpus's kernel that loads.
const KERNEL: &[u8] = include_bytes!("../../../../fuzz/corpus/bzimage/valid");
/// ELF header, program headers; what follows are contents.
const HEADERS_BYTES: usize = 64 + 3 * 56;

#[test]
fn the_corpus_does_no_harm() {
    corpus::replay("loader", image);
}

#[test]
fn the_corpus_of_kernels_does_no_harm() {
    corpus::replay("bzimage", kernel);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_do_no_harm(file in proptest::collection::vec(any::<u8>(), 0..512)) {
        image(&file);
    }

    #[test]
    fn mutated_kernels_do_no_harm(
        changes in proptest::collection::vec((0x1f1..0x268_usize, any::<u8>()), 1..6),
    ) {
        let mut file = KERNEL.to_vec();
        for (at, byte) in changes {
            file[at] = byte;
        }
        kernel(&file);
    }

    #[test]
    fn mutated_images_do_no_harm(
        changes in proptest::collection::vec((0..HEADERS_BYTES, any::<u8>()), 1..4),
        word in any::<Option<(u8, u64)>>(),
    ) {
        let mut file = VALID.to_vec();
        for (at, byte) in changes {
            file[at] = byte;
        }
        if let Some((at, value)) = word {
            let at = usize::from(at).min(HEADERS_BYTES - 8);
            file[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        image(&file);
    }
}
