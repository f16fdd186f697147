//! Memory for one frame and its header.

use alloc::boxed::Box;

/// Largest frame: an Ethernet header and 1,500 bytes.
pub(super) const FRAME_MAX: usize = 14 + 1500;
/// A multiple of 64, so that no two buffers share a cache line. The legacy
/// interface wants 1,526 bytes at least (virtio 1.2, 5.1.6.3.1).
const BUFFER_LEN: usize = 1536;

/// A buffer that driver and device hand to each other.
#[repr(align(64))]
pub(super) struct Buffer {
    pub(super) bytes: [u8; BUFFER_LEN],
}

impl Buffer {
    pub(super) fn new() -> Box<Self> {
        Box::new(Self {
            bytes: [0; BUFFER_LEN],
        })
    }
}

/// A received frame in its buffer.
pub(crate) struct ReceivedFrame {
    pub(super) buffer: Box<Buffer>,
    pub(super) start: usize,
    pub(super) end: usize,
}

impl AsRef<[u8]> for ReceivedFrame {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self.buffer.bytes.get(self.start..self.end).unwrap_or(&[])
    }
}
