//! A started network device over a link in memory, for `benches/net.rs`, and a started
//! disk whose engine does nothing, for `benches/blk.rs`.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{MemfdFlags, memfd_create};
use tare_policy::coalesce::{Mode, Settings};
use tare_policy::limit::{DiskLimits, NetLimits};

use crate::GuestRam;
use crate::blk::{
    Access, Blk, BlkSettings, Buffers, Cache, Disk, Finished, IoEngine, MonotonicClock, Operation,
    SERIAL_BYTES,
};
use crate::net::{
    HEADER_LEN, Link, LinkError, LinkFeatures, LinkOffload, Net, NetHeader, NetSettings, RX,
    RxFrame, TX,
};
use crate::virtio::driver::{Driver, MockMachine, Ring};
use crate::virtio::{Chain, EventIdx, NO_VECTOR, QueueSettings, Virtqueue};

const BUFFER: u64 = 0x8_0000;
const BUFFER_LEN: u32 = 2048;
const WRITE: u16 = 2;
const VERSION_1_AND_EVENT_IDX: u64 = 1 << 32 | 1 << 29;

/// A link that produces frames on request and accepts all that are sent.
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
pub struct NetBench(MockMachine<Net<Endless>>);

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
        Self(MockMachine::new(Net::new(settings, link)))
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
    /// Sends `count` frames from the guest to the link; true if all were sent.
    pub fn transmit(&mut self, count: u16) -> bool {
        for _ in 0..count {
            self.tx
                .offer(&[(BUFFER, HEADER_LEN as u32 + self.frame_len, 0)]);
        }
        let _ = self.bench.0.io(|device| device.notified(TX));
        self.tx.used_index() == self.tx.available_index
    }

    /// Receives `count` frames from the link for the guest; true if all arrived.
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

/// Completes every operation at once, with success.
#[derive(Default)]
struct Idle {
    started: VecDeque<(usize, Buffers)>,
}

impl IoEngine for Idle {
    fn start(&mut self, token: usize, _: Operation, buffers: Buffers) {
        self.started.push_back((token, buffers));
    }

    fn submit(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn finished(&mut self) -> Option<Finished> {
        let (token, buffers) = self.started.pop_front()?;
        Some(Finished {
            token,
            result: Ok(READ_BYTES as usize),
            buffers,
        })
    }

    fn wait(&mut self) {}

    fn drain(&mut self) {
        self.started.clear();
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn acknowledge(&mut self) {}
}

/// Bytes of each read of a [`BlkBench`].
const READ_BYTES: u32 = 4096;
const HEADER: u64 = 0x8_0000;
const STATUS: u64 = 0x8_1000;
const DATA: u64 = 0x9_0000;

/// A machine with a started disk.
pub struct BlkBench(MockMachine<Blk>);

/// The driver's ring of a [`BlkBench`].
pub struct BlkRing<'m> {
    bench: &'m BlkBench,
    ring: Ring<'m>,
}

impl BlkBench {
    /// A disk of 1 MiB; `None` without memory for it.
    pub fn new() -> Option<Self> {
        let file = File::from(memfd_create(c"bench", MemfdFlags::CLOEXEC).ok()?);
        file.set_len(1 << 20).ok()?;
        let disk = Disk::from_file(file, "bench", Access::ReadWrite).ok()?;
        let settings = BlkSettings {
            serial: [0; SERIAL_BYTES],
            queues: 1,
            cache: Cache::Writeback,
            coalesce: Settings::with_mode(Mode::Auto),
            limits: DiskLimits::default(),
        };
        let engine = Box::<Idle>::default();
        let device = Blk::new(settings, disk, engine, Box::new(MonotonicClock));
        Some(Self(MockMachine::new(device)))
    }

    /// Starts the device as a driver does; `None` if that fails.
    pub fn start(&self) -> Option<BlkRing<'_>> {
        let rings = Driver::new(&self.0).start(VERSION_1_AND_EVENT_IDX, 256);
        self.0.serve_kicks();
        let header = [0; 16];
        let memory = &self.0.memory;
        vm_memory::Bytes::write_slice(memory, &header, vm_memory::GuestAddress(HEADER)).ok()?;
        Some(BlkRing {
            bench: self,
            ring: rings.into_iter().next()?,
        })
    }
}

/// A queue without a device: what the rings alone cost, beside a [`BlkRing`].
pub struct BareRing<'m> {
    ring: Ring<'m>,
    memory: &'m GuestRam,
    queue: Virtqueue,
    chain: Chain,
    heads: Vec<u16>,
}

impl BlkBench {
    /// Another queue in the same memory; `None` if it cannot be.
    pub fn bare(&self) -> Option<BareRing<'_>> {
        let memory = &self.0.memory;
        let ring = Ring::new(memory, 1, 256, VERSION_1_AND_EVENT_IDX);
        let settings = QueueSettings {
            max_size: ring.size,
            size: ring.size,
            vector: NO_VECTOR,
            enabled: true,
            descriptors: ring.descriptors,
            available: ring.available,
            used: ring.used,
        };
        let queue = Virtqueue::resume(&settings, EventIdx::Negotiated, 0, 256, None, memory);
        Some(BareRing {
            ring,
            memory,
            queue: queue.ok()?,
            chain: Chain::default(),
            heads: Vec::new(),
        })
    }
}

impl BareRing<'_> {
    /// The driver's part alone: offers `count` chains and takes them back.
    pub fn offer(&mut self, count: u16) -> bool {
        self.offer_reads(count);
        let before = self.ring.available_index.wrapping_sub(count);
        self.ring.set_available_index(before);
        true
    }

    /// Offers `count` chains, takes them, gives them back and decides about the interrupt; true if
    /// all came back.
    pub fn turn(&mut self, count: u16) -> bool {
        self.offer_reads(count);
        self.heads.clear();
        while self
            .queue
            .pop(self.memory, &mut self.chain)
            .unwrap_or(false)
        {
            self.heads.push(self.chain.head());
        }
        for head in &self.heads {
            let given = self.queue.complete(self.memory, *head, READ_BYTES + 1);
            if given.is_err() {
                return false;
            }
        }
        let decided = self.queue.decide(self.memory).is_ok();
        decided && self.ring.used_index() == self.ring.available_index
    }

    fn offer_reads(&mut self, count: u16) {
        for _ in 0..count {
            let data = (DATA, READ_BYTES, WRITE);
            self.ring
                .offer(&[(HEADER, 16, 0), data, (STATUS, 1, WRITE)]);
        }
    }
}

impl BlkRing<'_> {
    /// Sends `count` reads of 4 KiB, up to 64, with one notification; true if all were answered.
    pub fn read(&mut self, count: u16) -> bool {
        for _ in 0..count {
            let data = (DATA, READ_BYTES, WRITE);
            self.ring
                .offer(&[(HEADER, 16, 0), data, (STATUS, 1, WRITE)]);
        }
        let _ = self.bench.0.io(|device| device.notified(0));
        self.ring.used_index() == self.ring.available_index
    }
}
