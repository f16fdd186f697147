//! What the image was started with: the command line and the initramfs.

use tare_abi::cmdline;

/// The whole command line.
pub fn cmdline() -> &'static str {
    crate::hal::boot::cmdline()
}

/// The words of the command line.
///
/// ```
/// assert_eq!(tare_libos::env::args().count(), 0); // on the host there is none
/// ```
pub fn args() -> impl Iterator<Item = &'static str> {
    cmdline().split_ascii_whitespace()
}

/// The value of the last `key=value` word.
pub fn var(key: &'static str) -> Option<&'static str> {
    cmdline::value(cmdline(), key)
}

/// Whether the bare word `word` is on the command line.
pub fn has_word(word: &str) -> bool {
    args().any(|given| given == word)
}

/// The initramfs, an uncompressed or compressed archive as it was loaded; `None` if there is none,
/// or if it was taken as a [`Region`](crate::fs::Region).
pub fn initramfs() -> Option<&'static [u8]> {
    crate::hal::boot::initramfs()
}
