//! The program's files: a tree in memory, from the initramfs.

use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use tare_libos::fs::cpio::{self, Archive};
use tare_libos::sync::SpinLock;
use tare_program::names;
use tare_program::offered::{DIRECTORIES, DeviceFile};

pub(crate) use super::node::{Content, Node, NodeKind};
use super::{Bytes, Device};
use crate::errno::{Errno, Result};

/// Most links that a path goes through.
pub(crate) const MOST_LINKS: usize = 40;
/// Longest name.
const NAME_MAX: usize = 255;
/// Directories of a path for which there is room at once.
const USUAL_DEPTH: usize = 8;

/// Whether a link at a path's end counts as what it points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Last {
    Follow,
    Keep,
}

/// What a path may do above the directory where its walk starts (`resolve` of `openat2(2)`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Above {
    /// Go there.
    #[default]
    Free,
    /// Nothing: EXDEV (`RESOLVE_BENEATH`).
    Refused,
    /// Find that directory again, as if it were the root (`RESOLVE_IN_ROOT`).
    Contained,
}

/// What a walk may do besides (`resolve` of `openat2(2)`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WalkRules {
    pub(crate) above: Above,
    /// A link anywhere is ELOOP (`RESOLVE_NO_SYMLINKS`).
    pub(crate) no_links: bool,
    /// A file system besides the first is EXDEV (`RESOLVE_NO_XDEV`).
    pub(crate) one_file_system: bool,
}

/// Where a path leads.
pub(crate) struct ResolvedPath {
    /// The directories from the root to the one above the last name.
    above: Vec<Arc<Node>>,
    /// What is there.
    found: Option<Arc<Node>>,
    /// The whole path, without links, `.` and `..`.
    pub(crate) path: String,
    /// Where the last name begins in it.
    name_at: usize,
    /// Whether it ends in a slash, or a link at its end does.
    pub(crate) must_be_directory: bool,
}

impl ResolvedPath {
    /// The last name, which need not be there; empty for the root.
    pub(crate) fn name(&self) -> &str {
        self.path.get(self.name_at..).unwrap_or_default()
    }

    /// The directory above the last name, or the root.
    pub(crate) fn above(&self) -> Result<&Arc<Node>> {
        self.above.last().ok_or(Errno::ENOENT)
    }

    /// The directory above and the last name; none for the root.
    pub(crate) fn entry(&self) -> Option<(&Arc<Node>, &str)> {
        let name = self.name();
        let above = self.above.last()?;
        (!name.is_empty()).then_some((above, name))
    }

    /// Whether `node` is a directory above.
    pub(crate) fn is_below(&self, node: &Arc<Node>) -> bool {
        self.above.iter().any(|above| Arc::ptr_eq(above, node))
    }

    /// What is there.
    pub(crate) fn node(&self) -> Result<&Arc<Node>> {
        self.found.as_ref().ok_or(Errno::ENOENT)
    }
}

/// The tree.
pub(crate) struct Tree {
    root: Arc<Node>,
    /// Held by who locks more than one directory: only one does at a time.
    pub(crate) changes: SpinLock<()>,
}

impl Tree {
    /// The files of an archive, and the devices that programs expect.
    pub(crate) fn new(archive: &'static [u8]) -> Self {
        let tree = Self {
            root: Node::directory(),
            changes: SpinLock::new(()),
        };
        // Files with several names; the first name has the content.
        let mut named: BTreeMap<u32, Arc<Node>> = BTreeMap::new();
        for entry in Archive::parse(archive).flatten() {
            let modified_ns = u64::from(entry.modified_s) * 1_000_000_000;
            let kind = match entry.kind {
                cpio::EntryKind::File => {
                    NodeKind::File(Content::Memory(Bytes::archived(entry.data)))
                }
                cpio::EntryKind::Directory => NodeKind::no_names(),
                cpio::EntryKind::Link => match core::str::from_utf8(entry.data) {
                    Ok(target) => NodeKind::link(target),
                    Err(_) => continue,
                },
                cpio::EntryKind::Other => continue,
            };
            if entry.path.is_empty() || is_tares_own(entry.path) {
                continue;
            }
            let earlier = entry.inode.filter(|_| entry.data.is_empty());
            let node = match earlier.and_then(|inode| named.get(&inode)) {
                Some(node) => {
                    node.link();
                    node.clone()
                }
                None => Node::new(kind, entry.permissions, modified_ns),
            };
            if let Some(inode) = entry.inode {
                named.entry(inode).or_insert_with(|| node.clone());
            }
            tree.add(entry.path, node);
        }
        for directory in DIRECTORIES {
            if tree.find(directory, Last::Follow).is_err() {
                let permissions = match directory {
                    // All users' own files: as Linux, each removes only its own.
                    "/tmp" | "/var/tmp" | "/dev/shm" => 0o1777,
                    _ => 0o755,
                };
                tree.add(directory, Node::new(NodeKind::no_names(), permissions, 0));
            }
        }
        for file in DeviceFile::ALL {
            let device = match file {
                DeviceFile::Null => Device::Null,
                DeviceFile::Zero => Device::Zero,
                DeviceFile::Full => Device::Full,
                DeviceFile::Random | DeviceFile::Urandom => Device::Random,
                DeviceFile::Console
                | DeviceFile::Tty
                | DeviceFile::Stdin
                | DeviceFile::Stdout
                | DeviceFile::Stderr => Device::Console,
            };
            let node = Node::new(NodeKind::Device(device), 0o666, 0);
            tree.add(file.value(), node);
        }
        tree
    }

