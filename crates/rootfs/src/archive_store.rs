//! Archives of roots in the cache (ADR 79). A root whose files are as they were is not packed again,
//! and machines of the same root map the same archive, which the host then has in memory once.
//!
//! An archive's name is this boot's, and a hash of the format and each entry: name, kind, permissions,
//! owner, time, and of a file of the host what tells that its content is the same: device, inode,
//! size, and the times of its last change (`stat(2)`, as make(1) and git do). Content that no
//! path leads to, as of an unpacked image, is hashed itself. So a root directory is listed at
//! each start, and read when it has changed.
//!
//! Others must not write here: the directory and its files are the user's own, or are not used.

use std::fs::{self, File};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Read as _};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT,
    fchmod, fstat, fstatfs, mkdirat, open, openat, renameat, statat, unlinkat, utimensat,
};
use rustix::io::Errno;
use rustix::process::geteuid;
use sha2::{Digest as _, Sha256};
use tare_host::journal::boot_id;

use crate::cache::Cache;
use crate::cpio::{Layout, PackError, Part, archive_as};
use crate::host_file::FileVersion;
use crate::oci::digest::hash;
use crate::tree::{Content, EntryKind, Node, Tree};

/// The directory in the cache.
const DIRECTORY: &str = "roots";
/// What the hash begins with; another layout of archives gets another one.
const FORMAT: &[u8] = b"tare root 1\n";
/// Most bytes of all archives; the ones that were used last are kept.
const MOST_BYTES: u64 = 2 << 30;
/// How archives that are being written are called.
const MAKING: &str = ".making-";
/// After this such a file is left over from a start that was killed.
const STALE: Duration = Duration::from_secs(3600);
/// A file that changed within this before the packing could change again without another time:
/// some file systems have seconds (`stat(2)`, `inode(7)`).
const SETTLED: Duration = Duration::from_secs(2);
/// Local file systems (`linux/magic.h`): a change shows in a file's times at once. Those of a
/// network or of a process (FUSE) may cache them.
const LOCAL: &[u32] = &[
    0xef53,      // ext2 to ext4
    0x5846_5342, // XFS
    0x9123_683e, // Btrfs
    0xf2f5_2010, // F2FS
    0x0102_1994, // tmpfs
    0x794c_7630, // overlayfs
];

/// The archives of a user.
#[derive(Debug)]
pub struct ArchiveStore(OwnedFd);

impl ArchiveStore {
    /// Opens the one in a cache; it is made if it is missing. An error if others may write to it.
    pub fn open(cache: &Cache) -> io::Result<Self> {
        let path = cache.dir().join(DIRECTORY);
        fs::create_dir_all(cache.dir())?;
        match mkdirat(CWD, &path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = open(&path, flags, Mode::empty())?;
        if !is_own(&fstat(&directory)?) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        // Elsewhere another host could remove what a machine of this one has mapped.
        if !is_local(&directory)? {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(Self(directory))
    }

    /// The archive of a tree in a layout, open for reading. `None` if an archive of this tree cannot be
    /// kept: a file of it is being changed, or lies on a file system that cannot say whether it changed.
    pub fn archive(&self, tree: &Tree, layout: Layout) -> Result<Option<File>, PackError> {
        let Some((name, last_change)) = key(tree, layout).map_err(PackError::Write)? else {
            return Ok(None);
        };
        if let Some(file) = self.stored(&name) {
            return Ok(Some(file));
        }
        if !is_settled(last_change, SystemTime::now()) {
            return Ok(None);
        }
        let mut making = self.begin().map_err(PackError::Write)?;
        archive_as(tree, layout, &mut making.file)?;
        if !is_unchanged(tree, last_change) {
            return Ok(None);
        }
        let file = making.finish(&name).map_err(PackError::Write)?;
        self.tidy(&name);
        Ok(Some(file))
    }

    fn stored(&self, name: &str) -> Option<File> {
        let file = self.open_file(name, OFlags::RDONLY).ok()?;
        let stat = fstat(&file).ok()?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if !is_file || !is_own(&stat) {
            return None;
        }
        // So that it counts as used; a file system that is read-only by now does no harm.
        let times = Timestamps {
            last_access: Timespec {
                tv_sec: 0,
                tv_nsec: UTIME_OMIT,
            },
            last_modification: Timespec {
                tv_sec: 0,
                tv_nsec: UTIME_NOW,
            },
        };
        let _ = utimensat(&self.0, name, &times, AtFlags::SYMLINK_NOFOLLOW);
        Some(file)
    }

    fn open_file(&self, name: &str, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        Ok(File::from(openat(&self.0, name, flags, mode)?))
    }

    fn begin(&self) -> io::Result<Making<'_>> {
        // Its keys are random.
        let name = format!("{MAKING}{:016x}", RandomState::new().hash_one(0));
        let file = self.open_file(&name, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)?;
        Ok(Making {
            store: self,
            name,
            file,
        })
    }

    /// Removes archives that have gone unused for the longest time, beyond the room, those of
    /// another boot, and what starts that were killed have left.
    fn tidy(&self, kept: &str) {
        let now = SystemTime::now();
        let boot = boot_id();
        let mut archives = Vec::new();
        for name in self.names() {
            let Ok(stat) = statat(&self.0, &name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            let version = FileVersion::of(&stat);
            let used = version.modified();
            let age = now.duration_since(used).unwrap_or_default();
            if name.starts_with(MAKING) {
                if age > STALE {
                    self.remove(&name);
                }
            } else if !name.starts_with(&boot) {
                self.remove(&name);
            } else if name != kept {
                archives.push((used, version.bytes(), name));
            }
        }
        archives.sort_unstable_by_key(|archive| std::cmp::Reverse(archive.0));
        let mut bytes = 0_u64;
        for (_, size, name) in archives {
            bytes = bytes.saturating_add(size);
            if bytes > MOST_BYTES {
                self.remove(&name);
            }
        }
    }

    fn names(&self) -> Vec<String> {
        let entries = Dir::read_from(&self.0).into_iter().flatten().flatten();
        entries
            .filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned))
            .filter(|name| !matches!(name.as_str(), "." | ".."))
            .collect()
    }

