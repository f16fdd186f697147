//! The files of a guest, before they become an archive or a disk.
//!
//! Names are relative (`etc/passwd`), without `.` and `..`, and texts of
//! [`tare_program::names`]; every entry's directory is in the tree, before it. Names that are
//! hard links to one file share a [`LinkGroup`].

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tare_program::names;

use crate::capability::FileCapability;
use crate::host_file::HostFile;
use crate::left_out::LeftOut;
use crate::lookups::Lookups;
use crate::quote::quoted;

/// Longest path in bytes (Linux's `PATH_MAX` less its NUL).
pub const PATH_MAX: usize = 4095;
/// Longest component of a path in bytes (Linux's `NAME_MAX`).
pub const NAME_MAX: usize = 255;

/// Type of a regular file in a mode (`include/uapi/linux/stat.h`).
pub(crate) const S_IFREG: u32 = 0o100_000;

/// Most symbolic links followed for one name (Linux's `MAXSYMLINKS`).
const MAX_LINKS: u32 = 40;

/// Files, directories and links by name.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    entries: BTreeMap<String, Node>,
    /// Number of link groups handed out.
    link_groups: u32,
    /// Length of all names together.
    name_bytes: u64,
}

/// One entry.
#[derive(Clone, Debug)]
pub struct Node {
    /// What it is.
    pub kind: EntryKind,
    /// Permission bits, with set-user-ID and the like.
    pub permissions: u32,
    /// Owner.
    pub uid: u32,
    /// Owner's group.
    pub gid: u32,
    /// Modification time, seconds since 1970.
    pub modified_s: u32,
    /// The hard links that this entry is one of; only files have them.
    pub links: Option<LinkGroup>,
    /// What whoever runs it may do; only files have it.
    pub capability: Option<FileCapability>,
}

/// Names in one tree that are hard links to one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkGroup(u32);

impl LinkGroup {
    /// Which of the tree's.
    pub(crate) fn number(self) -> u32 {
        self.0
    }
}

/// What an entry is.
#[derive(Clone, Debug)]
pub enum EntryKind {
    /// A directory.
    Directory,
    /// A regular file.
    File(Content),
    /// A symbolic link to this target.
    Link(String),
    /// A named pipe.
    Pipe,
}

/// Where a file's bytes are.
#[derive(Clone, Debug)]
pub enum Content {
    /// Here.
    Bytes(Arc<[u8]>),
    /// In a file of the host, which must not change.
    Host(HostFile),
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

/// A name that a tree cannot hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It is empty, absolute, or contains `.`, `..` or a NUL.
    #[error("invalid file name {}: must be relative, without \".\", \"..\" and NUL", quoted(.0))]
    Form(String),
    /// It is longer than Linux allows.
    #[error(
        "file name {} is too long: {} bytes (limits: {PATH_MAX} bytes, {NAME_MAX} per component)",
        quoted(.0), .0.len()
    )]
    TooLong(String),
    /// Symbolic links lead it out of the root, or form a loop.
    #[error("{} leads out of the root directory or through a loop of links", quoted(.0))]
    Climbs(String),
    /// A component of the path exists and is not a directory.
    #[error(
        "{} is not a directory, but another file's path goes through it",
        quoted(name)
    )]
    NotDirectory {
        /// The component, with what leads to it.
        name: String,
    },
    /// The target of a hard link is missing or not a file.
    #[error("{} cannot be hard-linked: not a file of this root", quoted(.0))]
    LinkTarget(String),
    /// Resolving paths has used up its budget.
    #[error("resolving paths takes too many steps")]
    TooManySteps,
}