    /// Puts a file with this text at `path`, unless there is one.
    pub(crate) fn provide(&self, path: &str, text: &str) {
        let bytes = Bytes::new(text.as_bytes());
        self.provide_kind(path, NodeKind::File(Content::Memory(bytes)));
    }

    /// The same for a file of another kind.
    pub(crate) fn provide_kind(&self, path: &str, kind: NodeKind) {
        if self.find(path, Last::Follow).is_err() {
            self.add(path, Node::new(kind, 0o444, 0));
        }
    }

    /// Puts a link at `path`.
    pub(crate) fn link(&self, path: &str, target: &str) {
        self.add(path, Node::new(NodeKind::link(target), 0o777, 0));
    }

    /// Puts a volume's top at a path, in place of an empty directory or of nothing.
    ///
    /// # Errors
    /// What is there already, or a file above it.
    pub(crate) fn mount(&self, path: &str, top: Arc<Node>) -> Result<()> {
        let path = path.trim_matches('/');
        match self.find(path, Last::Keep) {
            Ok(there) if !there.names()?.lock().is_empty() => Err(Errno::ENOTEMPTY),
            Ok(_) => self.replace(path, top),
            Err(Errno::ENOENT) => {
                self.add(path, Node::directory());
                self.replace(path, top)
            }
            Err(errno) => Err(errno),
        }
    }

    /// Puts a node where another one is.
    fn replace(&self, path: &str, node: Arc<Node>) -> Result<()> {
        let (above, name) = self.find_above(path, Last::Keep)?;
        if name.is_empty() {
            return Err(Errno::EBUSY);
        }
        above.names()?.lock().insert(name, node);
        Ok(())
    }

    /// Adds a node, with directories above it; a directory keeps what is in it.
    fn add(&self, path: &str, node: Arc<Node>) {
        let mut at = self.root.clone();
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        for part in above.split('/').filter(|part| !part.is_empty()) {
            let Ok(entries) = at.names() else {
                return;
            };
            let next = entries
                .lock()
                .entry(part.into())
                .or_insert_with(Node::directory)
                .clone();
            at = next;
        }
        if let Ok(entries) = at.names() {
            let mut entries = entries.lock();
            let keeps =
                node.is_directory() && entries.get(name).is_some_and(|was| was.is_directory());
            if !keeps {
                entries.insert(name.into(), node);
            }
        }
    }

    /// What is at an absolute path.
    pub(crate) fn find(&self, path: &str, last: Last) -> Result<Arc<Node>> {
        self.walk(path, last)?.found.ok_or(Errno::ENOENT)
    }

    /// The directory above a path's last name, and that name; an empty name for the
    /// root.
    pub(crate) fn find_above(&self, path: &str, last: Last) -> Result<(Arc<Node>, String)> {
        let place = self.walk(path, last)?;
        Ok((place.above()?.clone(), place.name().into()))
    }

    /// Where an absolute path leads.
    pub(crate) fn walk(&self, path: &str, last: Last) -> Result<ResolvedPath> {
        self.walk_on(self.start(path.len()), path, last, WalkRules::default())
    }