    /// A machine that has mapped it goes on.
    fn remove(&self, name: &str) {
        let _ = unlinkat(&self.0, name, AtFlags::empty());
    }
}

/// An archive that is being written; it is removed unless it is finished.
struct Making<'a> {
    store: &'a ArchiveStore,
    name: String,
    file: File,
}

impl Making<'_> {
    /// Gives it its name, and opens it for reading only.
    fn finish(self, name: &str) -> io::Result<File> {
        let directory = &self.store.0;
        fchmod(&self.file, Mode::RUSR)?;
        let file = self.store.open_file(&self.name, OFlags::RDONLY)?;
        renameat(directory, &self.name, directory, name)?;
        Ok(file)
    }
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        self.store.remove(&self.name);
    }
}

/// Whether it is on a file system of this host's.
fn is_local(file: impl AsFd) -> io::Result<bool> {
    Ok(LOCAL.contains(&(fstatfs(file)?.f_type as u32)))
}

/// Whether it is this user's, and no one else may write to it.
fn is_own(stat: &Stat) -> bool {
    stat.st_uid == geteuid().as_raw() && stat.st_mode & 0o022 == 0
}

/// The name of a tree's archive, and when a file of it was last changed. `None` if this boot has no
/// name.
fn key(tree: &Tree, layout: Layout) -> io::Result<Option<(String, SystemTime)>> {
    let boot = boot_id();
    if boot.is_empty() {
        return Ok(None);
    }
    let mut key = Key {
        hash: Sha256::new_with_prefix(FORMAT),
        last_change: UNIX_EPOCH,
    };
    key.hash.update(match layout {
        Layout::Compact => "c",
        Layout::Pages => "p",
    });
    for (name, node) in tree.entries() {
        key.text(name);
        key.node(node)?;
    }
    let digits = key.hash.finalize();
    let digits: String = digits.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Some((format!("{boot}-{digits}"), key.last_change)))
}

struct Key {
    hash: Sha256,
    last_change: SystemTime,
}

impl Key {
    fn number(&mut self, number: u64) {
        self.hash.update(number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.hash.update(text);
    }

    fn node(&mut self, node: &Node) -> io::Result<()> {
        let fields = [node.permissions, node.uid, node.gid, node.modified_s];
        fields.into_iter().for_each(|it| self.number(it.into()));
        let group = node.links.map_or(0, |group| u64::from(group.number()) + 1);
        self.number(group);
        match &node.kind {
            EntryKind::Directory => self.hash.update("d"),
            EntryKind::Pipe => self.hash.update("p"),
            EntryKind::Link(target) => {
                self.hash.update("l");
                self.text(target);
            }
            EntryKind::File(Content::Bytes(bytes)) => {
                self.hash.update("b");
                self.number(bytes.len() as u64);
                self.hash.update(bytes);
            }
            EntryKind::File(Content::Host(file)) => {
                self.hash.update("h");
                self.version(file.version());
            }
            EntryKind::File(Content::Part {
                file,
                offset,
                bytes,
            }) => {
                let stat = fstat(file)?;
                self.number(*bytes);
                if stat.st_nlink > 0 {
                    self.hash.update("n");
                    self.number(*offset);
                    self.version(FileVersion::of(&stat));
                } else {
                    self.hash.update("c");
                    let offset = *offset;
                    let content = Part { file, offset }.take(*bytes);
                    self.hash.update(hash::<Sha256>(content)?);
                }
            }
        }
        Ok(())
    }

    fn version(&mut self, version: FileVersion) {
        version.numbers().into_iter().for_each(|it| self.number(it));
        self.last_change = self.last_change.max(version.changed());
    }
}

/// Whether a change from now on has another time than the last one. Not where the clock was set back.
fn is_settled(last_change: SystemTime, now: SystemTime) -> bool {
    let age = now.duration_since(last_change);
    age.is_ok_and(|age| age >= SETTLED)
}

/// Whether no file has changed since, on file systems that would say so.
fn is_unchanged(tree: &Tree, last_change: SystemTime) -> bool {
    let check = |file: &File| {
        let stat = fstat(file).ok()?;
        let is_as_it_was = || FileVersion::of(&stat).changed() <= last_change;
        Some(stat.st_nlink == 0 || is_local(file).ok()? && is_as_it_was())
    };
    tree.entries().all(|(_, node)| match &node.kind {
        EntryKind::File(Content::Host(file)) => {
            file.open().is_ok_and(|file| check(&file) == Some(true))
        }
        EntryKind::File(Content::Part { file, .. }) => check(file) == Some(true),
        _ => true,
    })
}

#[cfg(test)]
mod tests;
