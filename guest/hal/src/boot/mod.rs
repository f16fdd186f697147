//! What the loader handed over.

/// The command line.
pub fn cmdline() -> &'static str {
    ""
}

/// The initramfs, if one was loaded.
pub fn initramfs() -> Option<&'static [u8]> {
    None
}
