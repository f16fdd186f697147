//! Files of the host that a guest gets: identified when they are listed, and
//! compared when they are opened for packing.
//!
//! Whoever owns a directory can replace a file in it by a link or a named pipe
//! at any time. A file below a root directory is therefore opened from that
//! directory's descriptor without following links (openat2(2)), every file is
//! opened without waiting, and one that is not the listed one is refused.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, open, openat2, stat};
use rustix::io::Errno;

/// Links of any kind are refused: neither the last component nor any before it.
const NO_LINKS: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);

/// Permission bits of other users.
const OTHERS_READ: u32 = 0o004;
const OTHERS_SEARCH: u32 = 0o001;

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

/// What tells whether a file's content is what it was (`stat(2)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileVersion {
    identity: Identity,
    bytes: u64,
    /// Seconds and nanoseconds of the content's last change, and of the file's.
    modified: (i64, u64),
    changed: (i64, u64),
}

impl FileVersion {
    pub(crate) fn of(stat: &Stat) -> Self {
        Self {
            identity: Identity::of(stat),
            bytes: u64::try_from(stat.st_size).unwrap_or(0),
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    /// All of it.
    pub(crate) fn numbers(self) -> [u64; 7] {
        let Identity { device, inode } = self.identity;
        let seconds = [self.modified.0, self.changed.0].map(i64::cast_unsigned);
        let [modified_s, changed_s] = seconds;
        [
            device,
            inode,
            self.bytes,
            modified_s,
            self.modified.1,
            changed_s,
            self.changed.1,
        ]
    }

    /// Its size.
    pub(crate) fn bytes(self) -> u64 {
        self.bytes
    }

    /// When its content was last changed; what was before 1970 counts as then.
    pub(crate) fn modified(self) -> SystemTime {
        time(self.modified)
    }

    /// When the file was last changed, its name and permissions included.
    pub(crate) fn changed(self) -> SystemTime {
        time(self.changed)
    }
}

fn time((seconds, nanoseconds): (i64, u64)) -> SystemTime {
    let since = u64::try_from(seconds).map_or(Duration::ZERO, |seconds| {
        Duration::new(seconds, nanoseconds as u32)
    });
    UNIX_EPOCH + since
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
    version: FileVersion,
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

    /// A file that every user may read, by the links that lead to it, with its permissions. What is
    /// looked at is the file that is read later: whoever may change its directory can put a link in its
    /// place at any time.
    pub(crate) fn public(path: &Path) -> Option<(Self, u32)> {
        Self::public_at(path.canonicalize().ok()?)
    }

    /// The same of a path that had no links.
    fn public_at(path: PathBuf) -> Option<(Self, u32)> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let no_links = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let file = openat2(CWD, &path, flags, Mode::empty(), no_links).ok()?;
        let stat = fstat(file).ok()?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let is_open = stat.st_mode & OTHERS_READ != 0 && may_all_enter(path.parent()?);
        (is_file && is_open).then(|| {
            let permissions = stat.st_mode & 0o7777;
            (Self::listed(None, path, &stat), permissions)
        })
    }

    /// A file below a directory.
    pub(crate) fn below(root: &RootDir, path: PathBuf, stat: &Stat) -> Self {
        Self::listed(Some(root.clone()), path, stat)
    }

    fn listed(root: Option<RootDir>, path: PathBuf, stat: &Stat) -> Self {
        Self {
            root,
            path,
            version: FileVersion::of(stat),
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
        self.version.bytes
    }

    /// What it was when it was listed.
    pub(crate) fn version(&self) -> FileVersion {
        self.version
    }

    /// Whether it was empty when it was listed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first bytes of the file that was listed, `most` of them at most.
    pub fn read(&self, most: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.open()?.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
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
            && u64::try_from(stat.st_size) == Ok(self.version.bytes)
            && Identity::of(&stat) == self.version.identity;
        if same {
            Ok(file)
        } else {
            Err(OpenError::Changed)
        }
    }
}

impl From<OpenError> for io::Error {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Open(error) => error,
            OpenError::Changed => io::Error::other("it changed while it was read"),
        }
    }
}

/// Whether every user may enter a directory, whose path has no links, and all above it.
fn may_all_enter(directory: &Path) -> bool {
    directory.ancestors().all(|above| {
        fs::symlink_metadata(above)
            .is_ok_and(|it| it.is_dir() && it.permissions().mode() & OTHERS_SEARCH != 0)
    })
}

/// Whether every user may list a directory, by the links that lead to it.
pub fn is_public_directory(path: &Path) -> bool {
    let Ok(path) = path.canonicalize() else {
        return false;
    };
    let listed = fs::symlink_metadata(&path)
        .is_ok_and(|it| it.is_dir() && it.permissions().mode() & OTHERS_READ != 0);
    listed && may_all_enter(&path)
}

