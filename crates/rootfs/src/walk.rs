//! A tree from a directory of the host, bounded by the size of the archive that
//! it becomes.
//!
//! For the library OS a symbolic link is packed as the file it points to, if that
//! lies inside the root; for Linux links stay links, hard links included. Links
//! that lead out of the root or into themselves (where they are followed),
//! devices, sockets, and of a site pipes and names that are not UTF-8 are left out with a
//! warning; so are extended attributes besides capabilities.
//!
//! The directory may belong to someone else, who may change it meanwhile: all
//! is opened from its descriptor (`host_file`).

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Stat, readlinkat, statat};
use tare_program::names;

use crate::capability::Attributes;
use crate::cpio::{entry_bytes, name_bytes, trailer_bytes};
use crate::host_file::{HostFile, Identity, RootDir};
use crate::left_out::LeftOut;
use crate::quote::quoted;
use crate::tree::{self, Content, EntryKind, NameError, Node, Tree};

/// The files of a directory.
#[derive(Debug)]
pub struct Listing {
    /// Its files.
    pub tree: Tree,
    /// Files that are left out, one sentence each.
    pub warnings: Vec<String>,
    /// Size of the tree's archive.
    pub archive_bytes: u64,
}

/// How symbolic links and owners are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// As the files they point to, all owned by root. For the library OS.
    Followed,
    /// As links. Owners are kept, except that the files of an ordinary user become root's.
    Kept,
}

/// Why a directory cannot be a guest's root.
#[derive(Debug, thiserror::Error)]
pub enum WalkError {
    /// It does not exist.
    #[error("the root directory {} does not exist", .0.display())]
    Missing(PathBuf),
    /// It is not a directory.
    #[error("the root {} is not a directory", .0.display())]
    NotDirectory(PathBuf),
    /// A file or directory in it cannot be read.
    #[error("cannot read {}", quoted(&path.to_string_lossy()))]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Its archive is too large.
    #[error(
        "the root directory {} packs to more than {} KiB, the memory that is left beside the image",
        root.display(),
        limit_bytes / 1024
    )]
    TooLarge {
        /// The directory.
        root: PathBuf,
        /// Most bytes of the archive.
        limit_bytes: u64,
    },
    /// A name that cannot be in a tree.
    #[error(transparent)]
    Name(#[from] NameError),
}

/// Lists `root`, if its archive has at most `limit_bytes`.
pub fn walk(root: &Path, links: Links, limit_bytes: u64) -> Result<Listing, WalkError> {
    let canonical = root.canonicalize().map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => WalkError::Missing(root.to_owned()),
        _ => read(root)(source),
    })?;
    if !canonical.is_dir() {
        return Err(WalkError::NotDirectory(root.to_owned()));
    }
    let mut walk = Walk {
        given: root,
        links,
        root: RootDir::open(&canonical).map_err(read(root))?,
        limit_bytes,
        open: Vec::new(),
        hard_links: HashMap::new(),
        tree: Tree::new(),
        left_out: LeftOut::default(),
        archive_bytes: 0,
    };
    walk.directory(Path::new(""), "")?;
    walk.grow(trailer_bytes())?;
    Ok(Listing {
        tree: walk.tree,
        warnings: walk.left_out.into_warnings(),
        archive_bytes: walk.archive_bytes,
    })
}

/// An entry of a directory, from one look at it.
struct Seen {
    file_name: OsString,
    stat: Stat,
    /// Target of a symbolic link.
    target: Option<OsString>,
}

struct Walk<'a> {
    /// The directory as the user named it.
    given: &'a Path,
    links: Links,
    /// Nothing outside this directory is packed.
    root: RootDir,
    limit_bytes: u64,
    /// The directories that are being listed, below the root, outermost first.
    open: Vec<PathBuf>,
    /// The first name of each file that has several.
    hard_links: HashMap<Identity, String>,
    tree: Tree,
    left_out: LeftOut,
    archive_bytes: u64,
}

