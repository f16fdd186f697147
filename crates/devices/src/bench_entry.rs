//! A started network device over a link in memory, for `benches/net.rs`.

use tare_policy::limit::NetLimits;

use crate::net::{
    HEADER_LEN, Link, LinkError, LinkFeatures, LinkOffload, Net, NetHeader, NetSettings, RX,
    RxFrame, TX,
};
use crate::virtio::driver::{Driver, Machine, Ring};

const BUFFER: u64 = 0x8_0000;
const BUFFER_LEN: u32 = 2048;
const WRITE: u16 = 2;
const VERSION_1_AND_EVENT_IDX: u64 = 1 << 32 | 1 << 29;

/// A link that has frames on request and takes all that are sent.
struct Endless {
    frame: Vec<u8>,
    room: Vec<u8>,
    left: usize,
}

impl Link for Endless {
    fn features(&self) -> LinkFeatures {
        LinkFeatures {
            max_frame: 1514,
            offload: LinkOffload::TrustedRx,
        }
    }

    fn peek(&mut self) -> Result<Option<RxFrame<'_>>, LinkError> {
        Ok((self.left > 0).then_some(RxFrame {
            header: NetHeader::default(),
            bytes: &mut self.frame,
        }))
    }

    fn consume(&mut self) {
        self.left -= 1;
    }

    fn reserve(&mut self, len: usize) -> Result<Option<&mut [u8]>, LinkError> {
        Ok(self.room.get_mut(..len))
    }

    fn commit(&mut self, _header: &NetHeader) -> Result<(), LinkError> {
        Ok(())
    }

    fn flush(&mut self) -> Result<(), LinkError> {
        Ok(())
    }

    fn has_unsent(&self) -> bool {
        false
    }
}

/// A machine with a started network device.
pub struct NetBench(Machine<Net<Endless>>);

/// The driver's rings of a [`NetBench`].
pub struct NetRings<'m> {
    bench: &'m NetBench,
    rx: Ring<'m>,
    tx: Ring<'m>,
    frame_len: u32,
}

impl NetBench {
    /// A device whose link gives frames of `frame_len` bytes.
    pub fn new(frame_len: usize) -> Self {
        let settings = NetSettings {
            mac: [2, 0, 0, 0, 0, 1],
            mtu: 1500,
            limits: NetLimits::default(),
        };
        let link = Endless {
            frame: vec![0x5a; frame_len],
            room: vec![0; 1514],
            left: 0,
        };
        Self(Machine::new(Net::new(settings, link)))
    }

    /// Starts the device as a driver does; `None` if that fails.
    pub fn start(&self) -> Option<NetRings<'_>> {
        let mut rings = Driver::new(&self.0).start(VERSION_1_AND_EVENT_IDX, 256);
        let tx = rings.pop()?;
        let rx = rings.pop()?;
        let frame = self.0.io(|device| device.device().link().frame.len());
        self.0.serve_kicks();
        Some(NetRings {
            bench: self,
            rx,
            tx,
            frame_len: frame as u32,
        })
    }
}

impl NetRings<'_> {
    /// `count` frames from the guest to the link; whether all went.
    pub fn transmit(&mut self, count: u16) -> bool {
        for _ in 0..count {
            self.tx
                .offer(&[(BUFFER, HEADER_LEN as u32 + self.frame_len, 0)]);
        }
        let _ = self.bench.0.io(|device| device.notified(TX));
        self.tx.used_index() == self.tx.available_index
    }

    /// `count` frames from the link to the guest; whether all arrived.
    pub fn receive(&mut self, count: u16) -> bool {
        for _ in 0..count {
            self.rx.offer(&[(BUFFER, BUFFER_LEN, WRITE)]);
        }
        let _ = self.bench.0.io(|device| {
            device.device_mut().link_mut().left = count.into();
            device.notified(RX)
        });
        self.rx.used_index() == self.rx.available_index
    }
}
