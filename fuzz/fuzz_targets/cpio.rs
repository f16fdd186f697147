//! The library OS's initramfs: no entry leaves the root, the walk ends.
#![no_main]

use tare_libos::fs::cpio::Archive;

libfuzzer_sys::fuzz_target!(|archive: &[u8]| {
    let mut entries = 0;
    for entry in Archive::parse(archive).flatten() {
        assert!(!entry.path.starts_with('/') && !entry.path.ends_with('/'));
        assert!(entry.path.split('/').all(|part| part != ".."));
        entries += 1;
    }
    // Each takes at least a header.
    assert!(entries <= archive.len() / 110);
});
