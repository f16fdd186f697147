//! Lists a root directory, bounded by the size of the archive that it becomes.

use std::fs::{self, DirEntry, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::RootError;

/// Bytes of a newc header.
const HEADER: u64 = 110;
/// Name of the last entry, with its NUL.
const TRAILER_NAME: u64 = 11;
/// Longest path inside the archive in bytes (`PATH_MAX` less its NUL).
const NAME_MAX: usize = 4095;

/// What a root directory holds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Tree {
    /// Directories before what is in them, each directory's entries by name.
    pub(crate) entries: Vec<Entry>,
    /// What was passed over, one sentence each.
    pub(crate) warnings: Vec<String>,
    /// Size of the archive.
    pub(crate) archive_bytes: u64,
}

/// One file or directory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Path in the archive.
    pub(crate) name: String,
    /// File or directory of the host.
    pub(crate) source: PathBuf,
    /// Permission bits.
    pub(crate) permissions: u32,
    /// Modification time, seconds since 1970.
    pub(crate) modified_s: u32,
    /// What it is.
    pub(crate) kind: Kind,
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A directory.
    Directory,
    /// A regular file.
    File {
        /// Its size.
        bytes: u32,
    },
}

/// Lists `root`, if its archive has at most `limit_bytes`.
pub(crate) fn walk(root: &Path, limit_bytes: u64) -> Result<Tree, RootError> {
    let canonical = root.canonicalize().map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => RootError::Missing(root.to_owned()),
        _ => read(root)(source),
    })?;
    if !canonical.is_dir() {
        return Err(RootError::NotDirectory(root.to_owned()));
    }
    let mut walk = Walk {
        root,
        inside: canonical.clone(),
        limit_bytes,
        open: Vec::new(),
        tree: Tree {
            entries: Vec::new(),
            warnings: Vec::new(),
            archive_bytes: 0,
        },
    };
    walk.directory(&canonical, "")?;
    walk.grow(TRAILER_NAME, 0)?;
    Ok(walk.tree)
}

struct Walk<'a> {
    root: &'a Path,
    /// Nothing outside this directory is packed.
    inside: PathBuf,
    limit_bytes: u64,
    /// The directories that are being listed, outermost first.
    open: Vec<PathBuf>,
    tree: Tree,
}

impl Walk<'_> {
    fn directory(&mut self, source: &Path, prefix: &str) -> Result<(), RootError> {
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

    fn entry(&mut self, entry: &DirEntry, prefix: &str) -> Result<(), RootError> {
        let path = entry.path();
        let Ok(file_name) = entry.file_name().into_string() else {
            return self.pass_over(&path, "its name is not UTF-8");
        };
        let name = match prefix {
            "" => file_name,
            _ => format!("{prefix}/{file_name}"),
        };
        if name.len() > NAME_MAX {
            return self.pass_over(&path, "its path is too long");
        }
        let metadata = entry.metadata().map_err(read(&path))?;
        if metadata.is_symlink() {
            self.link(&path, name)
        } else {
            self.add(path, name, &metadata)
        }
    }

    fn link(&mut self, link: &Path, name: String) -> Result<(), RootError> {
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

    fn add(&mut self, source: PathBuf, name: String, metadata: &Metadata) -> Result<(), RootError> {
        if !metadata.is_dir() && !metadata.is_file() {
            return self.pass_over(&source, "it is neither a file nor a directory");
        }
        let bytes = if metadata.is_file() {
            metadata.len()
        } else {
            0
        };
        self.grow(name.len() as u64 + 1, bytes)?;
        let directory = metadata.is_dir().then(|| (source.clone(), name.clone()));
        self.tree.entries.push(Entry {
            name,
            source,
            permissions: metadata.mode() & 0o7777,
            modified_s: u32::try_from(metadata.mtime().max(0)).unwrap_or(u32::MAX),
            kind: match directory {
                Some(_) => Kind::Directory,
                None => Kind::File {
                    bytes: u32::try_from(bytes).map_err(|_| self.too_large())?,
                },
            },
        });
        match directory {
            Some((source, name)) => self.directory(&source, &name),
            None => Ok(()),
        }
    }

    /// Accounts for one entry's header, name and content.
    fn grow(&mut self, name_bytes: u64, bytes: u64) -> Result<(), RootError> {
        let header = (HEADER + name_bytes).next_multiple_of(4);
        let content = bytes.checked_next_multiple_of(4);
        let total = content.and_then(|content| {
            self.tree
                .archive_bytes
                .checked_add(header)?
                .checked_add(content)
        });
        match total {
            Some(total) if total <= self.limit_bytes => {
                self.tree.archive_bytes = total;
                Ok(())
            }
            _ => Err(self.too_large()),
        }
    }

    fn too_large(&self) -> RootError {
        RootError::TooLarge {
            root: self.root.to_owned(),
            limit_bytes: self.limit_bytes,
        }
    }

    fn pass_over(&mut self, path: &Path, why: &str) -> Result<(), RootError> {
        self.tree
            .warnings
            .push(format!("{} is left out: {why}", path.display()));
        Ok(())
    }
}

fn read(path: &Path) -> impl FnOnce(io::Error) -> RootError {
    let path = path.to_owned();
    move |source| RootError::Read { path, source }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn names(tree: &Tree) -> Vec<&str> {
        tree.entries
            .iter()
            .map(|entry| entry.name.as_str())
            .collect()
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
        assert_eq!(tree.entries[2].kind, Kind::Directory);
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
        assert_eq!(tree.entries[2].kind, Kind::File { bytes: 4 });
        assert_eq!(tree.warnings.len(), 4, "{:?}", tree.warnings);
    }

    #[test]
    fn sockets_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let _socket = UnixListener::bind(dir.path().join("socket")).unwrap();
        let tree = walk(dir.path(), 1 << 20).unwrap();
        assert!(tree.entries.is_empty());
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
            Err(RootError::TooLarge { .. })
        ));
    }

    #[test]
    fn a_sparse_file_of_any_size_is_only_too_large() {
        let dir = tempfile::tempdir().unwrap();
        let file = fs::File::create(dir.path().join("huge")).unwrap();
        file.set_len(1 << 40).unwrap();
        assert!(matches!(
            walk(dir.path(), u64::MAX),
            Err(RootError::TooLarge { .. })
        ));
    }

    #[test]
    fn what_is_no_directory_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(matches!(
            walk(file.path(), 1),
            Err(RootError::NotDirectory(_))
        ));
        assert!(matches!(
            walk(&file.path().join("x"), 1),
            Err(RootError::Read { .. })
        ));
        assert!(matches!(
            walk(Path::new("/no/such"), 1),
            Err(RootError::Missing(_))
        ));
    }
}
