//! The files of the appliance, read-only: the initramfs, or an ext2, ext3 or ext4
//! file system on a disk.
//!
//! An archive (newc cpio, see [`cpio`]) stays where the boot loader put it and
//! files are slices of it: opening copies nothing, and the slices live
//! forever. Its index is built by the first access, so that an image that never
//! looks at a file does not pay for it. Before that access a program can take the archive's
//! memory over as a [`Region`], to free it with the last file.
//!
//! After [`mount_root`] or `mount_disk` files come from a disk (`volume`): the
//! first access to a file reads it whole, and it stays in memory until that is needed
//! for another one. Files may take three quarters of the heap; one for which there is
//! no memory is an error of kind [`ErrorKind::ResourceBusy`]. A damaged file system
//! gives errors where it is damaged.
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
//! let text = fs::read("/motd")?;
//! assert_eq!(text, b"hey\n");
//! let file = fs::File::open("motd")?;
//! assert_eq!(file.metadata().len(), 4);
//! for entry in fs::read_dir("/")? {
//!     assert_eq!(entry.file_name(), "motd");
//! }
//! # Ok::<(), tare_libos::io::Error>(())
//! ```

mod attributes;
mod content;
pub mod cpio;
mod dir;
mod file;
mod mounted;
mod region;
mod tree;
mod volume;

use alloc::boxed::Box;
use core::fmt;

use tare_abi::cmdline::ROOT;

use crate::block::Disk;
use crate::io::{ErrorKind, Result};
pub use attributes::Metadata;
pub use content::Content;
pub use dir::{DirEntry, ReadDir};
pub use file::File;
use mounted::source;
pub use region::Region;
pub use tree::Tree;
pub use volume::{MountError, Volume};

/// Makes `archive` the file system instead of the initramfs, before the first access; the first
/// archive stays.
pub fn mount(archive: &'static [u8]) {
    mounted::set_archive(archive);
}

/// Makes the file system on `disk` the appliance's, in the initramfs's place.
pub(crate) fn mount_disk(disk: &Disk) -> core::result::Result<(), MountError> {
    let volume = Volume::open(disk)?;
    mounted::set_source(Box::new(volume));
    Ok(())
}

/// Mounts the disk that the command line names with `root=`, or `disk0`. For
/// applications that serve from disks.
pub fn mount_root() -> core::result::Result<(), MountError> {
    let name = crate::env::var(ROOT).unwrap_or("disk0");
    mount_disk(crate::block::disk(name).ok_or(MountError::NoDisk(name))?)
}

/// The whole content of the file at `path`. An archive's is not copied; a
/// disk's is read unless it is in memory.
pub fn read(path: &str) -> Result<Content> {
    File::open(path).map(|file| file.content())
}

/// The file at `path` of the initramfs, whatever is mounted in its place.
pub fn in_initramfs(path: &str) -> Option<&'static [u8]> {
    let entry = mounted::tree().lookup(path)?;
    (entry.kind == cpio::EntryKind::File).then_some(entry.data)
}

/// What is known about the file or directory at `path`.
pub fn metadata(path: &str) -> Result<Metadata> {
    if let Some(volume) = source() {
        return volume.metadata(path);
    }
    mounted::tree()
        .lookup(path)
        .map(Metadata::of)
        .ok_or(ErrorKind::NotFound.into())
}

/// The entries of the directory at `path`, in the archive's or disk's order.
pub fn read_dir(path: &str) -> Result<ReadDir> {
    match source() {
        Some(volume) => volume.read_dir(path).map(ReadDir::listed),
        None => ReadDir::archived(mounted::tree(), path),
    }
}

/// Where the files are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In the initramfs.
    Archive {
        /// Regular files.
        files: usize,
    },
    /// On the disk of this name.
    Disk(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Archive { files } => write!(f, "{files} files"),
            Self::Disk(name) => write!(f, "the files of {name}"),
        }
    }
}

/// Where the files are.
pub fn origin() -> Origin {
    if let Some(volume) = source() {
        return Origin::Disk(volume.disk_name());
    }
    let files = |entry: &&cpio::Entry<'_>| entry.kind == cpio::EntryKind::File;
    Origin::Archive {
        files: mounted::tree().entries().iter().filter(files).count(),
    }
}

#[cfg(test)]
mod tests;
