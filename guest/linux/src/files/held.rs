//! [`Held`]: what an open file or directory has of the tree.

use alloc::string::String;
use alloc::sync::Arc;

use tare_libos::sync::SpinLock;

use super::inotify;
use super::node::Node;

/// A node that is open, and where it was found.
pub(crate) struct Held {
    pub(crate) node: Arc<Node>,
    /// As it was opened, absolute and without links.
    pub(crate) path: String,
    name: SpinLock<Name>,
}

/// The name by which a node was opened, which follows when it is renamed.
#[derive(Clone, Default)]
struct Name {
    /// The directory that it is in; none for the root and for what has no name.
    directory: Option<Arc<Node>>,
    /// Unless it is the last of the path.
    changed: Option<String>,
    /// It was removed. Events of the open file still have it.
    is_removed: bool,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.node.close();
        inotify::notify_gone(&self.node);
    }
}

impl Held {
    pub(crate) fn new(node: Arc<Node>, path: String, directory: Option<Arc<Node>>) -> Self {
        node.open();
        let name = Name {
            directory,
            ..Name::default()
        };
        Self {
            node,
            path,
            name: SpinLock::new(name),
        }
    }

    /// The same, to be open a second time.
    pub(crate) fn again(&self) -> Self {
        self.node.open();
        Self {
            node: self.node.clone(),
            path: self.path.clone(),
            name: SpinLock::new(self.name.lock().clone()),
        }
    }

    /// Its name now.
    fn name(&self) -> Name {
        self.name.lock().clone()
    }

    /// Its directory and name; none where it has no name.
    fn entry<'a>(&'a self, name: &'a Name) -> Option<(&'a Arc<Node>, &'a str)> {
        let opened = || self.path.rsplit('/').next().unwrap_or_default();
        let last = name.changed.as_deref().unwrap_or_else(opened);
        let directory = name.directory.as_ref()?;
        (!last.is_empty()).then_some((directory, last))
    }

    /// Reports a use of the file to its watches and those of its directory.
    pub(crate) fn notify(&self, event: u32) {
        self.report(event, |name| name.is_removed.then_some(inotify::Removed));
    }

    /// Reports a change of length, times, permissions or owner. `IN_EXCL_UNLINK` does not leave it
    /// out: Linux reports it by the name, not by the open file (`fsnotify_change`).
    pub(crate) fn notify_change(&self, event: u32) {
        self.report(event, |_| None);
    }

    fn report(&self, event: u32, removed: impl FnOnce(&Name) -> Option<inotify::Removed>) {
        // The name is a copy, which costs more than the test.
        if inotify::is_watching() {
            let name = self.name();
            inotify::notify_child(&self.node, self.entry(&name), event, removed(&name));
        }
    }

    /// Notes that a name of the node went: to another, or it was removed.
    pub(crate) fn follow(&self, from: (&Arc<Node>, &str), to: Option<(&Arc<Node>, &str)>) {
        let mut name = self.name.lock();
        let is_own = self
            .entry(&name)
            .is_some_and(|(directory, last)| Arc::ptr_eq(directory, from.0) && last == from.1);
        if !is_own || name.is_removed {
            return;
        }
        match to {
            Some((directory, last)) => {
                name.directory = Some(directory.clone());
                name.changed = Some(last.into());
            }
            None => name.is_removed = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::borrow::ToOwned;

    use super::super::Bytes;
    use super::*;

    #[test]
    fn a_name_follows_its_file_until_it_is_removed() {
        let (here, there) = (Node::directory(), Node::directory());
        let node = Node::file(Bytes::new(&[]), 0o644);
        let held = Held::new(node.clone(), "/here/file".to_owned(), Some(here.clone()));
        let again = held.again();
        let last = |held: &Held| {
            let name = held.name();
            let (directory, last) = held.entry(&name).unwrap();
            (Arc::ptr_eq(directory, &there), last.to_owned())
        };
        held.follow((&there, "file"), None);
        held.follow((&here, "other"), None);
        assert_eq!(last(&held), (false, "file".into()));
        held.follow((&here, "file"), Some((&there, "new")));
        assert_eq!(last(&held), (true, "new".into()));
        assert_eq!(last(&held.again()), (true, "new".into()));
        assert_eq!(last(&again), (false, "file".into()));
        held.follow((&there, "new"), None);
        assert!(held.name().is_removed);
        held.follow((&there, "new"), Some((&here, "another's")));
        assert_eq!(last(&held), (true, "new".into()));
        assert!(node.is_open());
        drop((held, again));
        assert!(!node.is_open());
    }

    #[test]
    fn the_root_and_files_without_a_directory_have_no_name() {
        let root = Node::directory();
        for (path, directory) in [("/", Some(root.clone())), ("/memfd:x (deleted)", None)] {
            let held = Held::new(root.clone(), path.to_owned(), directory);
            assert!(held.entry(&held.name()).is_none(), "{path}");
        }
    }
}
