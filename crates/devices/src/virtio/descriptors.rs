//! The descriptors of a chain whose head is known, read from the table (virtio 1.2, 2.7.5).

use virtio_queue::desc::split::Descriptor;
use vm_memory::{Bytes, GuestAddress};

use crate::GuestRam;

/// The descriptors of a chain, from its head. Ends early at an invalid one; [`super::Chain`] then
/// sees that the last one still has NEXT set.
pub(super) struct Descriptors<'a> {
    memory: &'a GuestRam,
    table: u64,
    len: u16,
    next: Option<u16>,
    left: u16,
    depth: Depth,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    Direct,
    Indirect,
}

impl<'a> Descriptors<'a> {
    pub(super) fn new(memory: &'a GuestRam, table: u64, len: u16, head: u16) -> Self {
        Self {
            memory,
            table,
            len,
            next: Some(head),
            left: len,
            depth: Depth::Direct,
        }
    }

    /// Continues in the table that `descriptor` points to (2.7.5.3).
    fn enter(&mut self, descriptor: Descriptor) -> Option<()> {
        let entries = u16::try_from(descriptor.len() / 16).ok()?;
        if self.depth == Depth::Indirect || !descriptor.len().is_multiple_of(16) || entries == 0 {
            return None;
        }
        (self.table, self.len) = (descriptor.addr().0, entries);
        (self.next, self.left) = (Some(0), entries);
        self.depth = Depth::Indirect;
        Some(())
    }

    fn read(&mut self) -> Option<Descriptor> {
        let index = self.next.take().filter(|index| *index < self.len)?;
        self.left = self.left.checked_sub(1)?;
        let address = self.table.checked_add(16 * u64::from(index))?;
        self.memory.read_obj(GuestAddress(address)).ok()
    }
}

impl Iterator for Descriptors<'_> {
    type Item = Descriptor;

    fn next(&mut self) -> Option<Descriptor> {
        let mut descriptor = self.read()?;
        if descriptor.refers_to_indirect_table() {
            self.enter(descriptor)?;
            descriptor = self.read()?;
            if descriptor.refers_to_indirect_table() {
                return None;
            }
        }
        self.next = descriptor.has_next().then(|| descriptor.next());
        Some(descriptor)
    }
}
