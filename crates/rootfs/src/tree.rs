//! What a guest gets as its files, before it is an archive or a disk.
//!
//! Names are relative (`etc/passwd`), without `.` and `..`; every entry's
//! directory is in the tree, before it.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

/// Longest path in bytes (`PATH_MAX` less its NUL).
pub const NAME_MAX: usize = 4095;

/// Most links that are followed for one name (the kernel's `MAXSYMLINKS`).
const MAX_LINKS: u32 = 40;

/// Files, directories and links by name.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    entries: BTreeMap<String, Node>,
}

/// One entry.
#[derive(Clone, Debug)]
pub struct Node {
    /// What it is.
    pub kind: Kind,
    /// Permission bits, with set-user-ID and the like.
    pub permissions: u32,
    /// Owner.
    pub uid: u32,
    /// Owner's group.
    pub gid: u32,
    /// Modification time, seconds since 1970.
    pub modified_s: u32,
}

/// What an entry is.
#[derive(Clone, Debug)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A regular file.
    File(Content),
    /// A symbolic link to this target.
    Link(String),
}

/// Where a file's bytes are.
#[derive(Clone, Debug)]
pub enum Content {
    /// Here.
    Bytes(Arc<[u8]>),
    /// In a file of the host, which must not change its size.
    Host {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// Somewhere in an open file.
    Part {
        /// The file.
        file: Arc<File>,
        /// First byte.
        offset: u64,
        /// How many.
        bytes: u64,
    },
}

/// A name that no entry can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It is empty, absolute, has `.` or `..`, a NUL, or is too long.
    #[error("{0:?} is no name for a file of the guest")]
    Form(String),
    /// Links of the tree lead it out of the root, or round in circles.
    #[error("{0:?} leads out of the root")]
    Climbs(String),
    /// A part of the path is there already and is no directory.
    #[error("{name:?} cannot be a directory: it is something else already")]
    NotDirectory {
        /// The part of the path.
        name: String,
    },
}

impl Content {
    /// Its size in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Host { bytes, .. } | Self::Part { bytes, .. } => *bytes,
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Node {
    /// A directory of root's.
    pub fn directory() -> Self {
        Self::of(Kind::Directory, 0o755)
    }

    /// A file of root's with these bytes.
    pub fn bytes(bytes: impl Into<Arc<[u8]>>, permissions: u32) -> Self {
        Self::of(Kind::File(Content::Bytes(bytes.into())), permissions)
    }

    /// A file of root's from the host.
    pub fn host(path: impl Into<PathBuf>, permissions: u32) -> std::io::Result<Self> {
        let path = path.into();
        let bytes = std::fs::metadata(&path)?.len();
        Ok(Self::of(
            Kind::File(Content::Host { path, bytes }),
            permissions,
        ))
    }

    /// A symbolic link of root's.
    pub fn link(target: impl Into<String>) -> Self {
        Self::of(Kind::Link(target.into()), 0o777)
    }

    fn of(kind: Kind, permissions: u32) -> Self {
        Self {
            kind,
            permissions,
            uid: 0,
            gid: 0,
            modified_s: 0,
        }
    }
}

impl Tree {
    /// An empty tree.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds or replaces an entry; directories above it are made. A directory
    /// that replaces one keeps what is in it.
    pub fn insert(&mut self, name: &str, node: Node) -> Result<(), NameError> {
        check(name)?;
        for (at, _) in name.match_indices('/') {
            let parent = &name[..at];
            match self.entries.get(parent) {
                None => {
                    self.entries.insert(parent.to_owned(), Node::directory());
                }
                Some(node) if matches!(node.kind, Kind::Directory) => {}
                Some(_) => {
                    return Err(NameError::NotDirectory {
                        name: parent.to_owned(),
                    });
                }
            }
        }
        let is_directory = matches!(node.kind, Kind::Directory);
        let was = self.entries.insert(name.to_owned(), node);
        if !is_directory && was.is_some_and(|was| matches!(was.kind, Kind::Directory)) {
            self.remove_below(name);
        }
        Ok(())
    }

