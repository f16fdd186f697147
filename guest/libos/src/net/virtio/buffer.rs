//! Memory for one frame and its header.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

/// Largest frame: an Ethernet header and 1,500 bytes.
pub(super) const FRAME_MAX: usize = 14 + 1500;
/// A multiple of 64, so that no two buffers share a cache line. The legacy
/// interface wants 1,526 bytes at least (virtio 1.2, 5.1.6.3.1).
pub(super) const BUFFER_LEN: usize = 1536;

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

/// Most payload of a segment that the device cuts: what a server answers a pipeline of requests
/// with, often. More of it would only lie in longer buffers.
pub(super) const TOGETHER: u16 = 16 << 10;
/// Longest frame with such a segment, with the headers of frame, packet and segment.
pub(super) const LONG_MAX: usize = TOGETHER as usize + 128;

/// Memory for a frame of `len` bytes that is sent, and for its header.
pub(super) fn to_send(len: usize) -> Box<[u8]> {
    const LONG: usize = LONG_MAX + 64;
    let bytes = if len > FRAME_MAX { LONG } else { BUFFER_LEN };
    vec![0; bytes].into()
}

/// Whether that is more than a frame that is not cut takes.
#[inline]
pub(super) fn is_long(buffer: &[u8]) -> bool {
    buffer.len() > BUFFER_LEN
}

/// A received frame in its buffer.
pub(crate) struct ReceivedFrame {
    pub(super) held: Held,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// What a received frame is in.
pub(super) enum Held {
    /// The device's buffer.
    One(Box<Buffer>),
    /// A copy of what was in several.
    Merged(Vec<u8>),
}

impl AsRef<[u8]> for ReceivedFrame {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        let bytes: &[u8] = match &self.held {
            Held::One(buffer) => &buffer.bytes,
            Held::Merged(bytes) => bytes,
        };
        bytes.get(self.start..self.end).unwrap_or(&[])
    }
}
