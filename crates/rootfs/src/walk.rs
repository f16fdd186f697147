//! A tree from a directory of the host, bounded by the size of the archive that
//! it becomes.
//!
//! For the library OS a symbolic link is packed as what it points to, if that
//! lies inside the root; for Linux links stay links. Links that lead out of
//! the root or into themselves (where they are followed), devices, sockets,
//! pipes and names that are not UTF-8 are passed over with a warning.

use std::fs::{self, DirEntry, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use crate::cpio::{entry_bytes, trailer_bytes};
use crate::tree::{self, Content, Kind, NameError, Node, Tree};

/// What a directory holds.
#[derive(Debug)]
pub struct Listing {
    /// Its files.
    pub tree: Tree,
    /// What was passed over, one sentence each.
    pub warnings: Vec<String>,
    /// Size of the tree's archive.
    pub archive_bytes: u64,
}

/// What becomes of symbolic links, and with them of owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// Files and directories that they point to; all is root's. For the library OS.
    Followed,
    /// Links; owners are kept, but what belongs to the caller becomes root's.
    Kept,
}

/// A directory that cannot be given to a guest.
#[derive(Debug, thiserror::Error)]
pub enum WalkError {
    /// It is not there.
    #[error("the root directory {} does not exist", .0.display())]
    Missing(PathBuf),
    /// It is something else.
    #[error("the root {} is not a directory", .0.display())]
    NotDirectory(PathBuf),
    /// Something in it cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It does not fit.
    #[error(
        "the root directory {} packs to more than the {} KiB that fit beside the image",
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
        root,
        links,
        inside: canonical.clone(),
        limit_bytes,
        open: Vec::new(),
        listing: Listing {
            tree: Tree::new(),
            warnings: Vec::new(),
            archive_bytes: 0,
        },
    };
    walk.directory(&canonical, "")?;
    walk.grow(trailer_bytes())?;
    Ok(walk.listing)
}

struct Walk<'a> {
    root: &'a Path,
    links: Links,
    /// Nothing outside this directory is packed.
    inside: PathBuf,
    limit_bytes: u64,
    /// The directories that are being listed, outermost first.
    open: Vec<PathBuf>,
    listing: Listing,
}

