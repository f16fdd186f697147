//! [`Volume`]: a file system that stays, as the tree of files sees it.
//!
//! The tree keeps a node for each file that the program uses; what is on the volume has an
//! inode's number there. A call may block for the device, so none is made under a spin lock.
//! Neighbours: `tare-ext4` is such a volume; the image `linux` has none.

use alloc::string::String;
use alloc::vec::Vec;

pub use crate::errno::{Errno, Result};

/// What an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A device, a pipe or a socket: it has a name and cannot be opened.
    Other,
}

/// An inode that a name leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its number.
    pub inode: u64,
    /// What it is.
    pub kind: Kind,
}

/// What is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum New<'a> {
    /// An empty file with these permissions.
    File(u32),
    /// A directory with these permissions.
    Directory(u32),
    /// A link to this path.
    Link(&'a str),
    /// The name of a socket, with these permissions.
    Socket(u32),
}

/// What is known of an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Kind and permissions, as Linux has them.
    pub mode: u32,
    /// Names that lead to it.
    pub links: u32,
    /// Owner and group.
    pub owner: (u32, u32),
    /// Length in bytes.
    pub bytes: u64,
    /// Bytes that it takes on the device.
    pub allocated: u64,
    /// Nanoseconds since 1970 of the last access, change of content, change of the inode.
    pub times_ns: [u64; 3],
}

/// How much room there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Blocks, and those of them that are free.
    pub blocks: (u64, u64),
    /// Inodes, and those of them that are free.
    pub inodes: (u64, u64),
}

/// What a range of a file is searched for (`lseek(2)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sought {
    /// The next byte that was written.
    Data,
    /// The next byte that was not; the file's end counts as one.
    Hole,
}

/// A file system on a device. All of its calls may block, except [`forget`](Self::forget).
pub trait Volume: Send + Sync {
    /// The inode of the directory at its top.
    fn root(&self) -> u64;

    /// Whether it only may be read.
    fn is_read_only(&self) -> bool;

    /// What a name of a directory leads to. Here and below names and targets are texts of
    /// [`tare_program::names`].
    fn look_up(&self, directory: u64, name: &str) -> Result<Option<Found>>;

    /// What is known of an inode.
    fn attributes(&self, inode: u64) -> Result<Attributes>;

    /// Where a link points to.
    fn target(&self, link: u64) -> Result<String>;

    /// Names of a directory and what they lead to, without `.` and `..`.
    fn list(&self, directory: u64) -> Result<Vec<(String, Found)>>;

    /// Makes something new; EEXIST if the name is there.
    fn make(&self, directory: u64, name: &str, new: New<'_>) -> Result<Found>;

    /// Adds a name of an inode other than a directory; EEXIST if the name is there.
    fn link(&self, inode: u64, directory: u64, name: &str) -> Result<()>;

    /// Removes a name of anything but a directory. An inode without a name stays until it is
    /// [forgotten](Self::forget).
    fn unlink(&self, directory: u64, name: &str) -> Result<()>;

    /// Removes an empty directory.
    fn remove_directory(&self, directory: u64, name: &str) -> Result<()>;

    /// Renames; what has the new name is replaced if Linux allows that.
    fn rename(&self, from: (u64, &str), to: (u64, &str)) -> Result<()>;

    /// Reads at an offset; gives how many bytes there were.
    fn read(&self, inode: u64, offset: u64, to: &mut [u8]) -> Result<usize>;

    /// Writes at an offset as far as there is room; gives how many bytes.
    fn write(&self, inode: u64, offset: u64, from: &[u8]) -> Result<usize>;

    /// Writes at the end as far as there is room; gives where, and how many bytes.
    fn append(&self, inode: u64, from: &[u8]) -> Result<(u64, usize)>;

    /// Cuts, or adds zeros.
    fn set_len(&self, inode: u64, bytes: u64) -> Result<()>;

    /// Takes room for a range, so that writes to it do not fail for want of it.
    fn allocate(&self, inode: u64, offset: u64, bytes: u64) -> Result<()>;

    /// Where data or a hole begins, from `offset` on.
    fn seek(&self, inode: u64, offset: u64, sought: Sought) -> Result<Option<u64>>;

    /// Sets permissions.
    fn set_permissions(&self, inode: u64, permissions: u32) -> Result<()>;

    /// Sets owner and group.
    fn set_owner(&self, inode: u64, owner: (u32, u32)) -> Result<()>;

    /// Sets times of access and of change, nanoseconds since 1970, where given.
    fn set_times(&self, inode: u64, accessed: Option<u64>, modified: Option<u64>) -> Result<()>;

    /// How much room there is.
    fn space(&self) -> Result<Space>;

    /// Makes all durable that was done before.
    fn sync(&self) -> Result<()>;

    /// The program has no use of an inode any more: if no name is left, its room is freed
    /// by a later call. Does not block.
    fn forget(&self, inode: u64);

    /// Makes all durable and ends the use; later calls are EIO.
    fn end(&self);
}
