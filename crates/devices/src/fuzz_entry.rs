//! Entry points for fuzzing: each takes bytes and acts as the guest that they describe. None may
//! panic, whatever the bytes are. Tests replay the corpus.
//!
//! An operation is one byte for its kind and a few for arguments; the guest ends with the input.

mod blk_ring;

pub use blk_ring::blk_ring;

use tare_policy::limit::NetLimits;

use crate::blk::{
    Access, Blk, BlkSettings, Cache, Disk, MonotonicClock, Request, RequestLimits, SERIAL_BYTES,
    Shape, SyncIoEngine, parse,
};
use crate::console::{Backend, Console, Direction, Moved, PortSettings};
use crate::net::{
    Link, LinkError, LinkFeatures, LinkOffload, Net, NetHeader, NetSettings, RxFrame,
};
use crate::rng::{Entropy, Rng};
use crate::virtio::driver::{Driver, MEMORY_LEN, MockMachine, put};
use crate::virtio::{Interest, VirtioDevice};

/// Configuration space by ports and by memory, BARs and MSI-X, in any order.
pub fn pci_config(input: &[u8]) {
    let machine = MockMachine::new(Rng::new(Pattern));
    play(&machine, &mut Input(input));
}

/// virtio-net on a started device over a link that is sometimes full: registers,
/// rings and notifications in any order.
pub fn virtio_net(input: &[u8]) {
    let mut input = Input(input);
    let choice = input.byte();
    let offload = match choice % 3 {
        0 => LinkOffload::None,
        1 => LinkOffload::TrustedRx,
        _ => LinkOffload::VnetHeader,
    };
    let settings = NetSettings {
        mac: [2, 0, 0, 0, 0, 1],
        mtu: 1500,
        limits: limits(choice),
    };
    start_and_play(Net::new(settings, Echo::new(offload)), &mut input);
}

/// Most inputs set no limit; the others set one that frames reach.
fn limits(choice: u8) -> NetLimits {
    match choice {
        128.. => NetLimits {
            frames_per_s: u64::from(choice & 7) * 100,
            bytes_per_s: u64::from(choice >> 3 & 15) * 1_000,
        },
        _ => NetLimits::default(),
    }
}

/// virtio-rng on a started device.
pub fn rng(input: &[u8]) {
    start_and_play(Rng::new(Pattern), &mut Input(input));
}

/// virtio-console with three ports on a started device, over streams that are sometimes full,
/// empty or closed: messages, rings and notifications in any order.
pub fn virtio_console(input: &[u8]) {
    let mut input = Input(input);
    let port = |name, direction| PortSettings { name, direction };
    let ports = [
        port("in", Direction::Input),
        port("out", Direction::Output),
        port("err", Direction::Output),
    ];
    let streams = Streams {
        state: input.byte().into(),
    };
    start_and_play(Console::new(&ports, streams), &mut input);
}

/// The parser of block requests: every request that it accepts lies on the disk.
pub fn blk_request(input: &[u8]) {
    let mut input = Input(input);
    let limits = RequestLimits {
        block_sectors: 1,
        sectors: u64::from(input.word()),
        writable: input.byte() & 1 != 0,
    };
    let (readable, writable) = (input.word().into(), input.word().into());
    let mut start = [0; 32];
    input.fill(&mut start);
    let shape = Shape {
        readable,
        writable,
        start,
    };
    if let Ok(
        Request::Read { offset, len }
        | Request::Write { offset, len }
        | Request::Discard { offset, len }
        | Request::WriteZeroes { offset, len, .. },
    ) = parse(&shape, limits)
    {
        assert!(len > 0 && len % 512 == 0 && offset % 512 == 0);
        assert!(offset + len <= limits.sectors * 512);
    }
}

/// virtio-blk with two queues on a started device over a disk in memory.
pub fn virtio_blk(input: &[u8]) {
    let mut input = Input(input);
    let Some(file) = memory_file(64 << 10) else {
        return;
    };
    let access = match input.byte() % 4 {
        0 => Access::ReadOnly,
        _ => Access::ReadWrite,
    };
    let Ok(engine) = file.try_clone() else { return };
    let Ok(disk) = Disk::from_file(file, "fuzz", access) else {
        return;
    };
    let settings = BlkSettings {
        serial: [b'f'; SERIAL_BYTES],
        queues: 2,
        cache: Cache::Writeback,
        coalesce: tare_policy::coalesce::Settings::default(),
        limits: Default::default(),
    };
    let engine = Box::new(SyncIoEngine::new(engine));
    let device = Blk::new(settings, disk, engine, Box::new(MonotonicClock));
    start_and_play(device, &mut input);
}

fn memory_file(len: u64) -> Option<std::fs::File> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let file = rustix::fs::memfd_create(c"fuzz", flags).ok()?;
    let file = std::fs::File::from(file);
    file.set_len(len).ok()?;
    Some(file)
}

/// Features and queue sizes are the input's choice; then anything.
fn start_and_play<D: VirtioDevice + 'static>(device: D, input: &mut Input<'_>) {
    let machine = MockMachine::new(device);
    let driver = Driver::new(&machine);
    let offered = driver.offered();
    let dropped = u64::from(input.word()) | u64::from(input.byte()) << 24;
    let size = 1 << (input.byte() % 9);
    for mut ring in driver.start(offered & !dropped, size) {
        for _ in 0..input.byte() % 16 {
            offer(&mut ring, input);
        }
    }
    play(&machine, input);
}

