//! Shared mappings of files.
//!
//! A mapping has copies of the file's bytes, as every mapping here. What a call changes in a
//! file shows in its shared mappings at once. What the program changes in pages of a mapping goes to
//! a file on a volume before any call reads or changes that file, and at `msync`, `munmap`,
//! `fsync` and the end. Limits: two mappings of one file show each other's changes after such a
//! call only; a page that a thread changes while another one's call changes the same page of the file may
//! lose the first change; writable shared mappings of files in memory are private.

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

/// Bytes that are copied at a time.
const STEP: u64 = 128 * 1024;

/// All addresses of a program.
pub(crate) const ALL: Range<u64> = 0..u64::MAX;

/// What was mapped, as the file has it, and the file.
pub(crate) type Mappings = SpinLock<Vec<(Bytes, Arc<Node>)>>;

impl Process {
    /// Notes a shared mapping: of a file in memory, or of a copy of one on a volume.
    pub(crate) fn share(&self, bytes: Bytes, node: Arc<Node>) {
        let mut shared = self.shared.lock();
        if !shared.iter().any(|mapping| mapping.0.is(&bytes)) {
            shared.push((bytes, node));
        }
    }

    /// Shared mappings of a file.
    fn mappings(&self, file: &dyn File) -> Vec<(Bytes, Arc<Node>)> {
        let Some(node) = node_of(file) else {
            return Vec::new();
        };
        let shared = self.shared.lock();
        let mappings = shared
            .iter()
            .filter(|mapping| Arc::ptr_eq(&mapping.1, node));
        mappings.cloned().collect()
    }

    /// Before a call reads or changes a file: what was changed in its mappings comes first.
    pub(crate) fn settle(&self, file: &dyn File) -> Result<()> {
        let mappings = self.mappings(file);
        mappings
            .iter()
            .try_for_each(|mapping| self.write_mapping_back(&ALL, mapping))
    }

    /// After a call changed a range of a file: its mappings show that.
    pub(crate) fn renew(&self, file: &dyn File, range: Range<u64>) -> Result<()> {
        for (bytes, node) in self.mappings(file) {
            let is_copy = node.stored().is_some();
            let mapped = self.space.lock().mapped_part(&bytes);
            let range = range.start.max(mapped.start)..range.end.min(mapped.end);
            if is_copy {
                copy(&node, &bytes, &range)?;
            }
            self.space.lock().release_file(&bytes, &range, is_copy);
        }
        Ok(())
    }

    /// Whether there are such mappings.
    pub(crate) fn has_shared(&self) -> bool {
        !self.shared.lock().is_empty()
    }

    /// Writes what was changed in a range to the files.
    pub(crate) fn write_back(&self, range: &Range<u64>) -> Result<()> {
        let mappings = self.shared.lock().clone();
        mappings
            .iter()
            .try_for_each(|mapping| self.write_mapping_back(range, mapping))
    }

    fn write_mapping_back(
        &self,
        range: &Range<u64>,
        (bytes, node): &(Bytes, Arc<Node>),
    ) -> Result<()> {
        if node.stored().is_none() {
            return Ok(());
        }
        let mut rest = range.clone();
        // A page at a time: the space is not held while the disk is written.
        loop {
            let changed = self.space.lock().next_changed(&rest, bytes);
            let Some((at, offset, content)) = changed else {
                return Ok(());
            };
            let length = node.len()?.saturating_sub(offset);
            let count = length.min(content.len() as u64) as usize;
            node.write(offset, &content[..count])?;
            bytes.write(offset, &content)?;
            rest.start = at + PAGE;
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

/// Brings a range of a file into the copy that is mapped, which gets the file's length.
fn copy(node: &Node, bytes: &Bytes, range: &Range<u64>) -> Result<()> {
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
        if bytes.write(at, &part[..read])? < read {
            return Err(Errno::ENOMEM);
        }
        at += read as u64;
    }
    Ok(())
}
