//! The device: its queues, who waits for a port, and the messages to and from the host.

#![allow(unsafe_code)] // the queue's `add`

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU8, Ordering};
use core::time::Duration;

use tare_abi::streams::{NAMES, SIGNALS_PORT};
use tare_hal::once::OnceCell;
use tare_hal::virtio::{Queue, QueueOptions, Transport};
use virtio_drivers::transport::Transport as _;

use super::control::{self, Follows, Kind, Names};
use super::input::Input;
use super::output::Output;
use super::readiness::Readiness;
use crate::io::{Error, ErrorKind, Result};
use crate::sync::{Event, IrqLock};
use crate::thread::Thread;
use crate::time::Instant;
use crate::virtio;

/// `VIRTIO_CONSOLE_F_MULTIPORT`.
const MULTIPORT: u64 = 1 << 1;
/// Where the number of ports is in the configuration (virtio 1.2, 5.3.4).
const CONFIG_PORTS: usize = 4;
/// Queues (5.3.2): the input of port 0, the outputs of ports 1 and 2, messages.
const INPUT: u16 = 0;
const FROM_HOST: u16 = 2;
const TO_HOST: u16 = 3;
const OUTPUTS: [(usize, u16); 2] = [(1, 5), (2, 7)];
/// Both queues of the port of signals.
const SIGNALS_INPUT: u16 = 4;
const SIGNALS_OUTPUT: u16 = 5;
/// What tells the host that signals are read. Its value means nothing.
const READS: &[u8] = &[1];
/// Entries of the queues; a port's output has a buffer for each write.
const MESSAGES: u16 = 16;
const INPUTS: u16 = 4;
const WRITES: u16 = 64;
/// The host's answers take a few round trips to its I/O thread.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// What the host has said of its end of a port.
const UNKNOWN: u8 = 0;
const OPEN: u8 = 1;
const CLOSED: u8 = 2;

/// The machine has one at most.
pub(super) static DEVICE: Device = Device::new();

/// A port's queue.
enum Way {
    Input(Input),
    Output(Output),
}

/// A port.
struct Lane {
    way: IrqLock<Option<Way>>,
    waiting: IrqLock<Vec<Thread>>,
    host: AtomicU8,
}

impl Lane {
    const fn new() -> Self {
        Self {
            way: IrqLock::new(None),
            waiting: IrqLock::new(Vec::new()),
            host: AtomicU8::new(UNKNOWN),
        }
    }

    /// Has who waits look. Called with interrupts off.
    fn wake(&self) {
        self.waiting.lock().iter().for_each(Thread::unpark);
    }

    /// The device has signalled the port's queue.
    fn interrupted(&self) {
        match self.way.lock().as_mut() {
            Some(Way::Input(input)) => input.interrupted(),
            Some(Way::Output(output)) => output.interrupted(),
            None => {}
        }
        self.wake();
    }
}

/// Both control queues, with the messages in them by token.
struct Talk {
    from_host: Queue,
    heard: Vec<Option<Box<[u8; control::LONGEST]>>>,
    to_host: Queue,
    said: Vec<Option<Box<[u8; control::LEN]>>>,
    names: Names,
}

/// The device.
pub(super) struct Device {
    transport: OnceCell<IrqLock<Transport>>,
    kind: OnceCell<Kind>,
    talk: IrqLock<Option<Talk>>,
    lanes: [Lane; NAMES.len()],
    /// The output of the port of signals.
    signals: IrqLock<Option<Output>>,
    told: Event,
}

impl Device {
    const fn new() -> Self {
        Self {
            transport: OnceCell::new(),
            kind: OnceCell::new(),
            talk: IrqLock::new(None),
            lanes: [const { Lane::new() }; NAMES.len()],
            signals: IrqLock::new(None),
            told: Event::new(),
        }
    }

