//! The first root of a server that can get another one: its archive's memory goes with the last
//! file of it that is in use, as that of each later root does ([`crate::reload`]).
//!
//! Only such a server pays for that, with a record for each file ([`ENTRY_BYTES`]).

use alloc::vec::Vec;
use core::ops::Range;

use tare_libos::fs::cpio::{Entry, EntryKind};
use tare_libos::fs::{Region, Tree};
use tare_libos::heap;
use tare_site::reload::ENTRY_BYTES;

use crate::root::{AddError, Loaded};
use crate::site::Node;

/// An archive's files.
#[derive(Debug, Default)]
pub struct FirstRoot {
    /// Those that are served.
    pub files: Loaded,
    /// A copy of the site's table, which is not served.
    pub table: Option<Vec<u8>>,
}

impl FirstRoot {
    /// The files in `archive`, of which `table` is the site's table.
    #[cold]
    pub fn of(archive: &Region, table: Option<&str>) -> Result<Self, AddError> {
        let tree = Tree::build(archive);
        // The root's own entry has no path.
        let named = tree.entries().iter().filter(|it| !it.path.is_empty());
        let mut entries: Vec<&Entry<'_>> = named.collect();
        if !heap::has_room(entries.len().saturating_mul(ENTRY_BYTES as usize)) {
            return Err(AddError::NoMemory);
        }
        entries.sort_unstable_by_key(|entry| entry.path);
        let mut first = Self::default();
        for entry in entries {
            if Some(entry.path) == table && entry.kind == EntryKind::File {
                first.table = Some(entry.data.to_vec());
            } else if let Some(node) = node(archive, entry) {
                first.files.add(entry.path, node)?;
            }
        }
        Ok(first)
    }
}

/// What is served of an entry; links and devices are not, as in an initramfs.
fn node(archive: &Region, entry: &Entry<'_>) -> Option<Node> {
    match entry.kind {
        EntryKind::Directory => Some(Node::Directory),
        EntryKind::File => Some(Node::File {
            bytes: archive.content(range(archive, entry.data))?,
            modified_s: entry.modified_s.into(),
        }),
        EntryKind::Link | EntryKind::Other => None,
    }
}

/// Where `data` is in `archive`; an empty one need not be in it.
fn range(archive: &Region, data: &[u8]) -> Range<usize> {
    match data.len() {
        0 => 0..0,
        len => {
            let start = data.as_ptr().addr() - archive.as_ptr().addr();
            start..start + len
        }
    }
}