impl Content {
    /// Its size in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Host(file) => file.len(),
            Self::Part { bytes, .. } => *bytes,
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
        Self::of(EntryKind::Directory, 0o755)
    }

    /// A file of root's with these bytes.
    pub fn bytes(bytes: impl Into<Arc<[u8]>>, permissions: u32) -> Self {
        Self::of(EntryKind::File(Content::Bytes(bytes.into())), permissions)
    }

    /// A file of root's from the host.
    pub fn host(path: impl Into<PathBuf>, permissions: u32) -> std::io::Result<Self> {
        let file = HostFile::named(path.into())?;
        Ok(Self::of(EntryKind::File(Content::Host(file)), permissions))
    }

    /// A file of root's from the host that every user there may read; None for any other. For names
    /// that another user chose.
    pub fn public(path: &Path) -> Option<Self> {
        let (file, permissions) = HostFile::public(path)?;
        Some(Self::of(EntryKind::File(Content::Host(file)), permissions))
    }

    /// A symbolic link of root's, to a target in text.
    pub fn link(target: impl Into<String>) -> Self {
        Self::of(EntryKind::Link(target.into()), 0o777)
    }

    /// A symbolic link of root's to any path of Linux's.
    pub fn link_to(target: impl Into<Vec<u8>>) -> Self {
        Self::link(names::text(target.into()))
    }

    /// The first `bytes` of an open file, as a file of root's.
    pub fn open_file(file: File, bytes: u64, permissions: u32) -> Self {
        let part = Content::Part {
            file: Arc::new(file),
            offset: 0,
            bytes,
        };
        Self::of(EntryKind::File(part), permissions)
    }

    /// Type and permissions, as `st_mode` has them (`include/uapi/linux/stat.h`).
    pub(crate) fn mode(&self) -> u32 {
        let kind = match self.kind {
            EntryKind::Pipe => 0o010_000,
            EntryKind::Directory => 0o040_000,
            EntryKind::File(_) => S_IFREG,
            EntryKind::Link(_) => 0o120_000,
        };
        kind | self.permissions & 0o7777
    }

    fn of(kind: EntryKind, permissions: u32) -> Self {
        Self {
            kind,
            permissions,
            uid: 0,
            gid: 0,
            modified_s: 0,
            links: None,
            capability: None,
        }
    }
}

impl Tree {
    /// An empty tree.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds or replaces an entry and creates missing directories above it. A
    /// directory that replaces a directory keeps what is in it.
    pub fn insert(&mut self, name: &str, node: Node) -> Result<(), NameError> {
        check(name)?;
        for (at, _) in name.match_indices('/') {
            let parent = &name[..at];
            match self.entries.get(parent) {
                None => self.put(parent, Node::directory()),
                Some(node) if matches!(node.kind, EntryKind::Directory) => {}
                Some(_) => {
                    return Err(NameError::NotDirectory {
                        name: parent.to_owned(),
                    });
                }
            }
        }
        let was_directory = self
            .get(name)
            .is_some_and(|was| matches!(was.kind, EntryKind::Directory));
        if was_directory && !matches!(node.kind, EntryKind::Directory) {
            self.remove_below(name);
        }
        self.put(name, node);
        Ok(())
    }

    fn put(&mut self, name: &str, node: Node) {
        if self.entries.insert(name.to_owned(), node).is_none() {
            self.name_bytes += name.len() as u64;
        }
    }

    /// Adds `name` as a hard link to the file `target`. A symbolic link or pipe is copied.
    pub(crate) fn hard_link(&mut self, target: &str, name: &str) -> Result<(), NameError> {
        let missing = || NameError::LinkTarget(target.to_owned());
        let next = LinkGroup(self.link_groups);
        let node = self.entries.get_mut(target).ok_or_else(missing)?;
        match node.kind {
            EntryKind::Directory => return Err(missing()),
            EntryKind::Link(_) | EntryKind::Pipe => {}
            EntryKind::File(_) if node.links.is_some() => {}
            EntryKind::File(_) => {
                node.links = Some(next);
                self.link_groups += 1;
            }
        }
        let node = node.clone();
        self.insert(name, node)
    }

