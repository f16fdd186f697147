//! What an archive's walk must keep to, whatever the bytes are. Shared by the
//! fuzz target and libos's replay of the corpus.

use tare_libos::fs::cpio::{Archive, HEADER_LEN};

/// No entry leaves the root, and the walk ends.
pub(crate) fn judge(archive: &[u8]) {
    let mut entries = 0;
    for entry in Archive::parse(archive).flatten() {
        assert!(!entry.path.starts_with('/') && !entry.path.ends_with('/'));
        assert!(entry.path.split('/').all(|part| part != ".."));
        entries += 1;
    }
    assert!(entries <= archive.len() / HEADER_LEN);
}