fn offer(ring: &mut crate::virtio::driver::Ring<'_>, input: &mut Input<'_>) {
    let count = usize::from(input.byte() % 4) + 1;
    let chain: Vec<_> = (0..count)
        .map(|_| {
            let address = u64::from(input.word()) << 4;
            (address, input.word().into(), input.byte().into())
        })
        .collect();
    ring.offer(&chain);
}

/// Runs operations to the end of the input.
fn play<D: VirtioDevice + 'static>(machine: &MockMachine<D>, input: &mut Input<'_>) {
    let bar = machine.io(|device| device.notify_address(0)).unwrap_or(0) & !0x7fff;
    while !input.is_empty() {
        let operation = input.byte();
        let at = input.word();
        let len = 1 << (operation >> 4 & 3);
        let mut data = [0; 8];
        match operation & 0xf {
            0 => machine
                .bus
                .port_write(0xcf8, &(0x8000_0000 | u32::from(at)).to_le_bytes()),
            1 => machine
                .bus
                .port_write(0xcf8 + at % 8, input.fill(&mut data[..len])),
            2 => machine.bus.port_read(0xcf8 + at % 8, &mut data[..len]),
            3 => machine
                .bus
                .ecam_write(at.into(), input.fill(&mut data[..len])),
            4 => machine.bus.ecam_read(at.into(), &mut data[..len]),
            5 | 6 => {
                let address = bar + u64::from(at % 0x8004);
                machine
                    .bus
                    .memory_write(address, input.fill(&mut data[..len]));
            }
            7 => machine
                .bus
                .memory_read(bar + u64::from(at % 0x8004), &mut data[..len]),
            8 => drop(machine.io(|device| device.notified(at % 8))),
            9 => drop(machine.io(|device| device.backend_ready())),
            10 => {
                machine.io(|device| device.deadline_passed());
                let _ = machine.io(|device| (device.interest(), device.deadline_ns()));
            }
            11 => machine.serve_kicks(),
            _ => {
                let address = (usize::from(at) << 4) % (MEMORY_LEN - 8);
                put(
                    &machine.memory,
                    address as u64,
                    input.fill(&mut data[..len]),
                );
            }
        }
    }
}

/// The rest of the input; zeros when it is used up.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((byte, rest)) => {
                self.0 = rest;
                *byte
            }
            None => 0,
        }
    }

    fn word(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    fn fill<'d>(&mut self, data: &'d mut [u8]) -> &'d [u8] {
        data.fill_with(|| self.byte());
        data
    }
}

/// A source with predictable bytes.
struct Pattern;

impl Entropy for Pattern {
    fn fill(&mut self, buffer: &mut [u8]) -> std::io::Result<()> {
        buffer.fill(0xa5);
        Ok(())
    }
}

/// A link that returns each frame twice and takes no more while it holds one.
struct Echo {
    offload: LinkOffload,
    frame: Vec<u8>,
    len: usize,
    header: NetHeader,
    left: u8,
}

impl Echo {
    fn new(offload: LinkOffload) -> Self {
        Self {
            offload,
            frame: vec![0x55; 65_550],
            len: 60,
            header: NetHeader::default(),
            left: 2,
        }
    }
}

impl Link for Echo {
    fn features(&self) -> LinkFeatures {
        let max_frame = match self.offload {
            LinkOffload::VnetHeader => 65_550,
            _ => 1_514,
        };
        LinkFeatures {
            max_frame,
            offload: self.offload,
        }
    }

    fn peek(&mut self) -> Result<Option<RxFrame<'_>>, LinkError> {
        Ok((self.left > 0).then_some(RxFrame {
            header: self.header,
            bytes: &mut self.frame[..self.len],
        }))
    }

    fn consume(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    fn reserve(&mut self, len: usize) -> Result<Option<&mut [u8]>, LinkError> {
        if self.left > 0 {
            return Ok(None);
        }
        self.len = len;
        Ok(Some(&mut self.frame[..len]))
    }

    fn commit(&mut self, header: &NetHeader) -> Result<(), LinkError> {
        self.header = *header;
        self.left = 2;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), LinkError> {
        Ok(())
    }

    fn has_unsent(&self) -> bool {
        false
    }
}

/// Streams that move some bytes, move none, or end, as a generator's numbers say.
struct Streams {
    state: u32,
}

impl Streams {
    fn moved(&mut self, most: usize) -> Moved {
        self.state = self
            .state
            .wrapping_mul(1_664_525)
            .wrapping_add(1_013_904_223);
        let number = (self.state >> 16) as usize;
        match number % 8 {
            0 => Moved::Blocked,
            1 if number % 64 == 1 => Moved::Closed,
            _ => Moved::Bytes(number % most + 1),
        }
    }
}

impl Backend for Streams {
    fn read(&mut self, port: usize, bytes: &mut [u8]) -> Moved {
        assert_eq!(port, 0);
        bytes.fill(0x5a);
        self.moved(bytes.len())
    }

    fn write(&mut self, port: usize, bytes: &[u8]) -> Moved {
        assert!(matches!(port, 1 | 2));
        self.moved(bytes.len())
    }

    fn watch(&mut self, port: usize, interest: Interest) {
        assert!(port < 3 && !(interest.readable && interest.writable));
    }
}