    /// Where an entry of that name lies when the links above it are followed, as
    /// seen from the root. The last part is not followed.
    pub fn through_links(&self, name: &str) -> Result<String, NameError> {
        let climbs = || NameError::Climbs(name.to_owned());
        let mut left: Vec<String> = name.rsplit('/').map(str::to_owned).collect();
        let mut place: Vec<String> = Vec::new();
        let mut followed = 0;
        while let Some(part) = left.pop() {
            match part.as_str() {
                "" | "." => continue,
                ".." => drop(place.pop().ok_or_else(climbs)?),
                _ => place.push(part),
            }
            if left.is_empty() {
                break;
            }
            let Some(Kind::Link(target)) = self.get(&place.join("/")).map(|node| &node.kind) else {
                continue;
            };
            followed += 1;
            if followed > MAX_LINKS || left.len() > NAME_MAX {
                return Err(climbs());
            }
            match target.starts_with('/') {
                true => place.clear(),
                false => drop(place.pop()),
            }
            left.extend(target.rsplit('/').map(str::to_owned));
        }
        Ok(place.join("/"))
    }

    /// The entry of that name.
    pub fn get(&self, name: &str) -> Option<&Node> {
        self.entries.get(name)
    }

    /// Removes an entry and what is below it.
    pub fn remove(&mut self, name: &str) {
        self.entries.remove(name);
        self.remove_below(name);
    }

    /// Removes what is in a directory; everything for the empty name.
    pub fn remove_below(&mut self, name: &str) {
        if name.is_empty() {
            return self.entries.clear();
        }
        let prefix = format!("{name}/");
        self.entries.retain(|entry, _| !entry.starts_with(&prefix));
    }

    /// Adds another tree's entries, which win.
    pub fn merge(&mut self, other: Self) -> Result<(), NameError> {
        for (name, node) in other.entries {
            self.insert(&name, node)?;
        }
        Ok(())
    }

    /// Every entry by name; directories before what is in them.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.entries
            .iter()
            .map(|(name, node)| (name.as_str(), node))
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

fn check(name: &str) -> Result<(), NameError> {
    let bad = |part: &str| matches!(part, "" | "." | "..");
    if name.len() > NAME_MAX || name.contains('\0') || name.split('/').any(bad) {
        return Err(NameError::Form(name.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn names(tree: &Tree) -> Vec<&str> {
        tree.entries().map(|(name, _)| name).collect()
    }

    fn file() -> Node {
        Node::bytes(*b"x", 0o644)
    }

    #[test]
    fn directories_come_before_what_is_in_them() {
        let mut tree = Tree::new();
        for name in ["a/b/c", "a-b", "a.txt"] {
            tree.insert(name, file()).unwrap();
        }
        assert_eq!(names(&tree), ["a", "a-b", "a.txt", "a/b", "a/b/c"]);
    }

    #[test]
    fn names_that_climb_are_refused() {
        let mut tree = Tree::new();
        for name in ["", "/etc", "../x", "a/../b", "a//b", "a/", "./a", "a\0"] {
            let refused = tree.insert(name, file());
            assert_eq!(refused, Err(NameError::Form(name.to_owned())));
        }
    }

    #[test]
    fn nothing_lies_below_a_file_or_link() {
        let mut tree = Tree::new();
        tree.insert("a", Node::link("/etc")).unwrap();
        assert!(matches!(
            tree.insert("a/passwd", file()),
            Err(NameError::NotDirectory { .. })
        ));
    }

    #[test]
    fn links_are_followed_within_the_root() {
        let mut tree = Tree::new();
        for (name, target) in [
            ("lib", "usr/lib"),
            ("abs", "/usr"),
            ("out", "../.."),
            ("loop", "loop"),
        ] {
            tree.insert(name, Node::link(target)).unwrap();
        }
        let place = |name: &str| tree.through_links(name);
        assert_eq!(place("lib/a/b").as_deref(), Ok("usr/lib/a/b"));
        assert_eq!(place("abs/x").as_deref(), Ok("usr/x"));
        assert_eq!(place("lib").as_deref(), Ok("lib"));
        for climbs in ["out/x", "loop/x", "../x"] {
            assert_eq!(place(climbs), Err(NameError::Climbs(climbs.to_owned())));
        }
    }

    #[test]
    fn a_file_replaces_a_whole_directory() {
        let mut tree = Tree::new();
        tree.insert("a/b", file()).unwrap();
        tree.insert("a", Node::directory()).unwrap();
        assert_eq!(names(&tree), ["a", "a/b"]);
        tree.insert("a", file()).unwrap();
        assert_eq!(names(&tree), ["a"]);
    }
}
