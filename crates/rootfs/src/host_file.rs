//! Files of the host that a guest gets: identified when they are listed, and
//! compared when they are opened for packing.
//!
//! Whoever owns a directory can replace a file in it by a link or a named pipe
//! at any time. A file below a root directory is therefore opened from that
//! directory's descriptor without following links (openat2(2)), every file is
//! opened without waiting, and one that is not the listed one is refused.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat, fstat, open, openat2, stat};
use rustix::io::Errno;

/// Links of any kind are refused: neither the last component nor any before it.
const NO_LINKS: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);

/// What tells one file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    pub(crate) fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
        }
    }
}

/// A directory whose files are reached by its descriptor alone.
#[derive(Clone, Debug)]
pub(crate) struct RootDir {
    path: PathBuf,
    descriptor: Arc<OwnedFd>,
}

impl RootDir {
    /// Opens a directory; links that lead to it are followed.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(Self {
            path: path.to_owned(),
            descriptor: Arc::new(open(path, flags, Mode::empty())?),
        })
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file below it, for messages.
    pub(crate) fn full(&self, below: &Path) -> PathBuf {
        self.path.join(below)
    }

    /// Opens a file or directory below it, without following links or waiting.
    pub(crate) fn open_below(&self, below: &Path) -> io::Result<File> {
        self.open_as(below, NO_LINKS)
    }

    /// As [`RootDir::open_below`], through links that stay below the directory.
    pub(crate) fn open_through_links(&self, below: &Path) -> io::Result<File> {
        let stay = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        self.open_as(below, stay)
    }

    /// Looks at a file below it, without following links.
    pub(crate) fn stat_below(&self, below: &Path) -> io::Result<Stat> {
        let file = self.open_flags(below, OFlags::PATH | OFlags::CLOEXEC, NO_LINKS)?;
        Ok(fstat(file)?)
    }

    fn open_as(&self, below: &Path, resolve: ResolveFlags) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        Ok(File::from(self.open_flags(below, flags, resolve)?))
    }

    fn open_flags(
        &self,
        below: &Path,
        flags: OFlags,
        resolve: ResolveFlags,
    ) -> io::Result<OwnedFd> {
        let below = if below.as_os_str().is_empty() {
            Path::new(".")
        } else {
            below
        };
        Ok(openat2(
            &self.descriptor,
            below,
            flags,
            Mode::empty(),
            resolve,
        )?)
    }
}

/// A regular file of the host as it was when it was listed.
#[derive(Clone, Debug)]
pub struct HostFile {
    /// The directory from which `path` leads; the working directory without it.
    root: Option<RootDir>,
    path: PathBuf,
    identity: Identity,
    bytes: u64,
}

/// Why a listed file cannot be read.
#[derive(Debug)]
pub(crate) enum OpenError {
    /// Opening failed.
    Open(io::Error),
    /// It is another file now, or of another size.
    Changed,
}

impl HostFile {
    /// A file that the user names: links that lead to it are followed.
    pub(crate) fn named(path: PathBuf) -> io::Result<Self> {
        let stat = stat(&path)?;
        Ok(Self::listed(None, path, &stat))
    }

    /// A file below a directory.
    pub(crate) fn below(root: &RootDir, path: PathBuf, stat: &Stat) -> Self {
        Self::listed(Some(root.clone()), path, stat)
    }

    fn listed(root: Option<RootDir>, path: PathBuf, stat: &Stat) -> Self {
        Self {
            root,
            path,
            identity: Identity::of(stat),
            bytes: u64::try_from(stat.st_size).unwrap_or(0),
        }
    }

    /// Its path on the host.
    pub fn path(&self) -> PathBuf {
        match &self.root {
            Some(root) => root.full(&self.path),
            None => self.path.clone(),
        }
    }

    /// Its size when it was listed.
    pub fn len(&self) -> u64 {
        self.bytes
    }

    /// Whether it was empty when it was listed.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Opens the file that was listed.
    pub(crate) fn open(&self) -> Result<File, OpenError> {
        let file = match &self.root {
            Some(root) => root.open_below(&self.path),
            None => fs::OpenOptions::new()
                .read(true)
                .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
                .open(&self.path),
        };
        let file = file.map_err(|error| match error.raw_os_error() {
            // A link stands where the file or a directory above it was.
            Some(code) if code == Errno::LOOP.raw_os_error() => OpenError::Changed,
            _ => OpenError::Open(error),
        })?;
        let stat = fstat(&file).map_err(|error| OpenError::Open(error.into()))?;
        let same = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
            && u64::try_from(stat.st_size) == Ok(self.bytes)
            && Identity::of(&stat) == self.identity;
        if same {
            Ok(file)
        } else {
            Err(OpenError::Changed)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, mknodat};

    use super::*;
    use crate::cpio::{PackError, archive};
    use crate::walk::{Links, walk};

    /// Lists a directory, lets its owner change it, packs what was listed.
    fn after(change: impl FnOnce(&Path)) -> Result<Vec<u8>, PackError> {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("root/sub")).unwrap();
        fs::create_dir(dir.path().join("outside")).unwrap();
        for name in ["root/sub/page", "outside/page", "secret"] {
            fs::write(dir.path().join(name), &name.as_bytes()[..6]).unwrap();
        }
        let tree = walk(&dir.path().join("root"), Links::Kept, 1 << 20)
            .unwrap()
            .tree;
        change(dir.path());
        let mut bytes = Vec::new();
        archive(&tree, &mut bytes).map(|()| bytes)
    }

    #[test]
    fn what_replaces_a_listed_file_is_not_packed() {
        assert!(after(|_| {}).is_ok());
        let page = |dir: &Path| dir.join("root/sub/page");
        type Change = fn(&Path, &Path);
        let changes: [(&str, Change); 4] = [
            ("a link", |dir, page| {
                symlink(dir.join("secret"), page).unwrap()
            }),
            ("a hard link", |dir, page| {
                fs::hard_link(dir.join("secret"), page).unwrap()
            }),
            ("a named pipe", |_, page| {
                mknodat(CWD, page, FileType::Fifo, Mode::RUSR, 0).unwrap();
            }),
            ("a link above it", |dir, _| {
                fs::remove_dir(dir.join("root/sub")).unwrap();
                symlink(dir.join("outside"), dir.join("root/sub")).unwrap();
            }),
        ];
        for (what, change) in changes {
            let packed = after(|dir| {
                fs::remove_file(page(dir)).unwrap();
                change(dir, &page(dir));
            });
            assert!(
                matches!(packed, Err(PackError::Changed(_))),
                "{what}: {packed:?}"
            );
        }
    }

    #[test]
    fn nothing_outside_a_root_directory_is_opened() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("root")).unwrap();
        fs::write(dir.path().join("secret"), "x").unwrap();
        fs::write(dir.path().join("root/a"), "x").unwrap();
        symlink("../secret", dir.path().join("root/out")).unwrap();
        symlink("a", dir.path().join("root/in")).unwrap();
        let root = RootDir::open(&dir.path().join("root")).unwrap();
        let opens = |name: &str| root.open_below(Path::new(name)).is_ok();
        let follows = |name: &str| root.open_through_links(Path::new(name)).is_ok();
        assert!(opens("a") && opens("") && follows("in"));
        for name in ["in", "out", "../secret", "/etc/passwd"] {
            assert!(!opens(name), "{name}");
        }
        assert!(!follows("out") && !follows("../secret"));
    }
}
