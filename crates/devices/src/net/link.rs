//! The other end of a network device, as the monitor implements it: a stream
//! socket (passt) or a tap.

use super::header::NetHeader;

/// What a link can do. Fixed for the life of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkFeatures {
    /// Longest Ethernet frame in bytes that the link takes or gives, without
    /// the virtio header: MTU + 14, or 65,550 with segmentation offload.
    pub max_frame: usize,
    /// Where checksums and segmentation are done.
    pub offload: LinkOffload,
}

/// Which work on frames a link does for the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkOffload {
    /// Plain frames with complete checksums in both directions; what is
    /// received may be damaged on the way.
    None,
    /// Plain frames with complete checksums in both directions; received frames
    /// never crossed a wire, so that their checksums need no second look
    /// (passt: a local socket). The device marks them as valid.
    TrustedRx,
    /// Frames carry a virtio header both ways (tap with `IFF_VNET_HDR`): the
    /// link takes partial checksums and TCP segments up to 64 KiB, and gives
    /// them when [`Link::set_offload`] allowed it.
    VnetHeader,
}

/// What the driver accepts in received frames, as negotiated
/// (tap: `TUNSETOFFLOAD`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxOffload {
    /// Partial checksums (`TUN_F_CSUM`); the other two need it.
    pub csum: bool,
    /// TCP segmentation over IPv4 (`TUN_F_TSO4`).
    pub tso4: bool,
    /// TCP segmentation over IPv6 (`TUN_F_TSO6`).
    pub tso6: bool,
}

/// A received frame in the link's own buffer.
#[derive(Debug)]
pub struct RxFrame<'a> {
    /// Offload state; `NetHeader::default()` for a plain frame.
    pub header: NetHeader,
    /// The Ethernet frame.
    pub bytes: &'a mut [u8],
}

/// Why a link failed.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The peer has gone. The device reports link down to the guest and stops
    /// using the link.
    #[error("link closed by its peer")]
    Closed,
    /// Another failure, treated like [`LinkError::Closed`].
    #[error("link input or output failed")]
    Io(#[from] std::io::Error),
}

/// The other end of a network device.
///
/// Called on the I/O thread only, under the device's mutex. No call blocks.
/// Each frame is copied once between the link's buffer and guest memory, and
/// the link is free to move many frames by one system call.
pub trait Link: Send {
    /// What the link can do.
    fn features(&self) -> LinkFeatures;

    /// A driver begins, and accepts these offloads: called before the first frame after each start.
    /// Segments and partial checksums are for [`LinkOffload::VnetHeader`] alone.
    fn set_offload(&mut self, accepted: RxOffload) -> Result<(), LinkError> {
        let _ = accepted;
        Ok(())
    }

    /// The oldest frame not yet consumed, reading from the descriptor when
    /// none is buffered; `None` when there is none now. The same frame is
    /// returned until [`Link::consume`].
    fn peek(&mut self) -> Result<Option<RxFrame<'_>>, LinkError>;

    /// Drops the frame last returned by [`Link::peek`].
    fn consume(&mut self);

    /// Room for one frame of `len` bytes (at most `max_frame`, never 0), or `None` if the link
    /// takes no more now: the device then keeps the frame in the guest's queue until the link is
    /// writable. Room that is not committed is reused.
    fn reserve(&mut self, len: usize) -> Result<Option<&mut [u8]>, LinkError>;

    /// Sends the frame that was written to the room last reserved. The link
    /// may keep it until [`Link::flush`]. `header` is the default unless the
    /// link has [`LinkOffload::VnetHeader`].
    fn commit(&mut self, header: &NetHeader) -> Result<(), LinkError>;

    /// Ends a batch: passes committed frames to the kernel, as far as it takes them. Also called
    /// when the descriptor became writable.
    fn flush(&mut self) -> Result<(), LinkError>;

    /// Whether committed frames still wait for a writable descriptor.
    fn has_unsent(&self) -> bool;

    /// Whether the descriptor is a set of others (epoll(7)). A set is readable when any of them is
    /// ready, also for output, and never writable.
    fn is_set(&self) -> bool {
        false
    }

    /// The descriptor is ready: [`Link::peek`] and [`Link::flush`] may look at what is behind it.
    /// One of the two takes what made a set ready, or the set would stay so.
    fn ready(&mut self) {}

    /// Whether frames for the guest have come by another way than the descriptor: as answers to
    /// what was committed, or by time.
    fn has_frames(&self) -> bool {
        false
    }

    /// When to look for such frames without an event (`CLOCK_MONOTONIC`, ns), if ever.
    fn deadline_ns(&self) -> Option<u64> {
        None
    }
}