impl Walk<'_> {
    fn directory(&mut self, source: &Path, prefix: &str) -> Result<(), WalkError> {
        let mut entries = fs::read_dir(source)
            .and_then(|entries| entries.collect::<io::Result<Vec<DirEntry>>>())
            .map_err(read(source))?;
        entries.sort_by_key(DirEntry::file_name);
        self.open.push(source.to_owned());
        for entry in entries {
            self.entry(&entry, prefix)?;
        }
        self.open.pop();
        Ok(())
    }

    fn entry(&mut self, entry: &DirEntry, prefix: &str) -> Result<(), WalkError> {
        let path = entry.path();
        let Ok(file_name) = entry.file_name().into_string() else {
            return self.pass_over(&path, "its name is not UTF-8");
        };
        let name = match prefix {
            "" => file_name,
            _ => format!("{prefix}/{file_name}"),
        };
        if tree::check_length(&name).is_err() {
            return self.pass_over(&path, "its path is too long");
        }
        let metadata = entry.metadata().map_err(read(&path))?;
        match (metadata.is_symlink(), self.links) {
            (false, _) => self.add(path, name, &metadata),
            (true, Links::Followed) => self.link(&path, name),
            (true, Links::Kept) => self.keep_link(&path, &name, &metadata),
        }
    }

    fn keep_link(&mut self, link: &Path, name: &str, metadata: &Metadata) -> Result<(), WalkError> {
        let target = fs::read_link(link).map_err(read(link))?;
        match target.into_os_string().into_string() {
            Ok(target) => self.put(name, self.node(Kind::Link(target), metadata)),
            Err(_) => self.pass_over(link, "its target is not UTF-8"),
        }
    }

    fn link(&mut self, link: &Path, name: String) -> Result<(), WalkError> {
        let Ok(target) = link.canonicalize() else {
            return self.pass_over(link, "the link leads nowhere");
        };
        if !target.starts_with(&self.inside) {
            return self.pass_over(link, "the link leads out of the root directory");
        }
        if self.open.contains(&target) {
            return self.pass_over(link, "the link leads to a directory that it is in");
        }
        let metadata = target.metadata().map_err(read(&target))?;
        self.add(target, name, &metadata)
    }

    fn add(&mut self, source: PathBuf, name: String, metadata: &Metadata) -> Result<(), WalkError> {
        if metadata.is_dir() {
            self.put(&name, self.node(Kind::Directory, metadata))?;
            return self.directory(&source, &name);
        }
        // Linux makes its devices itself.
        let kind = metadata.file_type();
        if self.links == Links::Kept && (kind.is_char_device() || kind.is_block_device()) {
            return Ok(());
        }
        if !metadata.is_file() {
            return self.pass_over(&source, "it is neither a file nor a directory");
        }
        let bytes = metadata.len();
        let content = Content::Host {
            path: source,
            bytes,
        };
        self.put(&name, self.node(Kind::File(content), metadata))
    }

    fn node(&self, kind: Kind, metadata: &Metadata) -> Node {
        let (uid, gid) = match self.links {
            Links::Followed => (0, 0),
            Links::Kept => owner(metadata),
        };
        Node {
            kind,
            permissions: metadata.mode() & 0o7777,
            uid,
            gid,
            modified_s: u32::try_from(metadata.mtime().max(0)).unwrap_or(u32::MAX),
            links: None,
        }
    }

    fn put(&mut self, name: &str, node: Node) -> Result<(), WalkError> {
        self.grow(entry_bytes(name, &node))?;
        Ok(self.listing.tree.insert(name, node)?)
    }

    /// Accounts for one entry's header, name and content.
    fn grow(&mut self, bytes: u64) -> Result<(), WalkError> {
        let total = self.listing.archive_bytes.saturating_add(bytes);
        if total > self.limit_bytes || bytes >= u64::from(u32::MAX) {
            return Err(self.too_large());
        }
        self.listing.archive_bytes = total;
        Ok(())
    }

    fn too_large(&self) -> WalkError {
        WalkError::TooLarge {
            root: self.root.to_owned(),
            limit_bytes: self.limit_bytes,
        }
    }

    fn pass_over(&mut self, path: &Path, why: &str) -> Result<(), WalkError> {
        self.listing
            .warnings
            .push(format!("{} is left out: {why}", path.display()));
        Ok(())
    }
}

/// What belongs to who runs Tare is root's in the guest.
fn owner(metadata: &Metadata) -> (u32, u32) {
    let ours = rustix::process::geteuid().as_raw();
    match metadata.uid() == ours {
        true => (0, 0),
        false => (metadata.uid(), metadata.gid()),
    }
}

fn read(path: &Path) -> impl FnOnce(io::Error) -> WalkError {
    let path = path.to_owned();
    move |source| WalkError::Read { path, source }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn walk(root: &Path, limit_bytes: u64) -> Result<Listing, WalkError> {
        super::walk(root, Links::Followed, limit_bytes)
    }

    fn names(listing: &Listing) -> Vec<&str> {
        listing.tree.entries().map(|(name, _)| name).collect()
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
        assert!(matches!(tree.tree.get("c").unwrap().kind, Kind::Directory));
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
        assert!(matches!(followed, Kind::File(content) if content.len() == 4));
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
        assert!(matches!(&outside.kind, Kind::Link(target) if target == "/etc/passwd"));
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

    #[test]
    fn a_sparse_file_of_any_size_is_only_too_large() {
        let dir = tempfile::tempdir().unwrap();
        let file = fs::File::create(dir.path().join("huge")).unwrap();
        file.set_len(1 << 40).unwrap();
        assert!(matches!(
            walk(dir.path(), u64::MAX),
            Err(WalkError::TooLarge { .. })
        ));
    }

    #[test]
    fn what_is_no_directory_is_named() {
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
}
