//! An item: its answer, ready to be sent, and its places in index and list.

use alloc::vec::Vec;

use crate::number::Digits;

/// No item.
pub(super) const NIL: u32 = u32::MAX;
/// What an item takes beside its bytes: this struct, a bucket of the index, the
/// allocator's own words.
pub const OVERHEAD: usize = size_of::<Item>() + 4 + 12;
/// Items are allocated in multiples of this many bytes, so that a value that is
/// nearly as long fits where the one before was.
const GRAIN: usize = 16;

const BEGIN: &[u8] = b"VALUE ";
const END: &[u8] = b"\r\n";

/// One item, or a free slot.
#[derive(Debug)]
pub(super) struct Item {
    /// `VALUE key flags length\r\nvalue\r\n`.
    bytes: Vec<u8>,
    pub(super) cas: u64,
    pub(super) hash: u32,
    /// The next item of the bucket, or the next free slot.
    pub(super) chain: u32,
    pub(super) newer: u32,
    pub(super) older: u32,
    /// Seconds since 1970; 0 for never.
    pub(super) expires_s: u32,
    /// Where the value begins.
    value_at: u16,
    key_len: u8,
    /// [`FETCHED`], [`STALE`] and [`WON`].
    pub(super) state: u8,
}

/// The item was requested since it was stored.
pub(super) const FETCHED: u8 = 1;
/// The item was invalidated.
pub(super) const STALE: u8 = 2;
/// A client was asked to make the item anew.
pub(super) const WON: u8 = 4;

/// There is no memory for the item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoMemory;

/// What an item of that many bytes counts for.
pub(super) fn cost(len: usize) -> usize {
    len.next_multiple_of(GRAIN) + OVERHEAD
}

/// What an item's bytes are made from.
#[derive(Clone, Copy)]
pub(super) struct Parts<'a> {
    pub(super) key: &'a [u8],
    /// The flags' digits.
    pub(super) flags: &'a [u8],
    /// The value, in two pieces.
    pub(super) value: [&'a [u8]; 2],
}

impl Parts<'_> {
    fn value_len(&self) -> usize {
        self.value[0].len() + self.value[1].len()
    }

    /// Length of the bytes as a whole.
    pub(super) fn len(&self) -> usize {
        let digits = Digits::of(self.value_len() as u64).as_bytes().len();
        let head = BEGIN.len() + self.key.len() + 1 + self.flags.len() + 1 + digits + END.len();
        head + self.value_len() + END.len()
    }
}

impl Item {
    pub(super) const fn free(next: u32) -> Self {
        Self {
            bytes: Vec::new(),
            cas: 0,
            hash: 0,
            chain: next,
            newer: NIL,
            older: NIL,
            expires_s: 0,
            value_at: 0,
            key_len: 0,
            state: 0,
        }
    }

    /// What the item counts for.
    pub(super) fn cost(&self) -> usize {
        cost(self.bytes.len())
    }

    pub(super) fn key(&self) -> &[u8] {
        &self.bytes[BEGIN.len()..][..usize::from(self.key_len)]
    }

    pub(super) fn has_key(&self, key: &[u8]) -> bool {
        self.key() == key
    }

    pub(super) fn value(&self) -> &[u8] {
        &self.bytes[usize::from(self.value_at)..self.bytes.len() - END.len()]
    }

    /// The flags' digits.
    pub(super) fn flags(&self) -> &[u8] {
        let flags = &self.bytes[BEGIN.len() + usize::from(self.key_len) + 1..];
        let end = flags.iter().position(|byte| *byte == b' ');
        &flags[..end.unwrap_or(0)]
    }

    /// The answer to `get`.
    pub(super) fn plain(&self) -> &[u8] {
        &self.bytes
    }

    /// The answer to `gets`, but for the number between: head and the rest.
    pub(super) fn around_cas(&self) -> (&[u8], &[u8]) {
        self.bytes.split_at(usize::from(self.value_at) - END.len())
    }

    /// Writes over a value of the same length.
    pub(super) fn value_mut(&mut self) -> &mut [u8] {
        let end = self.bytes.len() - END.len();
        &mut self.bytes[usize::from(self.value_at)..end]
    }

    /// Whether bytes of that length fit where the present ones are.
    pub(super) fn fits(&self, len: usize) -> bool {
        cost(len) == self.cost()
    }

    /// Takes the bytes of `parts`, which must fit.
    pub(super) fn rewrite(&mut self, parts: &Parts<'_>) {
        self.bytes.clear();
        self.value_at = fill(&mut self.bytes, parts);
        self.key_len = parts.key.len() as u8;
    }

    /// Takes other bytes.
    pub(super) fn put(&mut self, written: Written) {
        self.bytes = written.bytes;
        self.value_at = written.value_at;
        self.key_len = written.key_len;
    }
}

/// Bytes that are not in an item yet.
pub(super) struct Written {
    bytes: Vec<u8>,
    value_at: u16,
    key_len: u8,
}

/// Puts `parts` of length `len` together.
pub(super) fn write(parts: &Parts<'_>, len: usize) -> Result<Written, NoMemory> {
    let mut bytes = Vec::new();
    bytes
        .try_reserve_exact(len.next_multiple_of(GRAIN))
        .map_err(|_| NoMemory)?;
    let value_at = fill(&mut bytes, parts);
    Ok(Written {
        bytes,
        value_at,
        key_len: parts.key.len() as u8,
    })
}

/// Appends the parts in order; returns where the value begins.
fn fill(bytes: &mut Vec<u8>, parts: &Parts<'_>) -> u16 {
    bytes.extend_from_slice(BEGIN);
    bytes.extend_from_slice(parts.key);
    bytes.push(b' ');
    bytes.extend_from_slice(parts.flags);
    bytes.push(b' ');
    bytes.extend_from_slice(Digits::of(parts.value_len() as u64).as_bytes());
    bytes.extend_from_slice(END);
    let value_at = bytes.len() as u16;
    bytes.extend_from_slice(parts.value[0]);
    bytes.extend_from_slice(parts.value[1]);
    bytes.extend_from_slice(END);
    value_at
}
