//! Entry point for fuzzing: bytes are an archive of a container image. Whatever
//! they are, nothing panics, names stay inside the root, and no more is unpacked
//! than allowed.

use std::fs::File;
use std::io::Write as _;

use rustix::fs::{MemfdFlags, memfd_create};

use crate::oci::read_archive;
use crate::tree::{Kind, Tree};

/// Most bytes that an image may unpack to.
const LIMIT_BYTES: u64 = 1 << 20;

/// Reads `archive` as an image.
///
/// # Panics
///
/// When a name leads out of the root or more was unpacked than allowed: that is
/// what is looked for.
pub fn image_archive(archive: &[u8]) {
    let file = memfd_create("tare-fuzz", MemfdFlags::CLOEXEC).map(File::from);
    let Ok(mut file) = file else { return };
    if file.write_all(archive).is_err() {
        return;
    }
    if let Ok(Some(image)) = read_archive(file, LIMIT_BYTES) {
        judge(&image.tree);
    }
}

fn judge(tree: &Tree) {
    for (name, node) in tree.entries() {
        let climbs = name.split('/').any(|part| matches!(part, "" | "." | ".."));
        assert!(!climbs, "{name:?} is in the tree");
        if let Kind::File(content) = &node.kind {
            assert!(content.len() <= LIMIT_BYTES, "{name:?} is too large");
        }
    }
}

#[cfg(test)]
#[path = "../../../fuzz/judges/corpus.rs"]
mod corpus;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::image_archive;
    use crate::oci::testing::{Entry, docker_archive, layer};

    #[test]
    fn the_corpus_of_images_does_no_harm() {
        super::corpus::replay("image_archive", image_archive);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn mutated_images_do_no_harm(
            changes in proptest::collection::vec((any::<u16>(), any::<u8>()), 1..8),
        ) {
            let entries = [Entry::File("a/b", 0o644, b"x"), Entry::Link("l", "../.."), Entry::HardLink("h", "a/b")];
            let mut archive = docker_archive("{}", &[layer(&entries)]);
            for (at, byte) in changes {
                let at = usize::from(at) % archive.len();
                archive[at] = byte;
            }
            image_archive(&archive);
        }
    }
}
