//! Shared mappings of files.
//!
//! A mapping has copies of the file's bytes, as every mapping here. What a call changes in a
//! file shows in its shared mappings at once. What the program changes in pages of a mapping goes to
//! its file before any call reads or changes that file, and at `msync`, `munmap`, `fsync` and the
//! end; the file's other mappings show it from then on. Limits: until such a call they do not;
//! a byte that a thread changes while another one's call changes it may lose the first change; a
//! mapping that becomes writable by `mprotect` only is private if its file is in memory.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use tare_libos::sync::SpinLock;

use crate::errno::{Errno, Result};
use crate::files::regular::node_of;
use crate::files::tree::Node;
use crate::files::{Bytes, File};
use crate::memory::PAGE;
use crate::process::Process;
use crate::space::{Backing, ChangedPage, SHARED};

/// Bytes that are copied at a time.
const STEP: u64 = 128 * 1024;

/// Most shared mappings that are copies, and files in memory with others: a call on a file looks
/// through them.
const MOST: usize = 1024;

/// All addresses of a program.
pub(crate) const ALL: Range<u64> = 0..u64::MAX;

/// What was mapped, as the file has it, and the file.
pub(crate) type Mappings = SpinLock<Vec<(Bytes, Arc<Node>)>>;

impl Process {
    /// Notes a shared mapping: of a file in memory, or of a copy of one.
    ///
    /// # Errors
    /// ENOMEM: there are too many.
    pub(crate) fn share(&self, bytes: Bytes, node: Arc<Node>) -> Result<()> {
        let mut shared = self.shared.lock();
        if !shared.iter().any(|mapping| mapping.0.is(&bytes)) {
            if shared.len() >= MOST {
                return Err(Errno::ENOMEM);
            }
            shared.push((bytes, node));
        }
        Ok(())
    }

    /// Shared mappings of a file.
    fn mappings(&self, node: &Arc<Node>) -> Vec<(Bytes, Arc<Node>)> {
        let shared = self.shared.lock();
        let mappings = shared
            .iter()
            .filter(|mapping| Arc::ptr_eq(&mapping.1, node));
        mappings.cloned().collect()
    }

    /// Before a call reads or changes a file: what was changed in its mappings comes first.
    pub(crate) fn settle(&self, file: &dyn File) -> Result<()> {
        node_of(file).map_or(Ok(()), |node| self.settle_node(node))
    }

    /// The same of a file that is not open.
    fn settle_node(&self, node: &Arc<Node>) -> Result<()> {
        self.write_file_back(&ALL, &self.mappings(node))
    }

    /// After a call changed a range of a file: its mappings show that.
    pub(crate) fn renew(&self, file: &dyn File, range: Range<u64>) -> Result<()> {
        node_of(file).map_or(Ok(()), |node| {
            self.renew_mappings(&self.mappings(node), &range)
        })
    }

    /// Changes a range of a file; its mappings show that.
    pub(crate) fn change(
        &self,
        node: &Arc<Node>,
        range: Range<u64>,
        act: impl FnOnce(&Node) -> Result<()>,
    ) -> Result<()> {
        self.settle_node(node)?;
        act(node)?;
        node.touch();
        self.renew_mappings(&self.mappings(node), &range)
    }

    /// Changes the length of a file.
    pub(crate) fn set_len(&self, node: &Arc<Node>, length: u64) -> Result<()> {
        self.change(node, length..u64::MAX, |node| node.set_len(length))
    }

    /// Before a mapping at an address grows by `more`, counted from there: a copy gets that part of
    /// its file.
    pub(crate) fn reach(&self, at: u64, more: &Range<u64>) -> Result<()> {
        let found = self.space.lock().file_at(at);
        let Some((bytes, offset)) = found else {
            return Ok(());
        };
        let mappings = self.shared.lock();
        let shared = mappings
            .iter()
            .find(|mapping| mapping.0.is(&bytes))
            .cloned();
        drop(mappings);
        match shared {
            Some((bytes, node)) if is_copy(&bytes, &node) => {
                self.settle_node(&node)?;
                let more = offset.saturating_add(more.start)..offset.saturating_add(more.end);
                copy(&node, &bytes, &more, Zeros::Write)
            }
            _ => Ok(()),
        }
    }

    fn renew_mappings(&self, mappings: &[(Bytes, Arc<Node>)], range: &Range<u64>) -> Result<()> {
        for (bytes, node) in mappings {
            let is_copy = is_copy(bytes, node);
            let mapped = self.space.lock().mapped_part(bytes);
            let range = range.start.max(mapped.start)..range.end.min(mapped.end);
            if is_copy {
                copy(node, bytes, &range, Zeros::Write)?;
            }
            self.space.lock().release_file(bytes, &range, is_copy);
        }
        Ok(())
    }

    /// Whether a shared mapping of a file was made for writing.
    pub(crate) fn is_mapped_for_writing(&self, node: &Arc<Node>) -> bool {
        let shared = self.shared.lock();
        let is_own = |mapping: &&(Bytes, Arc<Node>)| Arc::ptr_eq(&mapping.1, node);
        let mut mappings = shared.iter().filter(is_own);
        mappings.any(|(bytes, node)| is_copy(bytes, node))
    }

    /// Whether what is mapped at an address is shared: a file's bytes or anonymous memory.
    pub(crate) fn is_shared(&self, at: u64) -> bool {
        let space = self.space.lock();
        let Some((_, area)) = space.area_of(at) else {
            return false;
        };
        match &area.backing {
            Backing::Anonymous => area.name == SHARED,
            Backing::File { bytes, .. } => {
                let mappings = self.shared.lock();
                mappings.iter().any(|mapping| mapping.0.is(bytes))
            }
        }
    }

