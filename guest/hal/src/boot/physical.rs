//! Reading tables that a loader left in memory, which may lie.

/// Physical memory from which tables are read.
pub trait Physical {
    /// `length` bytes at `address`; `None` if they are not all readable.
    fn bytes(&self, address: u64, length: u64) -> Option<&[u8]>;

    /// The 32-bit little-endian number at `address`.
    fn u32(&self, address: u64) -> Option<u32> {
        self.bytes(address, 4).and_then(|bytes| u32_at(bytes, 0))
    }

    /// The 64-bit little-endian number at `address`.
    fn u64(&self, address: u64) -> Option<u64> {
        self.bytes(address, 8).and_then(|bytes| u64_at(bytes, 0))
    }
}

/// The 16-bit little-endian number at `offset` of `bytes`.
pub fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    let field = bytes.get(offset..)?.first_chunk()?;
    Some(u16::from_le_bytes(*field))
}

/// The 32-bit little-endian number at `offset` of `bytes`.
pub fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    let field = bytes.get(offset..)?.first_chunk()?;
    Some(u32::from_le_bytes(*field))
}

/// The 64-bit little-endian number at `offset` of `bytes`.
pub fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    let field = bytes.get(offset..)?.first_chunk()?;
    Some(u64::from_le_bytes(*field))
}

/// Physical memory of tests: bytes at an address.
#[cfg(test)]
pub(crate) mod fake {
    use super::Physical;

    /// `bytes` at `base`, nothing elsewhere.
    pub(crate) struct Fake {
        /// Address of the first byte.
        pub(crate) base: u64,
        /// What is there.
        pub(crate) bytes: Vec<u8>,
    }

    impl Fake {
        pub(crate) fn put(&mut self, address: u64, bytes: &[u8]) {
            let at = (address - self.base) as usize;
            self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        }
    }

    impl Physical for Fake {
        fn bytes(&self, address: u64, length: u64) -> Option<&[u8]> {
            let start = usize::try_from(address.checked_sub(self.base)?).ok()?;
            let end = start.checked_add(usize::try_from(length).ok()?)?;
            self.bytes.get(start..end)
        }
    }
}