impl Walk<'_> {
    /// Lists `source`, a path below the root, as `prefix` of the guest.
    fn directory(&mut self, source: &Path, prefix: &str) -> Result<(), WalkError> {
        // Its descriptor is closed before those below it are opened.
        let mut entries = self
            .root
            .open_below(source)
            .and_then(|directory| list(&directory))
            .map_err(read(&self.root.full(source)))?;
        entries.sort_by(|a, b| a.file_name.cmp(&b.file_name));
        self.open.push(source.to_owned());
        for entry in entries {
            self.entry(&entry, source, prefix)?;
        }
        self.open.pop();
        Ok(())
    }

    fn entry(&mut self, entry: &Seen, source: &Path, prefix: &str) -> Result<(), WalkError> {
        let path = source.join(&entry.file_name);
        let Some(file_name) = self.text(&entry.file_name) else {
            return self.leave_out(&path, "its name is not UTF-8");
        };
        let name = match prefix {
            "" => file_name,
            _ => format!("{prefix}/{file_name}"),
        };
        if tree::check_length(&name).is_err() {
            return self.leave_out(&path, "its path is too long");
        }
        match (&entry.target, self.links) {
            (None, _) => self.add(path, name, &entry.stat),
            (Some(_), Links::Followed) => self.follow(&path, name),
            (Some(target), Links::Kept) => {
                let target = names::text(target.as_bytes().to_owned());
                self.put(&name, self.node(EntryKind::Link(target), &entry.stat))
            }
        }
    }

    /// The text of a name. Sites have names of UTF-8 alone.
    fn text(&self, name: &OsStr) -> Option<String> {
        match self.links {
            Links::Followed if name.to_str().is_none() => None,
            Links::Followed | Links::Kept => Some(names::text(name.as_bytes().to_owned())),
        }
    }

    fn follow(&mut self, link: &Path, name: String) -> Result<(), WalkError> {
        let Ok(target) = self.root.full(link).canonicalize() else {
            return self.leave_out(link, "the link leads nowhere");
        };
        let Ok(target) = target.strip_prefix(self.root.path()) else {
            return self.leave_out(link, "the link leads out of the root directory");
        };
        if self.open.iter().any(|open| open == target) {
            return self.leave_out(link, "the link leads to a directory that it is in");
        }
        let stat = self
            .root
            .stat_below(target)
            .map_err(read(&self.root.full(target)))?;
        self.add(target.to_owned(), name, &stat)
    }

    fn add(&mut self, source: PathBuf, name: String, stat: &Stat) -> Result<(), WalkError> {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                self.put(&name, self.node(EntryKind::Directory, stat))?;
                self.directory(&source, &name)
            }
            FileType::RegularFile => self.file(source, name, stat),
            FileType::Fifo if self.links == Links::Kept => {
                self.put(&name, self.node(EntryKind::Pipe, stat))
            }
            // Linux makes its devices itself, there.
            FileType::CharacterDevice | FileType::BlockDevice
                if self.links == Links::Kept && name.starts_with("dev/") =>
            {
                Ok(())
            }
            FileType::CharacterDevice | FileType::BlockDevice => {
                self.leave_out(&source, "it is a device")
            }
            _ => self.leave_out(&source, "it is neither a file nor a directory"),
        }
    }

    fn file(&mut self, source: PathBuf, name: String, stat: &Stat) -> Result<(), WalkError> {
        if self.links == Links::Kept && stat.st_nlink > 1 {
            let identity = Identity::of(stat);
            if let Some(first) = self.hard_links.get(&identity).cloned() {
                self.grow(name_bytes(&name))?;
                return Ok(self.tree.hard_link(&first, &name)?);
            }
            self.hard_links.insert(identity, name.clone());
        }
        let attributes = match self.links {
            Links::Kept => Attributes::of(&self.root.full(&source)),
            Links::Followed => Attributes::default(),
        };
        if let Some(loss) = attributes.loss() {
            self.left_out.add_part(&name, &loss);
        }
        let content = Content::Host(HostFile::below(&self.root, source, stat));
        let mut node = self.node(EntryKind::File(content), stat);
        node.capability = attributes.capability;
        self.put(&name, node)
    }

    fn node(&self, kind: EntryKind, stat: &Stat) -> Node {
        let (uid, gid) = match self.links {
            Links::Followed => (0, 0),
            Links::Kept => owner(stat),
        };
        Node {
            kind,
            permissions: stat.st_mode & 0o7777,
            uid,
            gid,
            modified_s: u32::try_from(stat.st_mtime.max(0)).unwrap_or(u32::MAX),
            links: None,
            capability: None,
        }
    }

    fn put(&mut self, name: &str, node: Node) -> Result<(), WalkError> {
        self.grow(entry_bytes(name, &node))?;
        Ok(self.tree.insert(name, node)?)
    }

    /// Accounts for one entry's header, name and content. A file that is too large for a header is
    /// packing's error: a disk takes it.
    fn grow(&mut self, bytes: u64) -> Result<(), WalkError> {
        let total = self.archive_bytes.saturating_add(bytes);
        if total > self.limit_bytes {
            return Err(WalkError::TooLarge {
                root: self.given.to_owned(),
                limit_bytes: self.limit_bytes,
            });
        }
        self.archive_bytes = total;
        Ok(())
    }

    fn leave_out(&mut self, below: &Path, why: &str) -> Result<(), WalkError> {
        let path = self.root.full(below);
        self.left_out.add(&path.to_string_lossy(), why);
        Ok(())
    }
}

