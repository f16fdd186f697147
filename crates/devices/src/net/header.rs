//! `struct virtio_net_hdr_v1` (virtio 1.2, 5.1.6): twelve bytes before each
//! frame in the guest's buffers, and on a tap with `IFF_VNET_HDR`.

/// Bytes of the header.
pub const HEADER_LEN: usize = 12;

/// `flags`: checksum the bytes from `csum_start`, store at `csum_offset`.
pub const FLAG_NEEDS_CSUM: u8 = 1;
/// `flags`: the checksum is known to be right.
pub const FLAG_DATA_VALID: u8 = 2;
/// `gso_type`: not segmented.
pub const GSO_NONE: u8 = 0;
/// `gso_type`: TCP over IPv4.
pub const GSO_TCPV4: u8 = 1;
/// `gso_type`: TCP over IPv6.
pub const GSO_TCPV6: u8 = 4;
/// Bit in `gso_type`: TCP with ECN.
pub(crate) const GSO_ECN: u8 = 0x80;

/// The header's fields, host byte order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetHeader {
    /// [`FLAG_NEEDS_CSUM`], [`FLAG_DATA_VALID`].
    pub flags: u8,
    /// One of the `GSO_` values.
    pub gso_type: u8,
    /// Bytes of headers to copy to each segment.
    pub hdr_len: u16,
    /// Payload bytes of a segment.
    pub gso_size: u16,
    /// Where the checksummed bytes begin, from the frame's start.
    pub csum_start: u16,
    /// Where the checksum is stored, from `csum_start`.
    pub csum_offset: u16,
    /// Receive with merged buffers: buffers used; 1 otherwise.
    pub num_buffers: u16,
}

impl NetHeader {
    /// Reads the header from its wire form.
    pub fn from_bytes(bytes: &[u8; HEADER_LEN]) -> Self {
        let word = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        Self {
            flags: bytes[0],
            gso_type: bytes[1],
            hdr_len: word(2),
            gso_size: word(4),
            csum_start: word(6),
            csum_offset: word(8),
            num_buffers: word(10),
        }
    }

    /// The header's wire form.
    pub fn to_bytes(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[0] = self.flags;
        bytes[1] = self.gso_type;
        let words = [
            self.hdr_len,
            self.gso_size,
            self.csum_start,
            self.csum_offset,
            self.num_buffers,
        ];
        for (chunk, word) in bytes[2..].chunks_exact_mut(2).zip(words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Whether the checksum is still to be completed.
    pub fn needs_csum(&self) -> bool {
        self.flags & FLAG_NEEDS_CSUM != 0
    }
}
