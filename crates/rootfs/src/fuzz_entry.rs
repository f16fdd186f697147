//! Entry points for fuzzing: bytes are an archive of a container image. Whatever
//! they are, nothing panics, names stay inside the root, and no more is unpacked
//! than allowed. Or they are a program of this host, which names its dynamic linker.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Write as _};

use rustix::fs::{MemfdFlags, memfd_create};
use tare_program::names;

use crate::oci::{Limits, read_archive};
use crate::tree::{EntryKind, Node, PATH_MAX, Tree};
use crate::{cpio, host};

/// What an image may unpack to.
const LIMITS: Limits = Limits {
    bytes: 1 << 20,
    entries: 1000,
};

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
    if let Ok(Some(image)) = read_archive(file, LIMITS) {
        judge(&image.tree);
    }
}

/// Looks for the dynamic linker that a program names.
///
/// # Panics
///
/// When that is not an absolute path, or longer than one may be.
pub fn host_program(bytes: &[u8]) {
    if let Some(path) = host::interpreter(io::Cursor::new(bytes)) {
        assert!(path.is_absolute() && path.as_os_str().len() <= PATH_MAX);
    }
}

fn judge(tree: &Tree) {
    assert!(tree.len() as u64 <= LIMITS.entries, "too many entries");
    let mut contents = 0;
    let mut groups = HashSet::new();
    for (name, node) in tree.entries() {
        let climbs = name.split('/').any(|part| matches!(part, "" | "." | ".."));
        assert!(!climbs, "{name:?} is in the tree");
        let bytes = names::bytes(name).len();
        assert!(bytes <= PATH_MAX, "{name:?} is too long");
        let again = node.links.is_some_and(|group| !groups.insert(group));
        if let (EntryKind::File(content), false) = (&node.kind, again) {
            contents += content.len();
        }
    }
    assert!(contents <= LIMITS.bytes, "files of {contents} bytes");
    let mut packed = 0;
    cpio::archive(tree, CountBytes(&mut packed)).expect("a tree that cannot be packed");
    assert!(packed <= LIMITS.bytes, "an archive of {packed} bytes");
    // Names that are not UTF-8 are longer in text.
    let is_of_bytes = |(name, node): (&str, &Node)| {
        let target = match &node.kind {
            EntryKind::Link(target) => target,
            _ => "",
        };
        names::is_of_bytes(name) || names::is_of_bytes(target)
    };
    let most = cpio::archive_bytes(tree);
    let may_be_less = tree.entries().any(is_of_bytes);
    assert!(
        packed == most || may_be_less && packed < most,
        "{packed} of {most} bytes"
    );
}

/// Counts what is written to it.
struct CountBytes<'a>(&'a mut u64);

impl io::Write for CountBytes<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        *self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
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

    #[test]
    fn the_corpus_of_programs_does_no_harm() {
        super::corpus::replay("host_program", super::host_program);
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
