//! virtio-net between a driver on guest memory and a link in memory.

use std::collections::VecDeque;
use std::io;

use proptest::prelude::*;
use tare_policy::limit::NetLimits;

use super::*;
use crate::virtio::driver::{BUFFERS, Driver, MockMachine, Ring, WRITE, get, put, take};
use crate::virtio::{Interest, Look, Progress};

mod limits;
mod receive;
mod set_up;
mod transmit;

const VERSION_1: u64 = 1 << 32;
const EVENT_IDX: u64 = 1 << 29;
const CSUM: u64 = 1;
const GUEST_CSUM: u64 = 1 << 1;
const GUEST_TSO4: u64 = 1 << 7;
const HOST_TSO4: u64 = 1 << 11;
const MRG_RXBUF: u64 = 1 << 15;
const MAX_FRAME: usize = 1514;

/// A link in memory that fails a test which breaks the contract.
struct Memory {
    offload: LinkOffload,
    incoming: VecDeque<(NetHeader, Vec<u8>)>,
    outgoing: Vec<(NetHeader, Vec<u8>)>,
    /// Frames that it takes before it blocks.
    room: usize,
    reserved: Option<Vec<u8>>,
    unflushed: bool,
    accepted: Option<RxOffload>,
    peeked: bool,
    fails: bool,
    is_set: bool,
    /// An index in guest memory, and what it was at each look for a frame.
    watched: Option<(crate::GuestRam, u64)>,
    seen: Vec<u16>,
}

impl Memory {
    fn new(offload: LinkOffload) -> Self {
        Self {
            offload,
            incoming: VecDeque::new(),
            outgoing: Vec::new(),
            room: usize::MAX,
            reserved: None,
            unflushed: false,
            accepted: None,
            peeked: false,
            fails: false,
            is_set: false,
            watched: None,
            seen: Vec::new(),
        }
    }
}

impl Link for Memory {
    fn features(&self) -> LinkFeatures {
        let max_frame = match self.offload {
            LinkOffload::VnetHeader => 65_550,
            _ => MAX_FRAME,
        };
        LinkFeatures {
            max_frame,
            offload: self.offload,
        }
    }

    fn set_offload(&mut self, accepted: RxOffload) -> Result<(), LinkError> {
        self.accepted = Some(accepted);
        Ok(())
    }

    fn peek(&mut self) -> Result<Option<RxFrame<'_>>, LinkError> {
        if self.fails {
            return Err(LinkError::Closed);
        }
        if let Some((memory, at)) = &self.watched {
            let bytes = get(memory, *at, 2);
            self.seen.push(u16::from_le_bytes([bytes[0], bytes[1]]));
        }
        self.peeked = !self.incoming.is_empty();
        Ok(self.incoming.front_mut().map(|(header, bytes)| RxFrame {
            header: *header,
            bytes,
        }))
    }

    fn consume(&mut self) {
        assert!(std::mem::take(&mut self.peeked), "consumed without peeking");
        self.incoming.pop_front();
    }

    fn reserve(&mut self, len: usize) -> Result<Option<&mut [u8]>, LinkError> {
        assert!(len > 0 && len <= self.features().max_frame);
        if self.fails {
            return Err(io::Error::from(io::ErrorKind::BrokenPipe).into());
        }
        if self.outgoing.len() >= self.room {
            return Ok(None);
        }
        Ok(Some(self.reserved.insert(vec![0; len])))
    }

    fn commit(&mut self, header: &NetHeader) -> Result<(), LinkError> {
        let frame = self.reserved.take().expect("committed without room");
        self.outgoing.push((*header, frame));
        self.unflushed = true;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), LinkError> {
        self.unflushed = false;
        Ok(())
    }

    fn has_unsent(&self) -> bool {
        self.unflushed
    }

    fn is_set(&self) -> bool {
        self.is_set
    }
}

type TestMachine = MockMachine<Net<Memory>>;

fn machine(offload: LinkOffload) -> TestMachine {
    let settings = NetSettings {
        mac: [2, 0, 0, 0, 0, 1],
        mtu: 1500,
        limits: NetLimits::default(),
    };
    MockMachine::new(Net::new(settings, Memory::new(offload)))
}

fn link<T>(machine: &TestMachine, action: impl FnOnce(&mut Memory) -> T) -> T {
    machine.io(|device| action(device.device_mut().link_mut()))
}

fn notified(machine: &TestMachine, queue: u16) -> Progress {
    machine.io(|device| device.notified(queue))
}

fn ready(machine: &TestMachine) -> Progress {
    machine.io(|device| device.backend_ready())
}

fn interest(machine: &TestMachine) -> Interest {
    machine.io(|device| device.interest())
}

/// Starts the device and lets the I/O thread hear of it; receive and transmit
/// rings.
fn start(machine: &TestMachine, features: u64) -> (Ring<'_>, Ring<'_>) {
    let mut rings = Driver::new(machine).start(VERSION_1 | features, 16);
    machine.serve_kicks();
    let tx = rings.pop().unwrap();
    (rings.pop().unwrap(), tx)
}

fn buffer(n: usize) -> u64 {
    BUFFERS + n as u64 * 0x1000
}

/// Puts header and frame into one buffer and offers it.
fn send(machine: &TestMachine, tx: &mut Ring<'_>, header: NetHeader, frame: &[u8]) {
    let at = buffer(usize::from(tx.available_index % 16));
    put(&machine.memory, at, &header.to_bytes());
    put(&machine.memory, at + HEADER_LEN as u64, frame);
    tx.offer(&[(at, (HEADER_LEN + frame.len()) as u32, 0)]);
}

/// Offers receive buffers of `len` bytes.
fn offer(rx: &mut Ring<'_>, count: usize, len: u32) {
    for _ in 0..count {
        rx.offer(&[(buffer(usize::from(rx.available_index % 16)), len, WRITE)]);
    }
}

/// The frame in the next used receive buffers.
fn received(machine: &TestMachine, rx: &mut Ring<'_>) -> Option<(NetHeader, Vec<u8>)> {
    let (head, written) = rx.take_used()?;
    let first = get(&machine.memory, buffer(head as usize), written as usize);
    let (header, frame) = first.split_first_chunk::<HEADER_LEN>().unwrap();
    let header = NetHeader::from_bytes(header);
    let mut frame = frame.to_vec();
    for _ in 1..header.num_buffers {
        let (head, written) = rx.take_used().expect("merged buffers come at once");
        frame.extend(get(
            &machine.memory,
            buffer(head as usize),
            written as usize,
        ));
    }
    Some((header, frame))
}

fn frame(seed: u8, len: usize) -> Vec<u8> {
    (0..len)
        .map(|n| (n as u8).wrapping_mul(31) ^ seed)
        .collect()
}