    /// Where a path leads from the directory at an absolute path.
    pub(crate) fn walk_by(
        &self,
        rules: WalkRules,
        directory: &str,
        path: &str,
        last: Last,
    ) -> Result<ResolvedPath> {
        let mut start = self.start(directory.len() + path.len());
        let at = self.walk(directory, Last::Follow)?;
        let top = at.node()?.clone();
        if !top.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        if !Arc::ptr_eq(&top, &self.root) {
            (start.above, start.real) = (at.above, at.path);
            start.above.push(top);
        }
        if path.starts_with('/') {
            match rules.above {
                Above::Free => start = self.start(path.len()),
                Above::Refused => return Err(Errno::EXDEV),
                Above::Contained => {}
            }
        }
        self.walk_on(start, path, last, rules)
    }

    /// The root, with room for a path of this length.
    fn start(&self, length: usize) -> Start {
        let mut above = Vec::with_capacity(USUAL_DEPTH);
        above.push(self.root.clone());
        Start {
            above,
            real: String::with_capacity(length + 1),
        }
    }

    fn walk_on(
        &self,
        start: Start,
        path: &str,
        last: Last,
        rules: WalkRules,
    ) -> Result<ResolvedPath> {
        let ends_in_directory = |path: &str| path.ends_with('/') || path.ends_with("/.");
        let mut must_be_directory = ends_in_directory(path);
        let mut links = 0;
        // The directories down to where the walk is, and their path, empty for the root.
        let Start {
            mut above,
            mut real,
        } = start;
        // The directory that counts as the root.
        let (top, top_path) = match rules.above {
            Above::Free => (1, 0),
            Above::Refused | Above::Contained => (above.len(), real.len()),
        };
        let leaves = |from: &Node, to: &Node| rules.one_file_system && !from.is_beside(to);
        // What is still to walk.
        let mut rest = Cow::Borrowed(path);
        let mut at = 0;
        while let Some(range) = next_name(&rest, at) {
            let Some(here) = above.last() else {
                return Err(Errno::ENOENT);
            };
            let name = &rest[range.clone()];
            at = range.end;
            if name == ".." {
                if above.len() == top && rules.above == Above::Refused {
                    return Err(Errno::EXDEV);
                }
                if above.len() > top {
                    let left = above.pop();
                    if left
                        .zip(above.last())
                        .is_some_and(|(from, to)| leaves(&from, to))
                    {
                        return Err(Errno::EXDEV);
                    }
                    real.truncate(real.rfind('/').unwrap_or_default());
                }
                continue;
            }
            if name.len() > NAME_MAX && names::bytes(name).len() > NAME_MAX {
                return Err(Errno::ENAMETOOLONG);
            }
            let found = here.child(name)?;
            if found.as_ref().is_some_and(|found| leaves(here, found)) {
                return Err(Errno::EXDEV);
            }
            let is_last = next_name(&rest, at).is_none();
            match found.as_ref().map(|node| &node.kind) {
                None if !is_last => return Err(Errno::ENOENT),
                Some(NodeKind::Link { target, .. })
                    if !is_last || last == Last::Follow || must_be_directory =>
                {
                    links += 1;
                    if links > MOST_LINKS || rules.no_links {
                        return Err(Errno::ELOOP);
                    }
                    must_be_directory |= is_last && ends_in_directory(target);
                    if target.starts_with('/') {
                        if rules.above == Above::Refused || leaves(here, &above[top - 1]) {
                            return Err(Errno::EXDEV);
                        }
                        above.truncate(top);
                        real.truncate(top_path);
                    }
                    rest = Cow::Owned(format!("{target}/{}", &rest[at..]));
                    at = 0;
                }
                Some(NodeKind::Directory(_)) => {
                    add_name(&mut real, name);
                    above.extend(found);
                }
                Some(_) if !is_last || must_be_directory => return Err(Errno::ENOTDIR),
                _ => {
                    add_name(&mut real, name);
                    return Ok(ResolvedPath {
                        above,
                        found,
                        name_at: real.len() - name.len(),
                        path: real,
                        must_be_directory,
                    });
                }
            }
        }
        // A directory, of which the last name is that of the path so far.
        let found = if above.len() > 1 {
            above.pop()
        } else {
            real.push('/');
            above.first().cloned()
        };
        Ok(ResolvedPath {
            above,
            found,
            name_at: real.rfind('/').map_or(0, |slash| slash + 1),
            path: real,
            must_be_directory,
        })
    }
}

