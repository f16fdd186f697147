//! What the open descriptors of a process are.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, Mode, OFlags, open, readlinkat};

use crate::proc;

/// The descriptors of one process at one time, by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Descriptors {
    links: Vec<(i32, PathBuf)>,
}

impl Descriptors {
    /// Reads them. Paths are short: each is found from the process's folder, not from the
    /// root.
    pub(crate) fn of(pid: u32) -> io::Result<Self> {
        let folder = proc::process(pid).join("fd");
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = open(&folder, flags, Mode::empty())?;
        let entries = Dir::read_from(&folder)?;
        let links = entries.filter_map(|entry| {
            let entry = entry.ok()?;
            let number = entry.file_name().to_str().ok()?.parse().ok()?;
            let link = readlinkat(&folder, entry.file_name(), Vec::with_capacity(64)).ok()?;
            Some((number, PathBuf::from(OsStr::from_bytes(link.as_bytes()))))
        });
        Ok(Self {
            links: links.collect(),
        })
    }

    /// What they are.
    pub(crate) fn links(&self) -> impl Iterator<Item = &Path> {
        self.links.iter().map(|(_, link)| link.as_path())
    }

    /// Those that are called `prefix` and a number: the number and the descriptor.
    pub(crate) fn numbered(&self, prefix: &str) -> impl Iterator<Item = (u32, i32)> {
        self.links.iter().filter_map(move |(number, link)| {
            let index = link.to_str()?.strip_prefix(prefix)?.parse().ok()?;
            Some((index, *number))
        })
    }

    /// Those of a file.
    pub(crate) fn at(&self, path: &Path) -> impl Iterator<Item = i32> {
        let links = self.links.iter().filter(move |(_, link)| link == path);
        links.map(|(number, _)| *number)
    }

    /// Inodes of sockets.
    pub(crate) fn sockets(&self) -> BTreeSet<u32> {
        let inode = |link: &Path| {
            let text = link.to_str()?.strip_prefix("socket:[")?;
            text.strip_suffix(']')?.parse().ok()
        };
        self.links().filter_map(inode).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn descriptors_of_this_process_are_what_they_are() {
        let (socket, _other) = UnixStream::pair().unwrap();
        let stat = rustix::fs::fstat(&socket).unwrap();
        let own = Descriptors::of(std::process::id()).unwrap();
        assert!(own.sockets().contains(&u32::try_from(stat.st_ino).unwrap()));
        let inode = own.numbered("socket:[").next();
        assert_eq!(inode, None, "the rest must be a number");
        assert!(own.links.iter().any(|(fd, _)| *fd == socket.as_raw_fd()));
        let gone = Descriptors::of(u32::MAX).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    }
}