/// Whether every user may see what is at a path, if anything is: may enter the directories that it names, and
/// those that links among them lead to.
pub fn is_seen_by_all(path: &Path) -> bool {
    let Some(directory) = path.parent() else {
        return true;
    };
    let enters = |above: &Path| {
        fs::metadata(above)
            .is_ok_and(|it| it.is_dir() && it.permissions().mode() & OTHERS_SEARCH != 0)
    };
    let resolved = directory.canonicalize();
    directory.ancestors().all(enters) && resolved.is_ok_and(|it| may_all_enter(&it))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use std::sync::atomic::{AtomicBool, Ordering};

    use rustix::fs::{RenameFlags, mknodat, renameat_with};

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
    fn what_lies_in_or_behind_a_private_directory_is_not_seen_by_all() {
        let dir = tempfile::tempdir().unwrap();
        let allow = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        allow(dir.path(), 0o755);
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("private/open")).unwrap();
        fs::create_dir(at("open")).unwrap();
        symlink("../open", at("private/out")).unwrap();
        symlink("private/open", at("in")).unwrap();
        for open in ["private/open", "open"] {
            allow(&at(open), 0o755);
        }
        allow(&at("private"), 0o700);
        for seen in ["private", "open", "open/a", "in"] {
            assert!(is_seen_by_all(&at(seen)), "{seen}");
        }
        for hidden in [
            "private/open",
            "private/open/a",
            "private/out/a",
            "in/a",
            "none/a",
        ] {
            assert!(!is_seen_by_all(&at(hidden)), "{hidden}");
        }
        assert!(is_seen_by_all(Path::new("/")));
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

    /// Whoever may change a directory exchanges what is in it, again and again, while it is listed
    /// and packed: rounds of two names that are exchanged, and what must not be packed.
    fn raced([one, other]: [&Path; 2], mut round: impl FnMut()) {
        let exchange = || renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    exchange();
                    // Twice: at the end all is where it was.
                    std::thread::yield_now();
                    exchange();
                }
            });
            let _done = SetAtEnd(&done);
            for _ in 0..ROUNDS {
                round();
            }
        });
    }

    /// Also where a round fails.
    struct SetAtEnd<'a>(&'a AtomicBool);

    impl Drop for SetAtEnd<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    const ROUNDS: usize = 1500;
    const SECRET: &[u8] = b"secret";

    fn holds_secret(packed: &[u8]) -> bool {
        packed.windows(SECRET.len()).any(|it| it == SECRET)
    }

    #[test]
    fn a_root_directory_that_changes_all_the_time_gives_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["root/sub", "outside", "spare"] {
            fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        let at = |name: &str| dir.path().join(name);
        fs::write(at("root/page"), &b"public"[..SECRET.len()]).unwrap();
        fs::write(at("root/sub/page"), &b"public"[..SECRET.len()]).unwrap();
        fs::write(at("outside/page"), SECRET).unwrap();
        symlink(at("outside/page"), at("spare/link")).unwrap();
        symlink(at("outside"), at("spare/directory")).unwrap();
        mknodat(CWD, at("spare/pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        let pack = || {
            let Ok(listed) = walk(&at("root"), Links::Kept, 1 << 20) else {
                return;
            };
            let mut packed = Vec::new();
            if archive(&listed.tree, &mut packed).is_ok() {
                assert!(!holds_secret(&packed));
            }
        };
        for (inside, spare) in [
            ("root/page", "spare/link"),
            ("root/sub", "spare/directory"),
            ("root/page", "spare/pipe"),
        ] {
            raced([&at(inside), &at(spare)], pack);
        }
    }

    /// A profile names files of this computer, and its author exchanges them.
    #[test]
    fn a_public_file_that_changes_all_the_time_gives_no_secret() {
        use std::os::unix::fs::PermissionsExt as _;

        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let allow = |name: &str, mode| {
            fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        fs::create_dir_all(at("private")).unwrap();
        fs::create_dir_all(at("public/sub")).unwrap();
        fs::write(at("public/page"), &b"public"[..SECRET.len()]).unwrap();
        fs::write(at("public/sub/page"), &b"public"[..SECRET.len()]).unwrap();
        // Its directory alone keeps others from it.
        fs::write(at("private/page"), SECRET).unwrap();
        fs::write(at("secret"), SECRET).unwrap();
        symlink(at("private/page"), at("spare")).unwrap();
        symlink(at("private"), at("directory")).unwrap();
        for (name, mode) in [
            (".", 0o755),
            ("public", 0o755),
            ("public/sub", 0o755),
            ("public/page", 0o644),
            ("public/sub/page", 0o644),
            ("private", 0o700),
            ("private/page", 0o644),
            ("secret", 0o600),
        ] {
            allow(name, mode);
        }
        let is_public = |name: &str| HostFile::public(&at(name)).is_some();
        assert!(is_public("public/page") && is_public("public/sub/page"));
        assert!(!is_public("secret") && !is_public("private/page") && !is_public("spare"));
        assert!(is_public_directory(&at("public")) && !is_public_directory(&at("private")));
        // Its links were followed, and then there is another one.
        let is_still = |name: &str| HostFile::public_at(at(name)).is_some();
        assert!(is_still("public/page"));
        assert!(!is_still("spare") && !is_still("directory/page"));
        let (listed, _) = HostFile::public(&at("public/page")).unwrap();
        fs::rename(at("public/page"), at("moved")).unwrap();
        symlink(at("private/page"), at("public/page")).unwrap();
        assert!(matches!(listed.open(), Err(OpenError::Changed)));
        fs::rename(at("moved"), at("public/page")).unwrap();
        let mut given = 0;
        for (name, exchanged, spare) in [
            ("public/page", "public/page", "spare"),
            ("public/page", "public/page", "secret"),
            ("public/sub/page", "public/sub", "directory"),
        ] {
            raced([&at(exchanged), &at(spare)], || {
                let Some((file, _)) = HostFile::public(&at(name)) else {
                    return;
                };
                let Ok(mut file) = file.open() else { return };
                let mut bytes = Vec::new();
                io::Read::read_to_end(&mut file, &mut bytes).unwrap();
                assert_ne!(bytes, SECRET);
                given += 1;
            });
        }
        assert!(given > 0, "the race was never lost");
    }
}