/// The entries of an open directory, links with their targets.
fn list(directory: &File) -> io::Result<Vec<Seen>> {
    let mut entries = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let is_link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
        let target = is_link.then(|| readlinkat(directory, name, Vec::new()));
        entries.push(Seen {
            file_name: OsString::from_vec(name.to_bytes().to_vec()),
            stat,
            target: target
                .transpose()?
                .map(|target| OsString::from_vec(target.into_bytes())),
        });
    }
    Ok(entries)
}

/// Files of an ordinary user who runs Tare are root's in the guest; root's own keep their group.
fn owner(stat: &Stat) -> (u32, u32) {
    let user = rustix::process::geteuid();
    if !user.is_root() && stat.st_uid == user.as_raw() {
        (0, 0)
    } else {
        (stat.st_uid, stat.st_gid)
    }
}

fn read(path: &Path) -> impl FnOnce(io::Error) -> WalkError {
    let path = path.to_owned();
    move |source| WalkError::Read { path, source }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::cpio::{self, PackError};

    fn walk(root: &Path, limit_bytes: u64) -> Result<Listing, WalkError> {
        super::walk(root, Links::Followed, limit_bytes)
    }

    fn names(listing: &Listing) -> Vec<&str> {
        listing.tree.entries().map(|(name, _)| name).collect()
    }

    /// As crontab's, a set-group-ID program, and as a key that a group may read.
    #[test]
    fn roots_files_keep_their_group() {
        if !rustix::process::geteuid().is_root() {
            tare_vmtest::lacks("only root can give a file another group");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("crontab");
        fs::write(&file, "x").unwrap();
        std::os::unix::fs::chown(&file, Some(0), Some(42)).unwrap();
        let listing = super::walk(dir.path(), Links::Kept, 1 << 20).unwrap();
        let node = listing.tree.get("crontab").unwrap();
        assert_eq!((node.uid, node.gid), (0, 42));
    }

    #[test]
    fn order_is_by_name_and_directories_come_first() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["b", "a", "d"] {
            fs::write(dir.path().join(name), name).unwrap();
        }
        fs::create_dir(dir.path().join("c")).unwrap();
        fs::write(dir.path().join("c/x"), "x").unwrap();
        let tree = walk(dir.path(), 1 << 20).unwrap();
        assert_eq!(names(&tree), ["a", "b", "c", "c/x", "d"]);
        assert!(matches!(
            tree.tree.get("c").unwrap().kind,
            EntryKind::Directory
        ));
        assert!(tree.warnings.is_empty());
    }

    #[test]
    fn links_inside_are_followed_and_others_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir(root.join("real")).unwrap();
        fs::write(root.join("real/file"), "1234").unwrap();
        symlink("real/file", root.join("file")).unwrap();
        symlink("real", root.join("also")).unwrap();
        symlink("../real", root.join("real/self")).unwrap();
        symlink("/etc/passwd", root.join("outside")).unwrap();
        symlink("nowhere", root.join("dangling")).unwrap();
        let tree = walk(root, 1 << 20).unwrap();
        assert_eq!(
            names(&tree),
            ["also", "also/file", "file", "real", "real/file"]
        );
        let followed = &tree.tree.get("file").unwrap().kind;
        assert!(matches!(followed, EntryKind::File(content) if content.len() == 4));
        assert_eq!(tree.warnings.len(), 4, "{:?}", tree.warnings);
    }

    #[test]
    fn linux_keeps_links_wherever_they_lead() {
        let dir = tempfile::tempdir().unwrap();
        symlink("/etc/passwd", dir.path().join("outside")).unwrap();
        symlink(".", dir.path().join("self")).unwrap();
        let kept = super::walk(dir.path(), Links::Kept, 1 << 20).unwrap();
        assert_eq!(names(&kept), ["outside", "self"]);
        let outside = &kept.tree.get("outside").unwrap();
        assert!(matches!(&outside.kind, EntryKind::Link(target) if target == "/etc/passwd"));
        assert_eq!((outside.uid, kept.warnings.len()), (0, 0));
    }

    #[test]
    fn sockets_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let _socket = UnixListener::bind(dir.path().join("socket")).unwrap();
        let tree = walk(dir.path(), 1 << 20).unwrap();
        assert!(tree.tree.is_empty());
        assert_eq!(tree.warnings.len(), 1);
    }

    #[test]
    fn linux_keeps_pipes_and_capabilities() {
        use rustix::fs::{CWD, Mode, XattrFlags, mknodat, setxattr};
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        mknodat(CWD, path("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        fs::write(path("ping"), "x").unwrap();
        let bind = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let set = |name: &str, value: &[u8]| {
            setxattr(path("ping"), name, value, XattrFlags::empty()).is_ok()
        };
        let (has_capability, has_note) =
            (set("security.capability", &bind), set("user.note", b"x"));
        let kept = super::walk(dir.path(), Links::Kept, 1 << 20).unwrap();
        assert_eq!(names(&kept), ["ping", "pipe"]);
        assert!(matches!(
            kept.tree.get("pipe").unwrap().kind,
            EntryKind::Pipe
        ));
        assert_eq!(kept.archive_bytes, crate::cpio::archive_bytes(&kept.tree));
        let ping = kept.tree.get("ping").unwrap();
        // Both need a file system that has them, the first one root too.
        assert_eq!(ping.capability.is_some(), has_capability);
        let lost = kept
            .warnings
            .iter()
            .any(|it| it.contains("attribute user.note"));
        assert_eq!(lost, has_note);
        // The library OS has neither.
        let followed = walk(dir.path(), 1 << 20).unwrap();
        assert_eq!(
            (names(&followed), followed.warnings.len()),
            (vec!["ping"], 1)
        );
    }

    #[test]
    fn a_tree_beyond_the_limit_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a"), [0; 1000]).unwrap();
        let size = walk(dir.path(), 1 << 20).unwrap().archive_bytes;
        assert!(walk(dir.path(), size).is_ok());
        assert!(matches!(
            walk(dir.path(), size - 1),
            Err(WalkError::TooLarge { .. })
        ));
    }

    /// A root on a disk may have such files; an initramfs cannot.
    #[test]
    fn a_file_of_4_gib_is_listed_and_only_an_initramfs_refuses_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = fs::File::create(dir.path().join("huge")).unwrap();
        file.set_len(5 << 30).unwrap();
        let listing = super::walk(dir.path(), Links::Kept, 8 << 30).unwrap();
        assert!(listing.archive_bytes > 5 << 30);
        for layout in [cpio::Layout::Compact, cpio::Layout::Pages] {
            let packed = cpio::archive_as(&listing.tree, layout, io::sink());
            let Err(PackError::FileTooLarge(name)) = packed else {
                panic!("{layout:?}: {packed:?}");
            };
            assert_eq!(name, "huge", "{layout:?}");
        }
        assert!(matches!(
            walk(dir.path(), 5 << 30),
            Err(WalkError::TooLarge { .. })
        ));
    }

    #[test]
    fn a_path_that_is_not_a_directory_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(matches!(
            walk(file.path(), 1),
            Err(WalkError::NotDirectory(_))
        ));
        assert!(matches!(
            walk(&file.path().join("x"), 1),
            Err(WalkError::Read { .. })
        ));
        assert!(matches!(
            walk(Path::new("/no/such"), 1),
            Err(WalkError::Missing(_))
        ));
    }

    #[test]
    fn linux_keeps_hard_links() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("b"), [0; 1000]).unwrap();
        fs::hard_link(dir.path().join("b"), dir.path().join("a")).unwrap();
        let kept = super::walk(dir.path(), Links::Kept, 1 << 20).unwrap();
        let group = |name: &str| kept.tree.get(name).unwrap().links;
        assert!(group("a").is_some() && group("a") == group("b"));
        assert_eq!(kept.archive_bytes, crate::cpio::archive_bytes(&kept.tree));
        // The library OS reads each name's data where it finds it.
        let followed = walk(dir.path(), 1 << 20).unwrap();
        assert_eq!(followed.tree.get("a").unwrap().links, None);
    }
}