    /// Sets the device up and asks for the ports.
    pub(super) fn attach(&'static self, mut transport: Transport) -> virtio_drivers::Result<()> {
        use virtio_drivers::Error as Failed;
        let features = virtio::negotiate(&mut transport, virtio::VERSION_1 | MULTIPORT);
        let features = features.map_err(|virtio::Refused| Failed::Unsupported)?;
        let ports = transport.read_config_space::<u32>(CONFIG_PORTS)?;
        let kind = Kind::of(ports).filter(|_| features & MULTIPORT != 0);
        let kind = kind.ok_or(Failed::Unsupported)?;
        transport.on_interrupt(FROM_HOST, &|| DEVICE.heard());
        match kind {
            Kind::Streams => {
                transport.on_interrupt(INPUT, &|| DEVICE.lanes[0].interrupted());
                transport.on_interrupt(OUTPUTS[0].1, &|| DEVICE.lanes[1].interrupted());
                transport.on_interrupt(OUTPUTS[1].1, &|| DEVICE.lanes[2].interrupted());
            }
            Kind::Signals => {
                transport.on_interrupt(SIGNALS_INPUT, &|| {
                    DEVICE.lanes[SIGNALS_PORT].interrupted();
                });
            }
        }
        let from_host = queue(&mut transport, FROM_HOST, MESSAGES)?;
        let mut to_host = queue(&mut transport, TO_HOST, MESSAGES)?;
        to_host.set_interrupts(false);
        match kind {
            Kind::Streams => {
                let input = Input::new(queue(&mut transport, INPUT, INPUTS)?);
                *self.lanes[0].way.lock() = Some(Way::Input(input));
                for (port, index) in OUTPUTS {
                    let output = Output::new(queue(&mut transport, index, WRITES)?);
                    *self.lanes[port].way.lock() = Some(Way::Output(output));
                }
            }
            Kind::Signals => {
                let input = Input::new(queue(&mut transport, SIGNALS_INPUT, INPUTS)?);
                *self.lanes[SIGNALS_PORT].way.lock() = Some(Way::Input(input));
                let output = Output::new(queue(&mut transport, SIGNALS_OUTPUT, INPUTS)?);
                *self.signals.lock() = Some(output);
            }
        }
        let _ = self.kind.set(kind);
        transport.finish_init();
        let mut talk = Talk {
            heard: (0..from_host.size()).map(|_| None).collect(),
            said: (0..to_host.size()).map(|_| None).collect(),
            from_host,
            to_host,
            names: Names::new(kind),
        };
        while talk.from_host.has_room(1) {
            talk.listen(Box::new([0; control::LONGEST]));
        }
        let _ = self.transport.set(IrqLock::new(transport));
        self.notify(FROM_HOST);
        talk.say(control::device_ready());
        *self.talk.lock() = Some(talk);
        self.notify(TO_HOST);
        Ok(())
    }

    /// Waits until the host has said of every port of this kind whether its end is open; false where there
    /// is no such device, or it does not say so, which `lost` then follows from.
    pub(super) fn wait(&self, kind: Kind, lost: &str) -> bool {
        if self.kind.get() != Some(&kind) {
            return false;
        }
        let limit = Instant::now() + ANSWER_TIMEOUT;
        let is_known = |(port, lane): (usize, &Lane)| {
            !kind.has(port) || lane.host.load(Ordering::Acquire) != UNKNOWN
        };
        loop {
            if self.lanes.iter().enumerate().all(is_known) {
                return true;
            }
            if !self.told.wait_until(limit) {
                log::warn!("the console's ports are not there: {lost}");
                return false;
            }
        }
    }

    /// Tells the host that the port of signals is read.
    pub(super) fn begin_signals(&self) {
        let written = self
            .signals
            .lock()
            .as_mut()
            .map(|output| output.write(READS));
        if let Some((_, true)) = written {
            self.notify(SIGNALS_OUTPUT);
        }
    }

    pub(super) fn read(&self, port: usize, to: &mut [u8]) -> Result<usize> {
        let lane = &self.lanes[port];
        // Before the look: what came before the end is read before it.
        let is_closed = lane.host.load(Ordering::Acquire) == CLOSED;
        let mut way = lane.way.lock();
        let Some(Way::Input(input)) = way.as_mut() else {
            return Err(would_block());
        };
        let (count, notify) = input.read(to);
        drop(way);
        if notify {
            self.notify(input_queue(port));
        }
        match count {
            0 if is_closed => Ok(0),
            0 => Err(would_block()),
            count => Ok(count),
        }
    }

    pub(super) fn write(&self, port: usize, from: &[u8]) -> Result<usize> {
        let lane = &self.lanes[port];
        if lane.host.load(Ordering::Acquire) == CLOSED {
            return Err(Error::from(ErrorKind::BrokenPipe));
        }
        let mut way = lane.way.lock();
        let Some(Way::Output(output)) = way.as_mut() else {
            return Err(would_block());
        };
        let (count, notify) = output.write(from);
        drop(way);
        if notify {
            self.notify(output_queue(port));
        }
        match count {
            0 => Err(would_block()),
            count => Ok(count),
        }
    }