    /// The place of an entry after following the links above it, as seen from the
    /// root. The last component is not followed.
    pub(crate) fn through_links(&self, name: &str) -> Result<String, NameError> {
        self.resolve(name, &mut Lookups::unlimited())
    }

    /// The place of an entry after following all links, its own included.
    pub fn through_all_links(&self, name: &str) -> Result<String, NameError> {
        // Nothing but a directory has ".", so the last component is followed.
        self.through_links(&format!("{name}/."))
    }

    /// As [`Tree::through_links`], within a budget.
    pub(crate) fn resolve(&self, name: &str, lookups: &mut Lookups) -> Result<String, NameError> {
        check_length(name)?;
        let climbs = || NameError::Climbs(name.to_owned());
        let mut left: Vec<&str> = name.rsplit('/').collect();
        let mut place = String::new();
        let mut followed = 0;
        while let Some(part) = left.pop() {
            match part {
                "" | "." => continue,
                ".." if place.is_empty() => return Err(climbs()),
                ".." => parent(&mut place),
                part => push(&mut place, part),
            }
            if left.is_empty() {
                break;
            }
            lookups.charge(place.len())?;
            let Some(EntryKind::Link(target)) = self.get(&place).map(|node| &node.kind) else {
                continue;
            };
            followed += 1;
            if followed > MAX_LINKS || left.len() > PATH_MAX {
                return Err(climbs());
            }
            if target.starts_with('/') {
                place.clear();
            } else {
                parent(&mut place);
            }
            left.extend(target.rsplit('/'));
        }
        Ok(place)
    }

    /// The entry of that name.
    pub fn get(&self, name: &str) -> Option<&Node> {
        self.entries.get(name)
    }

    /// Removes an entry and everything below it.
    pub fn remove(&mut self, name: &str) {
        self.take(name);
        self.remove_below(name);
    }

    /// Removes named pipes, which the library OS does not have; gives a warning for each,
    /// within a bound.
    pub fn remove_pipes(&mut self) -> Vec<String> {
        let is_pipe = |node: &Node| matches!(node.kind, EntryKind::Pipe);
        let pipes = self.entries().filter(|(_, node)| is_pipe(node));
        let pipes: Vec<String> = pipes.map(|(name, _)| name.to_owned()).collect();
        let mut left_out = LeftOut::default();
        for name in pipes {
            left_out.add(&name, "it is a named pipe");
            self.take(&name);
        }
        left_out.into_warnings()
    }

    /// Removes everything in a directory; the whole tree for the empty name.
    pub(crate) fn remove_below(&mut self, name: &str) {
        if name.is_empty() {
            self.entries.clear();
            self.name_bytes = 0;
            return;
        }
        // The character after "/" is "0": between the two lies what is below.
        let (first, end) = (format!("{name}/"), format!("{name}0"));
        let range = (Bound::Excluded(first), Bound::Excluded(end));
        let below: Vec<String> = self
            .entries
            .range(range)
            .map(|(it, _)| it.clone())
            .collect();
        for entry in below {
            self.take(&entry);
        }
    }

    fn take(&mut self, name: &str) {
        if self.entries.remove(name).is_some() {
            self.name_bytes -= name.len() as u64;
        }
    }

