//! Memory at an address that O_DIRECT takes.

/// Every alignment that O_DIRECT was seen to ask for divides it.
const ALIGN: usize = 4096;

/// Bytes at a multiple of a page.
#[derive(Debug)]
pub(super) struct Aligned {
    bytes: Vec<u8>,
    begin: usize,
    len: usize,
}

impl Aligned {
    /// `len` zeros.
    pub(super) fn zeroed(len: usize) -> Self {
        // Never resized, so that it never moves.
        let bytes = vec![0; len + ALIGN];
        let begin = bytes.as_ptr().align_offset(ALIGN).min(ALIGN);
        Self { bytes, begin, len }
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[self.begin..self.begin + self.len]
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.bytes[self.begin..self.begin + self.len]
    }
}