    /// Whether there are such mappings.
    pub(crate) fn has_shared(&self) -> bool {
        !self.shared.lock().is_empty()
    }

    /// Writes what was changed in a range to the files.
    pub(crate) fn write_back(&self, range: &Range<u64>) -> Result<()> {
        let mut mappings = self.shared.lock().clone();
        while let Some((_, node)) = mappings.last() {
            let node = node.clone();
            let of_file = mappings.extract_if(.., |mapping| Arc::ptr_eq(&mapping.1, &node));
            let of_file: Vec<_> = of_file.collect();
            self.write_file_back(range, &of_file)?;
        }
        Ok(())
    }

    /// Writes what was changed in a range of addresses to a file of which these are all mappings.
    fn write_file_back(&self, range: &Range<u64>, mappings: &[(Bytes, Arc<Node>)]) -> Result<()> {
        let Some((_, node)) = mappings.first() else {
            return Ok(());
        };
        let copies = mappings.iter().filter(|(bytes, node)| is_copy(bytes, node));
        let copies: BTreeSet<usize> = copies.map(|(bytes, _)| bytes.key()).collect();
        if copies.is_empty() {
            return Ok(());
        }
        if mappings.len() == 1 {
            return self.write_pages_back(range, node, &copies, |page| {
                node.write(page.offset, &page.now)?;
                page.bytes.write(page.offset, &page.now)?;
                Ok(())
            });
        }
        // Each may have changes in the same page: all go to the file before any mapping shows it.
        let mut changed = Vec::new();
        self.write_pages_back(&ALL, node, &copies, |page| {
            changed.push(page.offset..page.offset + page.now.len() as u64);
            for run in changed_runs(&page.was, &page.now) {
                node.write(page.offset + run.start as u64, &page.now[run])?;
            }
            Ok(())
        })?;
        changed
            .iter()
            .try_for_each(|range| self.renew_mappings(mappings, range))
    }

    /// Calls `write` with each page that differs from what was mapped, as far as the file reaches.
    fn write_pages_back(
        &self,
        range: &Range<u64>,
        node: &Node,
        copies: &BTreeSet<usize>,
        mut write: impl FnMut(&ChangedPage) -> Result<()>,
    ) -> Result<()> {
        let mut rest = range.clone();
        // A page at a time: the space is not held while the disk is written.
        loop {
            let is_copy = |bytes: &Bytes| copies.contains(&bytes.key());
            let changed = self.space.lock().next_changed(&rest, is_copy);
            let Some(mut page) = changed else {
                return Ok(());
            };
            rest.start = page.at + PAGE;
            let length = node.len()?.saturating_sub(page.offset);
            let count = length.min(page.now.len() as u64) as usize;
            page.was.truncate(count);
            page.now.truncate(count);
            write(&page)?;
            node.touch();
        }
    }

    /// Forgets files of which nothing is mapped any more.
    pub(crate) fn forget_unmapped(&self) {
        let space = self.space.lock();
        let mut gone = Vec::new();
        self.shared.lock().retain(|mapping| {
            let is_mapped = space.maps(&mapping.0);
            if !is_mapped {
                gone.push(mapping.clone());
            }
            is_mapped
        });
        // Behind the locks: the last use of a file may be given back with it.
        drop(space);
        drop(gone);
    }
}

/// Whether what is mapped is a copy of the file's bytes, not these themselves.
fn is_copy(bytes: &Bytes, node: &Node) -> bool {
    node.bytes().is_none_or(|own| !own.is(bytes))
}

/// The bytes for a shared mapping of a range that may be written, or of a file on a volume.
///
/// # Errors
/// ENOMEM: there is no memory for them.
pub(crate) fn copy_of(node: &Node, range: &Range<u64>) -> Result<Bytes> {
    let bytes = Bytes::new(&[]);
    copy(node, &bytes, range, Zeros::AreThere)?;
    Ok(bytes)
}

/// What happens with pages of zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Zeros {
    Write,
    /// The copy is new: they take no memory.
    AreThere,
}

/// Brings a range of a file into the copy that is mapped, which gets the file's length.
fn copy(node: &Node, bytes: &Bytes, range: &Range<u64>, zeros: Zeros) -> Result<()> {
    let length = node.len()?;
    bytes.set_len(length)?;
    let end = range.end.min(length);
    let mut at = range.start;
    let mut part = alloc::vec![0; STEP.min(end.saturating_sub(at)) as usize];
    while at < end {
        let count = (end - at).min(STEP) as usize;
        let read = node.read(at, &mut part[..count])?;
        if read == 0 {
            break;
        }
        for (offset, page) in (at..)
            .step_by(PAGE as usize)
            .zip(part[..read].chunks(PAGE as usize))
        {
            let is_there = zeros == Zeros::AreThere && page.iter().all(|byte| *byte == 0);
            if !is_there && bytes.write(offset, page)? < page.len() {
                return Err(Errno::ENOMEM);
            }
        }
        at += read as u64;
    }
    Ok(())
}

/// The parts that differ of two contents of the same length.
fn changed_runs(was: &[u8], now: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    core::iter::from_fn(move || {
        let differs = |at: &usize| was[*at] != now[*at];
        let start = (at..now.len()).find(differs)?;
        at = (start..now.len())
            .find(|at| !differs(at))
            .unwrap_or(now.len());
        Some(start..at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_a_change() {
        let runs = |was: &[u8], now: &[u8]| changed_runs(was, now).collect::<Vec<_>>();
        assert_eq!(runs(b"", b""), []);
        assert_eq!(runs(b"same", b"same"), []);
        assert_eq!(runs(b"abcdef", b"Abc1eF"), [0..1, 3..4, 5..6]);
        assert_eq!(changed_runs(b"abc", b"xyz").next(), Some(0..3));
    }
}
