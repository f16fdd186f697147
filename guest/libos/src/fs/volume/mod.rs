//! Files on a disk: an ext2, ext3 or ext4 file system, read by the ext4-view crate.
//!
//! That crate keeps to one thread, so a volume has its own thread
//! that answers questions (`files`); callers sleep meanwhile. A disk is hostile input: what
//! the crate would believe of the superblock is checked first (`superblock`), and
//! nothing is read that memory does not suffice for. Symbolic links are followed
//! within the file system. A journal that was not written back is taken into
//! account; nothing is ever written.

mod block_map;
mod cache;
mod error;
mod files;
mod reader;
mod superblock;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

pub use error::MountError;

use super::attributes::Metadata;
use super::content::Content;
use super::cpio;
use super::dir::DirEntry;
use super::mounted::Source;
use crate::block::Disk;
use crate::io::{Error, ErrorKind, Result};
use crate::sync::mpsc::{self, Sender};
use crate::thread;
use files::Files;

/// Stack of the thread that reads the disk, bytes.
const STACK_BYTES: usize = 128 * 1024;

type Question = Box<dyn FnOnce(&mut Files) + Send>;

/// A mounted file system.
pub struct Volume {
    questions: Sender<Question>,
    disk: &'static str,
}

impl Volume {
    /// Mounts the file system on `disk`, to be read only.
    pub fn open(disk: &Disk) -> core::result::Result<Self, MountError> {
        Self::open_within(disk, files::free_bytes)
    }

    /// The same with the memory that `room` leaves for files, in bytes.
    fn open_within(disk: &Disk, room: fn() -> u64) -> core::result::Result<Self, MountError> {
        let (questions, asked) = mpsc::channel::<Question>();
        let (mounted, answer) = mpsc::channel();
        let theirs = disk.clone();
        thread::Builder::new()
            .name("files")
            .stack_size(STACK_BYTES)
            .spawn(move || match Files::mount(&theirs, room) {
                Err(error) => drop(mounted.send(Err(error))),
                Ok(mut files) => {
                    let _ = mounted.send(Ok(()));
                    asked.iter().for_each(|question| question(&mut files));
                }
            })?;
        answer.recv().unwrap_or(Err(MountError::Ended))?;
        Ok(Self {
            questions,
            disk: Box::leak(Box::from(disk.name())),
        })
    }

    /// What is known about the file or directory at `path`.
    pub fn metadata(&self, path: &str) -> Result<Metadata> {
        let path = absolute(path)?;
        self.ask(move |files| files.metadata(&path))
    }

    /// A file's content and metadata. The content stays in memory for as long as
    /// a handle to it exists, and longer unless the memory is needed.
    pub fn read(&self, path: &str) -> Result<(Content, Metadata)> {
        let path = absolute(path)?;
        self.ask(move |files| files.read(&path))
    }

    /// The entries of a directory.
    pub fn read_dir(&self, path: &str) -> Result<Vec<DirEntry>> {
        let path = absolute(path)?;
        self.ask(move |files| files.list(&path))
    }

    fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Files) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        const GONE: Error =
            Error::new(ErrorKind::Other, "the thread that reads the disk has ended");
        let (sender, answer) = mpsc::channel();
        let question = move |files: &mut Files| drop(sender.send(question(files)));
        self.questions.send(Box::new(question)).map_err(|_| GONE)?;
        answer.recv().unwrap_or(Err(GONE))
    }
}

impl Source for Volume {
    fn metadata(&self, path: &str) -> Result<Metadata> {
        Volume::metadata(self, path)
    }

    fn read(&self, path: &str) -> Result<(Content, Metadata)> {
        Volume::read(self, path)
    }

    fn read_dir(&self, path: &str) -> Result<Vec<DirEntry>> {
        Volume::read_dir(self, path)
    }

    fn disk_name(&self) -> &'static str {
        self.disk
    }
}

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Volume")
            .field("disk", &self.disk)
            .finish_non_exhaustive()
    }
}

/// From the root; no path leaves it.
fn absolute(path: &str) -> Result<String> {
    let path = cpio::normalize(path)
        .filter(|path| !path.contains('\0'))
        .ok_or(ErrorKind::NotFound)?;
    Ok(alloc::format!("/{path}"))
}
