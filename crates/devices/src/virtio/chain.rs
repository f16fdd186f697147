//! A descriptor chain, checked as a whole before a byte of it is used
//! (virtio 1.2, 2.7.4 to 2.7.5).

use virtio_queue::desc::split::Descriptor;
use vm_memory::{Bytes, GuestAddress, GuestMemory, Permissions};

use super::QueueError;
use crate::GuestRam;

/// One non-empty buffer within guest memory (checked).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Where it begins.
    pub address: GuestAddress,
    /// Bytes.
    pub len: usize,
}

/// Buffers of one chain: those that the device reads, then those that it writes. Reused for the
/// next chain, so that queue work allocates nothing.
#[derive(Debug, Default)]
pub struct Chain {
    head: u16,
    readable: Vec<Span>,
    writable: Vec<Span>,
    readable_len: usize,
    writable_len: usize,
}

impl Chain {
    /// Index of the first descriptor, by which the chain is completed.
    pub fn head(&self) -> u16 {
        self.head
    }

    /// Bytes that the device may read.
    pub(crate) fn readable_len(&self) -> usize {
        self.readable_len
    }

    /// Bytes that the device may write.
    pub(crate) fn writable_len(&self) -> usize {
        self.writable_len
    }

    /// Buffers that the device may read.
    pub fn readable(&self) -> &[Span] {
        &self.readable
    }

    /// Buffers that the device may write.
    pub fn writable(&self) -> &[Span] {
        &self.writable
    }

    /// Copies from the readable bytes at `offset`; `data` must fit.
    pub fn read(
        &self,
        memory: &GuestRam,
        offset: usize,
        data: &mut [u8],
    ) -> Result<(), QueueError> {
        copy_from(&self.readable, memory, offset, data)
    }

    /// Copies to the writable bytes at `offset`; `data` must fit.
    pub fn write(&self, memory: &GuestRam, offset: usize, data: &[u8]) -> Result<(), QueueError> {
        copy_to(&self.writable, memory, offset, data)
    }

    /// Parses the chain. `limit` is the queue's size, which also bounds an indirect table
    /// (2.7.5.3.1).
    pub(super) fn load(
        &mut self,
        head: u16,
        descriptors: impl Iterator<Item = Descriptor>,
        limit: u16,
        memory: &GuestRam,
    ) -> Result<(), QueueError> {
        self.clear(head);
        let mut open = true;
        for (count, descriptor) in descriptors.enumerate() {
            if count >= usize::from(limit) {
                return Err(QueueError::TooLong);
            }
            self.push(descriptor, memory)?;
            open = descriptor.has_next();
        }
        // The iterator ends silently at a loop, at an index out of range and at an unreadable
        // table: then the last descriptor still has NEXT set.
        if open {
            Err(QueueError::Broken)
        } else {
            Ok(())
        }
    }

    fn clear(&mut self, head: u16) {
        self.head = head;
        self.readable.clear();
        self.writable.clear();
        self.readable_len = 0;
        self.writable_len = 0;
    }

    fn push(&mut self, descriptor: Descriptor, memory: &GuestRam) -> Result<(), QueueError> {
        let len = descriptor.len() as usize;
        let span = Span {
            address: descriptor.addr(),
            len,
        };
        if len == 0 {
            return Ok(());
        }
        if descriptor.is_write_only() {
            check(memory, span, Permissions::Write)?;
            self.writable.push(span);
            self.writable_len += len;
            return Ok(());
        }
        if !self.writable.is_empty() {
            return Err(QueueError::Direction);
        }
        check(memory, span, Permissions::Read)?;
        self.readable.push(span);
        self.readable_len += len;
        Ok(())
    }
}

fn check(memory: &GuestRam, span: Span, access: Permissions) -> Result<(), QueueError> {
    if GuestMemory::check_range(memory, span.address, span.len, access) {
        Ok(())
    } else {
        Err(QueueError::OutsideMemory)
    }
}

/// Copies the bytes at `offset` of `spans`; `data` must fit.
pub(crate) fn copy_from(
    spans: &[Span],
    memory: &GuestRam,
    offset: usize,
    data: &mut [u8],
) -> Result<(), QueueError> {
    let mut done = 0;
    for span in pieces(spans, offset, data.len()) {
        let part = &mut data[done..done + span.len];
        memory.read_slice(part, span.address)?;
        done += span.len;
    }
    (done == data.len())
        .then_some(())
        .ok_or(QueueError::TooShort)
}

/// Copies to the bytes at `offset` of `spans`; `data` must fit.
pub(crate) fn copy_to(
    spans: &[Span],
    memory: &GuestRam,
    offset: usize,
    data: &[u8],
) -> Result<(), QueueError> {
    let mut done = 0;
    for span in pieces(spans, offset, data.len()) {
        let part = &data[done..done + span.len];
        memory.write_slice(part, span.address)?;
        done += span.len;
    }
    (done == data.len())
        .then_some(())
        .ok_or(QueueError::TooShort)
}

/// The parts of `spans` that hold `len` bytes from `offset`.
fn pieces(spans: &[Span], offset: usize, len: usize) -> impl Iterator<Item = Span> {
    let mut skip = offset;
    let mut left = len;
    spans.iter().filter_map(move |span| {
        let skipped = skip.min(span.len);
        skip -= skipped;
        let take = left.min(span.len - skipped);
        left -= take;
        // Cannot overflow: the span lies in guest memory.
        let address = GuestAddress(span.address.0.wrapping_add(skipped as u64));
        (take > 0).then_some(Span { address, len: take })
    })
}