    pub(super) fn readiness(&self, port: usize) -> Readiness {
        let lane = &self.lanes[port];
        let closed = lane.host.load(Ordering::Acquire) == CLOSED;
        let mut way = lane.way.lock();
        let (readable, writable, notify) = match way.as_mut() {
            Some(Way::Input(input)) => {
                let (bytes, _, notify) = input.readable();
                (bytes > 0, false, notify)
            }
            Some(Way::Output(output)) => (false, closed || output.has_room(), false),
            None => (false, false, false),
        };
        drop(way);
        if notify {
            self.notify(input_queue(port));
        }
        Readiness {
            readable,
            writable,
            closed,
        }
    }

    /// Bytes that can be read, and those that have ever come.
    pub(super) fn readable(&self, port: usize) -> (usize, u64) {
        let mut way = self.lanes[port].way.lock();
        let Some(Way::Input(input)) = way.as_mut() else {
            return (0, 0);
        };
        let (bytes, arrived, notify) = input.readable();
        drop(way);
        if notify {
            self.notify(input_queue(port));
        }
        (bytes, arrived)
    }

    pub(super) fn watch(&self, port: usize, thread: &Thread) {
        let mut waiting = self.lanes[port].waiting.lock();
        if waiting.iter().all(|other| other.id() != thread.id()) {
            waiting.push(thread.clone());
        }
    }

    pub(super) fn unwatch(&self, port: usize, thread: &Thread) {
        let mut waiting = self.lanes[port].waiting.lock();
        waiting.retain(|other| other.id() != thread.id());
    }

    fn notify(&self, queue: u16) {
        if let Some(transport) = self.transport.get() {
            transport.lock().notify(queue);
        }
    }

    /// The host has said something. Called with interrupts off.
    fn heard(&self) {
        let mut says = false;
        let mut guard = self.talk.lock();
        let Some(talk) = guard.as_mut() else {
            return;
        };
        while let Some((message, len)) = talk.next() {
            match talk.names.hear(&message[..len]) {
                Follows::Nothing => {}
                Follows::Answer(answer) => {
                    talk.say(answer);
                    says = true;
                }
                Follows::Host(port, open) => {
                    let state = if open { OPEN } else { CLOSED };
                    self.lanes[port].host.store(state, Ordering::Release);
                    self.lanes[port].wake();
                }
            }
            talk.listen(message);
        }
        let listens = talk.from_host.should_notify();
        drop(guard);
        if says {
            self.notify(TO_HOST);
        }
        if listens {
            self.notify(FROM_HOST);
        }
        self.told.set();
    }
}

impl Talk {
    /// The next message, and its length.
    fn next(&mut self) -> Option<(Box<[u8; control::LONGEST]>, usize)> {
        let token = self.from_host.peek()?;
        let len = self.from_host.take(token)? as usize;
        let message = self.heard.get_mut(usize::from(token))?.take()?;
        Some((message, len.min(control::LONGEST)))
    }

    /// Gives the device room for a message.
    fn listen(&mut self, mut message: Box<[u8; control::LONGEST]>) {
        // SAFETY: the buffer is kept in `heard`, untouched, until the queue has given its token
        // back.
        let token = unsafe { self.from_host.add(&[], &mut [&mut message[..]]) };
        if let Some(token) = token {
            self.heard[usize::from(token)] = Some(message);
        }
    }

    /// Says something; a host that has not taken sixteen messages loses it.
    fn say(&mut self, message: [u8; control::LEN]) {
        while let Some(token) = self.to_host.peek() {
            if self.to_host.take(token).is_none() {
                break;
            }
            if let Some(said) = self.said.get_mut(usize::from(token)) {
                *said = None;
            }
        }
        let message = Box::new(message);
        // SAFETY: as for `listen`, in `said`.
        let token = unsafe { self.to_host.add(&[&message[..]], &mut []) };
        if let Some(token) = token {
            self.said[usize::from(token)] = Some(message);
        }
    }
}

fn queue(transport: &mut Transport, index: u16, longest: u16) -> virtio_drivers::Result<Queue> {
    let options = QueueOptions {
        longest,
        indirect: false,
        event_idx: false,
    };
    Queue::new(transport, index, options)
}

fn would_block() -> Error {
    Error::from(ErrorKind::WouldBlock)
}

fn input_queue(port: usize) -> u16 {
    match port {
        SIGNALS_PORT => SIGNALS_INPUT,
        _ => INPUT,
    }
}

fn output_queue(port: usize) -> u16 {
    let found = OUTPUTS.iter().find(|(number, _)| *number == port);
    found.map_or(TO_HOST, |(_, queue)| *queue)
}
