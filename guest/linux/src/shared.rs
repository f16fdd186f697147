//! Writable shared mappings of files on a volume.
//!
//! A mapping has copies of the file's bytes, as every mapping here. What the program changed
//! in its pages goes to the file at `msync`, `munmap`, `fsync` and the end. Limits: between
//! these, reads of the file do not see it; what is written to the file does not show in pages that
//! are there.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use tare_libos::sync::SpinLock;

use crate::errno::Result;
use crate::files::Bytes;
use crate::files::tree::Node;
use crate::memory::PAGE;
use crate::process::Process;

/// All addresses of a program.
pub(crate) const ALL: Range<u64> = 0..u64::MAX;

/// What was mapped, as the file has it, and the file.
pub(crate) type Mappings = SpinLock<Vec<(Bytes, Arc<Node>)>>;

impl Process {
    /// Notes a mapping of a copy of a file's bytes.
    pub(crate) fn share(&self, bytes: Bytes, node: Arc<Node>) {
        self.shared.lock().push((bytes, node));
    }

    /// Whether there are such mappings.
    pub(crate) fn has_shared(&self) -> bool {
        !self.shared.lock().is_empty()
    }

    /// Writes what was changed in a range to the files.
    pub(crate) fn write_back(&self, range: &Range<u64>) -> Result<()> {
        let mappings = self.shared.lock().clone();
        for (bytes, node) in mappings {
            let mut rest = range.clone();
            // A page at a time: the space is not held while the disk is written.
            loop {
                let changed = self.space.lock().next_changed(&rest, &bytes);
                let Some((at, offset, content)) = changed else {
                    break;
                };
                let length = node.len()?.saturating_sub(offset);
                let count = length.min(content.len() as u64) as usize;
                node.write(offset, &content[..count])?;
                bytes.write(offset, &content)?;
                rest.start = at + PAGE;
            }
        }
        Ok(())
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
