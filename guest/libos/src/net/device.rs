//! [`Device`]: the appliance's network device, or none.

use tare_net::link::{Absent, Link, Properties, Received};

use super::virtio::{ReceivedFrame, VirtioNet};

/// The device of the one stack.
pub(crate) enum Device {
    /// There is none.
    Absent(Absent),
    /// virtio-net.
    Virtio(alloc::boxed::Box<VirtioNet>),
}

/// A received frame's buffer.
pub(crate) enum Buffer {
    Absent([u8; 0]),
    Virtio(ReceivedFrame),
}

impl AsRef<[u8]> for Buffer {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Absent(buffer) => buffer,
            Self::Virtio(buffer) => buffer.as_ref(),
        }
    }
}

impl Device {
    /// No device.
    pub(crate) fn absent() -> Self {
        Self::Absent(Absent)
    }
}

impl Link for Device {
    type Buffer = Buffer;

    fn properties(&self) -> Properties {
        match self {
            Self::Absent(link) => link.properties(),
            Self::Virtio(link) => link.properties(),
        }
    }

    #[inline]
    fn receive(&mut self) -> Option<Received<Buffer>> {
        match self {
            Self::Absent(link) => link.receive().map(|frame| Received {
                buffer: Buffer::Absent(frame.buffer),
                checksums: frame.checksums,
            }),
            Self::Virtio(link) => link.receive().map(|frame| Received {
                buffer: Buffer::Virtio(frame.buffer),
                checksums: frame.checksums,
            }),
        }
    }

    #[inline]
    fn recycle(&mut self, buffer: Buffer) {
        if let (Self::Virtio(link), Buffer::Virtio(buffer)) = (self, buffer) {
            link.recycle(buffer);
        }
    }

    #[inline]
    fn send_ready(&mut self) -> bool {
        match self {
            Self::Absent(link) => link.send_ready(),
            Self::Virtio(link) => link.send_ready(),
        }
    }

    fn send_room(&mut self) -> usize {
        match self {
            Self::Absent(link) => link.send_room(),
            Self::Virtio(link) => link.send_room(),
        }
    }

    fn send_room_max(&self) -> usize {
        match self {
            Self::Absent(link) => link.send_room_max(),
            Self::Virtio(link) => link.send_room_max(),
        }
    }

    #[inline]
    fn send<R>(&mut self, len: usize, cut: u16, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        match self {
            Self::Absent(link) => link.send(len, cut, fill),
            Self::Virtio(link) => link.send(len, cut, fill),
        }
    }

    #[inline]
    fn flush(&mut self) {
        match self {
            Self::Absent(link) => link.flush(),
            Self::Virtio(link) => link.flush(),
        }
    }
}