    /// Adds another tree's entries; they replace entries of the same name.
    pub fn merge(&mut self, other: Self) -> Result<(), NameError> {
        let offset = self.link_groups;
        self.link_groups += other.link_groups;
        for (name, mut node) in other.entries {
            node.links = node.links.map(|LinkGroup(id)| LinkGroup(id + offset));
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

    /// Length of all names together.
    pub(crate) fn name_bytes(&self) -> u64 {
        self.name_bytes
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

fn push(place: &mut String, part: &str) {
    if !place.is_empty() {
        place.push('/');
    }
    place.push_str(part);
}

fn parent(place: &mut String) {
    place.truncate(place.rfind('/').unwrap_or(0));
}

fn check(name: &str) -> Result<(), NameError> {
    check_length(name)?;
    let bad = |part: &str| matches!(part, "" | "." | "..");
    if name.contains('\0') || name.split('/').any(bad) {
        return Err(NameError::Form(name.to_owned()));
    }
    Ok(())
}

/// Refuses what Linux would refuse, before any work is done for it.
pub(crate) fn check_length(name: &str) -> Result<(), NameError> {
    let bytes = names::bytes(name);
    let mut parts = bytes.split(|byte| *byte == b'/');
    if bytes.len() > PATH_MAX || parts.any(|part| part.len() > NAME_MAX) {
        return Err(NameError::TooLong(name.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
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
    fn a_name_is_as_long_as_its_bytes() {
        let check = |bytes: &[u8]| check_length(&tare_program::names::text(bytes.to_vec()));
        assert!(check(&[0xff; NAME_MAX]).is_ok());
        assert!(check(&[0xff; NAME_MAX + 1]).is_err());
        let path = [&[0xff; NAME_MAX][..], b"/"].concat().repeat(16);
        assert!(check(&path[..PATH_MAX]).is_ok());
        assert!(check(&path).is_err());
    }

    #[test]
    fn pipes_are_removed_with_a_warning() {
        let mut tree = Tree::new();
        tree.insert("a", file()).unwrap();
        tree.insert("b/pipe", Node::of(EntryKind::Pipe, 0o600))
            .unwrap();
        let warnings = tree.remove_pipes();
        assert_eq!(warnings, ["b/pipe is left out: it is a named pipe"]);
        assert_eq!(names(&tree), ["a", "b"]);
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

    #[test]
    fn names_longer_than_linux_allows_are_refused_at_once() {
        let mut tree = Tree::new();
        for name in ["x".repeat(NAME_MAX + 1), "a/".repeat(100_000) + "a"] {
            assert_eq!(
                tree.insert(&name, file()),
                Err(NameError::TooLong(name.clone()))
            );
            assert_eq!(
                tree.through_links(&name),
                Err(NameError::TooLong(name.clone()))
            );
            assert!(NameError::TooLong(name).to_string().len() < 400);
        }
        assert!(tree.insert(&"x".repeat(NAME_MAX), file()).is_ok());
    }

    #[test]
    fn a_directory_goes_with_what_is_in_it_and_nothing_else() {
        let mut tree = Tree::new();
        for name in ["a/b/c", "a-b", "a0", "a.txt", "ab/c"] {
            tree.insert(name, file()).unwrap();
        }
        tree.remove("a");
        assert_eq!(names(&tree), ["a-b", "a.txt", "a0", "ab", "ab/c"]);
        assert_eq!(tree.name_bytes(), 3 + 5 + 2 + 2 + 4);
    }

    #[test]
    fn hard_links_are_one_file_and_stay_apart_after_a_merge() {
        let linked = || {
            let mut tree = Tree::new();
            tree.insert("a", file()).unwrap();
            tree.hard_link("a", "b").unwrap();
            tree.hard_link("b", "c").unwrap();
            tree
        };
        let group = |tree: &Tree, name: &str| tree.get(name).unwrap().links.unwrap();
        let mut tree = linked();
        assert_eq!(group(&tree, "a"), group(&tree, "c"));
        let mut other = Tree::new();
        for (name, node) in linked()
            .entries
            .into_iter()
            .map(|(n, it)| (format!("x{n}"), it))
        {
            other.insert(&name, node).unwrap();
        }
        other.link_groups = 1;
        tree.merge(other).unwrap();
        assert_eq!(group(&tree, "xa"), group(&tree, "xb"));
        assert_ne!(group(&tree, "a"), group(&tree, "xa"));
        tree.insert("d", Node::directory()).unwrap();
        for target in ["d", "none"] {
            let refused = tree.hard_link(target, "e");
            assert_eq!(refused, Err(NameError::LinkTarget(target.to_owned())));
        }
    }
}