/// Where a walk starts: the directories from the root to there, and their path, empty for the root.
struct Start {
    above: Vec<Arc<Node>>,
    real: String,
}

fn add_name(path: &mut String, name: &str) {
    path.push('/');
    path.push_str(name);
}

/// Where the next name of a path is, from a byte on; `.` is not one.
fn next_name(path: &str, mut from: usize) -> Option<Range<usize>> {
    let bytes = path.as_bytes();
    loop {
        from += bytes.get(from..)?.iter().position(|byte| *byte != b'/')?;
        let rest = &bytes[from..];
        let length = rest.iter().position(|byte| *byte == b'/');
        let end = from + length.unwrap_or(rest.len());
        if &bytes[from..end] != b"." {
            return Some(from..end);
        }
        from = end;
    }
}

/// Whether a path is what `tare run` puts beside a program's files.
fn is_tares_own(path: &str) -> bool {
    let rest = path.strip_prefix(".tare");
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use ::cpio::newc::{Builder, ModeFileType};

    use super::*;

    fn tree() -> Tree {
        let tree = Tree::new(b"");
        tree.provide("a/b/file", "text");
        tree.link("a/link", "b/file");
        tree.link("absolute", "/a/b");
        tree.link("loop", "loop");
        tree.link("slash", "a/b/file/");
        tree
    }

    fn text(tree: &Tree, path: &str) -> Result<String> {
        let node = tree.find(path, Last::Follow)?;
        let mut text = [0; 4];
        let count = node.read(0, &mut text)?;
        Ok(String::from_utf8_lossy(&text[..count]).into_owned())
    }

    #[test]
    fn paths_lead_through_links_and_dots() {
        let tree = tree();
        for path in [
            "/a/b/file",
            "a//b/./file",
            "/a/link",
            "/absolute/file",
            "/a/../a/b/../link",
            "/../a/link",
        ] {
            assert_eq!(text(&tree, path).as_deref(), Ok("text"), "{path}");
        }
        assert_eq!(text(&tree, "/"), Err(Errno::EISDIR));
        assert_eq!(text(&tree, "/absolute"), Err(Errno::EISDIR));
    }

    /// Adds a regular file to an archive.
    fn entry(archive: &mut Vec<u8>, name: &str, inode: u32, links: u32, content: &str) {
        let mut entry = Builder::new(name)
            .mode(0o644)
            .set_mode_file_type(ModeFileType::Regular)
            .ino(inode)
            .nlink(links)
            .write(archive, content.len() as u32);
        entry.write_all(content.as_bytes()).unwrap();
        entry.finish().unwrap();
    }

    #[test]
    fn names_of_one_file_in_an_archive_are_one_file() {
        let mut archive = Vec::new();
        entry(&mut archive, "perl", 7, 3, "text");
        entry(&mut archive, "empty", 8, 1, "");
        entry(&mut archive, "usr/perl5", 7, 3, "");
        entry(&mut archive, "z", 7, 3, "");
        entry(&mut archive, "no-first-name", 9, 2, "");
        let tree = Tree::new(archive.leak());
        let find = |path| tree.find(path, Last::Follow).unwrap();
        for path in ["usr/perl5", "z"] {
            assert_eq!(text(&tree, path).as_deref(), Ok("text"), "{path}");
            assert!(Arc::ptr_eq(&find("perl"), &find(path)));
        }
        for path in ["empty", "no-first-name"] {
            assert_eq!(text(&tree, path).as_deref(), Ok(""), "{path}");
        }
        assert_eq!(
            (
                find("perl").status().unwrap().links,
                find("empty").status().unwrap().links
            ),
            (3, 1)
        );
    }

    /// Where a path leads from `/a` by rules, as its path.
    fn from_a(rules: WalkRules, path: &str) -> Result<String> {
        let tree = tree();
        tree.link("a/up", "../a/b");
        tree.link("a/top", "/b/file");
        let place = tree.walk_by(rules, "/a", path, Last::Follow)?;
        place.node().map(|_| place.path.clone())
    }

    #[test]
    fn a_walk_does_not_leave_the_directory_that_it_is_to_stay_beneath() {
        let rules = WalkRules {
            above: Above::Refused,
            ..WalkRules::default()
        };
        for path in ["b/file", "b/../link", "./b/./../b/file"] {
            assert_eq!(from_a(rules, path).as_deref(), Ok("/a/b/file"), "{path}");
        }
        assert_eq!(from_a(rules, ".").as_deref(), Ok("/a"));
        for path in [
            "..",
            "../a/b/file",
            "b/../../a",
            "/a/b/file",
            "/",
            "up",
            "up/file",
            "top",
        ] {
            assert_eq!(from_a(rules, path), Err(Errno::EXDEV), "{path}");
        }
        assert_eq!(from_a(rules, "missing"), Err(Errno::ENOENT));
    }

    #[test]
    fn a_walk_finds_the_directory_that_counts_as_its_root() {
        let rules = WalkRules {
            above: Above::Contained,
            ..WalkRules::default()
        };
        for path in ["/b/file", "../../b/file", "b/../../link", "top", "/../top"] {
            assert_eq!(from_a(rules, path).as_deref(), Ok("/a/b/file"), "{path}");
        }
        for path in ["/", "..", "b/../.."] {
            assert_eq!(from_a(rules, path).as_deref(), Ok("/a"), "{path}");
        }
        // `/a` of the tree is not in there, nor the root's links.
        for path in ["/a/b/file", "up", "../absolute"] {
            assert_eq!(from_a(rules, path), Err(Errno::ENOENT), "{path}");
        }
    }

    #[test]
    fn a_walk_without_links_meets_none() {
        let rules = WalkRules {
            no_links: true,
            ..WalkRules::default()
        };
        assert_eq!(from_a(rules, "../a/b/file").as_deref(), Ok("/a/b/file"));
        assert_eq!(from_a(rules, "/a/b/file").as_deref(), Ok("/a/b/file"));
        for path in ["link", "up/file", "/absolute/file"] {
            assert_eq!(from_a(rules, path), Err(Errno::ELOOP), "{path}");
        }
        assert_eq!(from_a(WalkRules::default(), "top"), Err(Errno::ENOENT));
        assert_eq!(
            from_a(WalkRules::default(), "up/file").as_deref(),
            Ok("/a/b/file")
        );
    }

    #[test]
    fn what_is_wrong_with_a_path_has_linux_errors() {
        let tree = tree();
        assert_eq!(text(&tree, "/none"), Err(Errno::ENOENT));
        assert_eq!(text(&tree, "/none/file"), Err(Errno::ENOENT));
        assert_eq!(text(&tree, "/a/b/file/x"), Err(Errno::ENOTDIR));
        assert_eq!(text(&tree, "/a/b/file/"), Err(Errno::ENOTDIR));
        assert_eq!(text(&tree, "/loop"), Err(Errno::ELOOP));
        assert_eq!(text(&tree, "/slash"), Err(Errno::ENOTDIR));
        assert_eq!(text(&tree, &"x".repeat(300)), Err(Errno::ENAMETOOLONG));
    }

    #[test]
    fn a_link_itself_can_be_looked_at() {
        let tree = tree();
        let node = tree.find("/a/link", Last::Keep).ok();
        assert!(node.is_some_and(
            |node| matches!(&node.kind, NodeKind::Link { target, .. } if target == "b/file")
        ));
        let (above, name) = tree
            .find_above("/a/new", Last::Follow)
            .expect("a directory");
        assert!(above.is_directory());
        assert_eq!(name, "new");
    }

    #[test]
    fn a_place_is_named_without_links_and_dots() {
        let tree = tree();
        for (path, last, real) in [
            ("/absolute/../link", Last::Follow, "/a/b/file"),
            ("/absolute/../link", Last::Keep, "/a/link"),
            ("absolute", Last::Follow, "/a/b"),
            ("/absolute/..", Last::Follow, "/a"),
            ("/absolute/./new", Last::Follow, "/a/b/new"),
            ("/a/..", Last::Follow, "/"),
            ("/", Last::Keep, "/"),
        ] {
            let place = tree.walk(path, last).map(|place| place.path);
            assert_eq!(place.as_deref(), Ok(real), "{path}");
        }
        let directory = tree.find("/a/b", Last::Keep).expect("a directory");
        let is_below = |path| {
            tree.walk(path, Last::Keep)
                .map(|it| it.is_below(&directory))
        };
        assert_eq!(is_below("/absolute/new"), Ok(true));
        assert_eq!(is_below("/a/b"), Ok(false));
    }
}
