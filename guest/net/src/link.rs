//! [`Link`]: what the stack needs of a network device, and the two links that
//! are not devices: [`Loopback`] and [`Absent`].

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use super::frame::{Checksums, Medium};
use crate::memory::Memory;

/// Who computes the checksums of TCP and UDP in outgoing frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendChecksums {
    /// The stack.
    Software,
    /// The device, or they are not needed.
    Device,
}

/// What a link is like; it does not change.
#[derive(Clone, Copy, Debug)]
pub struct Properties {
    /// Where frames begin.
    pub medium: Medium,
    /// Hardware address; meaningless without Ethernet.
    pub mac: [u8; 6],
    /// Largest IP packet in bytes.
    pub mtu: u16,
    /// Who computes checksums.
    pub checksums: SendChecksums,
    /// Most payload of a TCP segment that the device cuts into segments ([`Link::send`]); 0 if it
    /// cuts none.
    pub together: u16,
}

/// A received frame in a buffer of the link's.
#[derive(Debug)]
pub struct Received<B> {
    /// Holds the frame; its `as_ref` is the frame alone.
    pub buffer: B,
    /// Whether its checksums still have to be verified.
    pub checksums: Checksums,
}

/// A network device. None of its functions waits.
pub trait Link {
    /// Owns a received frame; goes back with [`Link::recycle`].
    type Buffer: AsRef<[u8]>;

    /// What the link is like.
    fn properties(&self) -> Properties;

    /// The next received frame.
    fn receive(&mut self) -> Option<Received<Self::Buffer>>;

    /// Gives a buffer back for further frames.
    fn recycle(&mut self, buffer: Self::Buffer);

    /// Whether a frame can be sent now. If not, the link wakes the network
    /// thread (as for a received frame) when that changes.
    fn send_ready(&mut self) -> bool;

    /// How many frames can be sent now, one after the other.
    fn send_room(&mut self) -> usize {
        if self.send_ready() { usize::MAX } else { 0 }
    }

    /// Most frames that [`Link::send_room`] can give.
    fn send_room_max(&self) -> usize {
        usize::MAX
    }

    /// Sends a frame of `len` bytes that `fill` writes: of a TCP segment that the device cuts, with
    /// `cut` bytes of payload in each part, or as it is if `cut` is 0. When the link is not ready,
    /// the frame is filled and lost.
    fn send<R>(&mut self, len: usize, cut: u16, fill: impl FnOnce(&mut [u8]) -> R) -> R;

    /// Tells the device about what was sent since the last call, if it wants to know.
    fn flush(&mut self);
}

/// No device: nothing comes and nothing goes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Absent;

impl Link for Absent {
    type Buffer = [u8; 0];

    fn properties(&self) -> Properties {
        Properties {
            medium: Medium::Ethernet,
            mac: [2, 0, 0, 0, 0, 1],
            mtu: 1500,
            checksums: SendChecksums::Device,
            together: 0,
        }
    }

    fn receive(&mut self) -> Option<Received<[u8; 0]>> {
        None
    }

    fn recycle(&mut self, _buffer: [u8; 0]) {}

    fn send_ready(&mut self) -> bool {
        true
    }

    fn send<R>(&mut self, len: usize, _cut: u16, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        fill(&mut vec![0; len])
    }

    fn flush(&mut self) {}
}

/// Frames that may wait on the loopback; more are lost, as on a real wire.
const LOOPBACK_FRAMES: usize = 256;

/// Largest packet on the loopback.
const LOOPBACK_MTU: u16 = 16 * 1024;

/// 127.0.0.1 and the appliance's own address.
#[derive(Debug)]
pub struct Loopback {
    frames: VecDeque<Vec<u8>>,
    memory: Memory,
    /// What is filled in place of a frame that there is no memory for.
    lost: Box<[u8]>,
}

impl Loopback {
    /// An empty one, whose frames come from `memory`.
    pub fn new(memory: Memory) -> Self {
        Self {
            frames: VecDeque::new(),
            memory,
            lost: vec![0; usize::from(LOOPBACK_MTU)].into(),
        }
    }

    /// Whether a frame waits.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Memory for a frame, if there is some.
    #[inline(never)] // once in the image, and not with each kind of frame
    fn frame(&mut self, len: usize) -> Option<Vec<u8>> {
        let mut frame = Vec::new();
        let has_room = self.send_ready()
            && (self.memory.has_room)(len)
            && frame.try_reserve_exact(len).is_ok()
            && self.frames.try_reserve(1).is_ok();
        frame.resize(if has_room { len } else { 0 }, 0);
        has_room.then_some(frame)
    }
}

impl Link for Loopback {
    type Buffer = Vec<u8>;

    fn properties(&self) -> Properties {
        Properties {
            medium: Medium::Ip,
            mac: [0; 6],
            mtu: LOOPBACK_MTU,
            checksums: SendChecksums::Device,
            together: 0,
        }
    }

    fn receive(&mut self) -> Option<Received<Vec<u8>>> {
        self.frames.pop_front().map(|buffer| Received {
            buffer,
            checksums: Checksums::Trusted,
        })
    }

    fn recycle(&mut self, _buffer: Vec<u8>) {}

    fn send_ready(&mut self) -> bool {
        self.frames.len() < LOOPBACK_FRAMES
    }

    fn send<R>(&mut self, len: usize, _cut: u16, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        let Some(mut frame) = self.frame(len) else {
            return fill(&mut self.lost[..len]);
        };
        let result = fill(&mut frame);
        self.frames.push_back(frame);
        result
    }

    fn flush(&mut self) {}
}
