//! [`Tree`]: an archive's entries by path.
//!
//! A hash table over the paths: some tens of instructions for each entry when
//! built, and a lookup costs one hash and usually one comparison. Directories
//! that an archive leaves out are made up when something is in them.

use alloc::vec;
use alloc::vec::Vec;

use super::cpio::{self, Archive, ArchiveError, Entry, EntryKind};

/// Index of an archive.
#[derive(Debug)]
pub struct Tree<'a> {
    entries: Vec<Entry<'a>>,
    /// Open addressing, a power of two of slots: index into `entries` plus one.
    slots: Vec<u32>,
    error: Option<ArchiveError>,
}

impl<'a> Tree<'a> {
    /// Indexes `bytes`; of an archive that breaks off, what came before.
    pub fn build(bytes: &'a [u8]) -> Self {
        let mut tree = Self {
            entries: Vec::new(),
            slots: vec![0; 16],
            error: None,
        };
        tree.insert(directory(""));
        for item in Archive::parse(bytes) {
            match item {
                Ok(entry) => tree.add(entry),
                Err(error) => tree.error = Some(error),
            }
        }
        tree
    }

    /// Why the archive broke off, if it did.
    pub fn error(&self) -> Option<ArchiveError> {
        self.error
    }

    /// The entry at `path`.
    pub fn lookup(&self, path: &str) -> Option<&Entry<'a>> {
        let path = cpio::normalize(path)?;
        match self.find(path) {
            Slot::Taken(index) => self.entries.get(index),
            Slot::Free(_) => None,
        }
    }

    /// All entries, the root's first, in no order to rely on.
    pub fn entries(&self) -> &[Entry<'a>] {
        &self.entries
    }

    fn add(&mut self, entry: Entry<'a>) {
        let mut above = parent(entry.path);
        if !self.previous_is_under(above) {
            while !above.is_empty() && self.insert_new(directory(above)) {
                above = parent(above);
            }
        }
        self.insert(entry);
    }

    /// Most entries follow a sibling or their directory: no lookup then.
    fn previous_is_under(&self, directory: &str) -> bool {
        self.entries
            .last()
            .is_some_and(|last| last.path == directory || parent(last.path) == directory)
    }

    fn insert_new(&mut self, entry: Entry<'a>) -> bool {
        match self.find(entry.path) {
            Slot::Taken(_) => false,
            Slot::Free(slot) => {
                self.append(slot, entry);
                true
            }
        }
    }

    /// A later entry of the same path wins, as when unpacking.
    fn insert(&mut self, entry: Entry<'a>) {
        match self.find(entry.path) {
            Slot::Taken(index) => self.entries[index] = entry,
            Slot::Free(slot) => self.append(slot, entry),
        }
    }

    fn append(&mut self, slot: usize, entry: Entry<'a>) {
        self.entries.push(entry);
        self.slots[slot] = self.entries.len() as u32;
        if self.entries.len() * 2 > self.slots.len() {
            self.grow();
        }
    }

    fn grow(&mut self) {
        self.slots = vec![0; self.slots.len() * 4];
        for index in 0..self.entries.len() {
            if let Slot::Free(slot) = self.find(self.entries[index].path) {
                self.slots[slot] = index as u32 + 1;
            }
        }
    }

    fn find(&self, path: &str) -> Slot {
        let mask = self.slots.len() - 1;
        let mut slot = hash(path) as usize & mask;
        loop {
            match self.slots[slot] {
                0 => return Slot::Free(slot),
                found if self.entries[found as usize - 1].path == path => {
                    return Slot::Taken(found as usize - 1);
                }
                _ => slot = (slot + 1) & mask,
            }
        }
    }
}

enum Slot {
    Taken(usize),
    Free(usize),
}

fn directory(path: &str) -> Entry<'_> {
    Entry {
        path,
        data: &[],
        permissions: 0o755,
        kind: EntryKind::Directory,
        modified_s: 0,
        inode: None,
    }
}

/// The directory that holds `path`, which is normalized.
pub(super) fn parent(path: &str) -> &str {
    path.rfind('/').map_or("", |slash| &path[..slash])
}

/// Eight bytes a step, multiplied and folded. The archive is the appliance's
/// own, so collisions are not an attack.
fn hash(path: &str) -> u64 {
    const PRIME: u64 = 0x9e37_79b9_7f4a_7c15;
    let (words, rest) = path.as_bytes().as_chunks::<8>();
    let mut hash = path.len() as u64;
    for word in words {
        hash = (hash ^ u64::from_le_bytes(*word)).wrapping_mul(PRIME);
        hash ^= hash >> 32;
    }
    let last = rest
        .iter()
        .fold(0, |last, byte| (last << 8) | u64::from(*byte));
    hash = (hash ^ last).wrapping_mul(PRIME);
    hash ^ (hash >> 32)
}
