//! The files of the appliance: the initramfs, read-only, in memory.
//!
//! The archive (newc cpio, see [`cpio`]) stays where the boot loader put it and
//! files are slices of it: opening copies nothing, and the slices live for
//! ever. Its index is built by the first access, so that an image that never
//! looks at a file does not pay for it.
//!
//! ```
//! # // a one-file archive, as `tare run --root` would pack it
//! # let header = |mode: u32, size: usize, name: &str| format!(
//! #     "070701{:08x}{mode:08x}{:08x}{:08x}{:08x}{:08x}{size:08x}{:08x}{:08x}{:08x}{:08x}{:08x}{:08x}",
//! #     1, 0, 0, 1, 1_700_000_000, 0, 0, 0, 0, name.len() + 1, 0);
//! # let mut archive = header(0o100644, 4, "motd").into_bytes();
//! # archive.extend_from_slice(b"motd\0\0hey\n");
//! # archive.extend_from_slice(header(0, 0, "TRAILER!!!").as_bytes());
//! # archive.extend_from_slice(b"TRAILER!!!\0\0\0\0");
//! # tare_libos::fs::mount(archive.leak());
//! use tare_libos::fs;
//!
//! let text: &'static [u8] = fs::read("/motd")?;
//! assert_eq!(text, b"hey\n");
//! let file = fs::File::open("motd")?;
//! assert_eq!(file.metadata().len(), 4);
//! for entry in fs::read_dir("/")? {
//!     assert_eq!(entry.file_name(), "motd");
//! }
//! # Ok::<(), tare_libos::io::Error>(())
//! ```

pub mod cpio;
mod file;
mod tree;

use tare_hal::once::OnceCell;

use crate::io::{ErrorKind, Result};
pub use file::{DirEntry, File, Metadata, ReadDir};
pub use tree::Tree;

static ARCHIVE: OnceCell<&'static [u8]> = OnceCell::new();
static TREE: OnceCell<Tree<'static>> = OnceCell::new();

/// Makes `archive` the file system. The library OS does so at boot with the
/// initramfs; the first archive stays.
pub fn mount(archive: &'static [u8]) {
    let _ = ARCHIVE.set(archive);
}

/// The whole content of the file at `path`; no copy is made.
pub fn read(path: &str) -> Result<&'static [u8]> {
    File::open(path).map(|file| file.bytes())
}

/// What is known about the file or directory at `path`.
pub fn metadata(path: &str) -> Result<Metadata> {
    tree()
        .lookup(path)
        .map(Metadata::of)
        .ok_or(ErrorKind::NotFound.into())
}

/// The entries of the directory at `path`, in the archive's order.
pub fn read_dir(path: &str) -> Result<ReadDir> {
    ReadDir::open(tree(), path)
}

/// How many regular files there are.
pub fn file_count() -> usize {
    let files = |entry: &&cpio::Entry<'_>| entry.kind == cpio::Kind::File;
    tree().entries().iter().filter(files).count()
}

fn tree() -> &'static Tree<'static> {
    TREE.get_or_init(|| Tree::build(ARCHIVE.get().copied().unwrap_or_default()))
}

#[cfg(test)]
mod tests;
