//! [`Root`]: what is served at one time, files and rules together, and [`Loaded`], files that
//! came while the server ran.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use tare_libos::heap;
use tare_site::Table;

use crate::listing::{self, Entries, EntryKind};
use crate::request::Request;
use crate::site::{Files, FindError, Node};
use crate::virtual_host::VirtualHost;

/// Files and rules. A request takes one root for all that it looks up; an answer that is being
/// sent holds its own file and no root.
pub(crate) struct Root {
    /// Counts roots, so that no asset of an earlier one is kept among those of this one.
    pub(crate) generation: u64,
    /// Its files; `None` for those of the platform.
    pub(crate) files: Option<Loaded>,
    /// What hosts get that are not among [`Self::hosts`].
    pub(crate) any: VirtualHost,
    pub(crate) hosts: Box<[VirtualHost]>,
}

impl Root {
    /// The platform's files without rules.
    pub(crate) fn of_platform() -> Self {
        Self {
            generation: 0,
            files: None,
            any: VirtualHost::any(),
            hosts: Box::default(),
        }
    }

    /// Takes the rules of `site`.
    #[cold]
    #[inline(never)]
    pub(crate) fn set_site(&mut self, mut site: Table<'static>) {
        let hosts = core::mem::take(&mut site.hosts).into_iter();
        let named = |host| VirtualHost::named(host, self.generation);
        self.hosts = hosts.map(named).collect();
        self.any.site = Some(Box::new(site));
    }

    /// The host that `request` names.
    pub(crate) fn host(&self, request: &Request<'_>) -> &VirtualHost {
        let mut hosts = self.hosts.iter();
        hosts
            .find(|host| host.is_named_by(request))
            .unwrap_or(&self.any)
    }
}

/// Files in memory, each with its own memory: that of one goes with the last answer that has it.
#[derive(Debug, Default)]
pub struct Loaded {
    /// In ascending order of their paths' bytes.
    nodes: Vec<(Box<str>, Node)>,
    files: u32,
}

/// A file or directory that is not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddError {
    /// Its path does not come after the one before.
    #[error("the paths are not in order")]
    Order,
    /// There is no memory.
    #[error("no memory")]
    NoMemory,
}

impl Loaded {
    /// Adds what is at `path`, which is clean and relative.
    #[cold]
    pub fn add(&mut self, path: &str, node: Node) -> Result<(), AddError> {
        let last = self.nodes.last().map_or("", |(last, _)| &**last);
        if path <= last {
            return Err(AddError::Order);
        }
        let mut name = String::new();
        let reserved = name.try_reserve_exact(path.len());
        if reserved.is_err() || self.nodes.try_reserve(1).is_err() {
            return Err(AddError::NoMemory);
        }
        name.push_str(path);
        self.files += u32::from(matches!(node, Node::File { .. }));
        self.nodes.push((name.into_boxed_str(), node));
        Ok(())
    }

    /// Number of regular files.
    pub fn files(&self) -> u32 {
        self.files
    }
}

impl Files for Loaded {
    fn find(&self, path: &str) -> Result<Option<Node>, FindError> {
        if path.is_empty() {
            return Ok(Some(Node::Directory));
        }
        let found = self.nodes.binary_search_by(|(at, _)| (**at).cmp(path));
        let node = found.ok().and_then(|place| self.nodes.get(place));
        Ok(node.map(|(_, node)| node.clone()))
    }

    #[cold]
    fn list(&self, path: &str) -> Result<Entries, FindError> {
        if !heap::has_room(listing::MOST_MEMORY as usize) {
            return Err(FindError::NoMemory);
        }
        let mut entries = Entries::default();
        for (at, node) in &self.nodes {
            let (parent, name) = at.rsplit_once('/').unwrap_or(("", at));
            if parent != path {
                continue;
            }
            match node {
                Node::Directory => entries.add(name, EntryKind::Directory, 0),
                Node::File { bytes, .. } => entries.add(name, EntryKind::File, bytes.len() as u64),
            }
        }
        Ok(entries)
    }
}

#[cfg(test)]
mod tests {
    use tare_libos::fs::Content;

    use super::*;

    fn file(bytes: &'static [u8]) -> Node {
        let bytes = Content::archived(bytes);
        Node::File {
            bytes,
            modified_s: 5,
        }
    }

    fn loaded() -> Loaded {
        let mut loaded = Loaded::default();
        for (path, node) in [
            ("a", Node::Directory),
            ("a-b", file(b"minus")),
            ("a/b", file(b"slash")),
            ("a/c", Node::Directory),
            ("index.html", file(b"home")),
        ] {
            loaded.add(path, node).unwrap();
        }
        loaded
    }

    #[test]
    fn files_are_found_by_their_whole_path() {
        let loaded = loaded();
        let is_file = |path: &str, content: &[u8]| match loaded.find(path).unwrap() {
            Some(Node::File { bytes, modified_s }) => bytes == content && modified_s == 5,
            _ => false,
        };
        assert!(is_file("a-b", b"minus") && is_file("a/b", b"slash"));
        assert!(is_file("index.html", b"home"));
        assert_eq!(loaded.modified_s("a/b"), Some(5));
        for directory in ["", "a", "a/c"] {
            let found = loaded.find(directory).unwrap();
            assert!(matches!(found, Some(Node::Directory)), "{directory}");
            assert_eq!(loaded.modified_s(directory), None);
        }
        for nothing in ["b", "a/", "a/b/c", "index", "index.html/"] {
            assert!(loaded.find(nothing).unwrap().is_none(), "{nothing}");
        }
        assert_eq!(loaded.files(), 3);
    }

    #[test]
    fn a_directory_lists_what_is_in_it_and_nothing_below() {
        let loaded = loaded();
        let names = |path: &str| {
            let entries = loaded.list(path).unwrap();
            let names = entries.some.into_iter().map(|entry| entry.name);
            names.collect::<Vec<_>>()
        };
        assert_eq!(names(""), ["a", "a-b", "index.html"]);
        assert_eq!(names("a"), ["b", "c"]);
        assert!(names("a/c").is_empty());
    }

    #[test]
    fn paths_out_of_order_and_twice_are_refused() {
        for path in ["", "a", "index.html"] {
            let added = loaded().add(path, Node::Directory);
            assert_eq!(added, Err(AddError::Order), "{path}");
        }
    }
}
