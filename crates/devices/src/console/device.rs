//! The device: from queues to ports and back.

use std::sync::Arc;

use super::control::{FromDriver, LEN, Value};
use super::port::{Direction, Port, PortSettings};
use super::{
    BATCH, Backend, CHUNK, CONTROL_QUEUE_SIZE, ConsoleCounters, MULTIPORT, Moved, QUEUE_SIZE,
};
use crate::virtio::{
    Chain, DeviceKind, Interest, Progress, QueueError, Queues, VirtioDevice, Virtqueue,
};
use crate::{CounterSource, GuestRam};

/// Where `max_nr_ports` is in the configuration (5.3.4).
const MAX_PORTS: usize = 4;
const CONFIG_LEN: usize = 12;
/// Queues of the control messages (5.3.2).
const TO_DRIVER: usize = 2;
const FROM_DRIVER: usize = 3;

/// What a queue is for (5.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Receive(usize),
    Transmit(usize),
    ToDriver,
    FromDriver,
}

impl Use {
    fn of(queue: usize) -> Self {
        match (queue, queue % 2) {
            (0, _) => Self::Receive(0),
            (1, _) => Self::Transmit(0),
            (TO_DRIVER, _) => Self::ToDriver,
            (FROM_DRIVER, _) => Self::FromDriver,
            (_, 0) => Self::Receive(queue / 2 - 1),
            _ => Self::Transmit(queue / 2 - 1),
        }
    }

    fn queue(self) -> usize {
        match self {
            Self::Receive(0) => 0,
            Self::Transmit(0) => 1,
            Self::ToDriver => TO_DRIVER,
            Self::FromDriver => FROM_DRIVER,
            Self::Receive(port) => 2 * port + 2,
            Self::Transmit(port) => 2 * port + 3,
        }
    }
}

/// What a call did with the chain at the head of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Head {
    /// It worked on the chain.
    Used,
    /// The chain waits for the host's end.
    Blocked,
    /// There is none.
    Missing,
}

/// A console over a backend.
pub struct Console<B> {
    backend: B,
    ports: Vec<Port>,
    queue_sizes: Vec<u16>,
    counters: Arc<ConsoleCounters>,
    chain: Chain,
    bytes: Vec<u8>,
    started: bool,
}

impl<B: Backend> Console<B> {
    /// A console with those ports, at least one.
    pub fn new(ports: &[PortSettings], backend: B) -> Self {
        let queues = 0..2 * ports.len() + 2;
        Self {
            backend,
            ports: ports.iter().copied().map(Port::new).collect(),
            queue_sizes: queues
                .map(|queue| match Use::of(queue) {
                    Use::Receive(_) | Use::Transmit(_) => QUEUE_SIZE,
                    Use::ToDriver | Use::FromDriver => CONTROL_QUEUE_SIZE,
                })
                .collect(),
            counters: Arc::default(),
            chain: Chain::default(),
            bytes: vec![0; CHUNK],
            started: false,
        }
    }

    /// From now on [`Self::is_drained`] reports whether the host has all output that the driver had
    /// sent when this was called. The caller looks at the transmit queues again.
    pub fn start_drain(&mut self) {
        for port in &mut self.ports {
            port.is_drained = port.settings.direction == Direction::Input;
        }
    }

    /// Whether the host has that output, or can take no more of it.
    pub fn is_drained(&self) -> bool {
        !self.started || self.ports.iter().all(|port| port.is_drained)
    }

    /// The queues whose chains go to the host.
    pub fn output_queues(&self) -> Vec<u16> {
        let outputs = (0..self.ports.len())
            .filter(|port| self.ports[*port].settings.direction == Direction::Output);
        outputs
            .map(|port| Use::Transmit(port).queue() as u16)
            .collect()
    }

    /// Handles up to a batch of the driver's messages.
    fn hear(&mut self, queues: &mut Queues<'_>) -> Result<Progress, QueueError> {
        let Some((queue, memory)) = queues.get(FROM_DRIVER) else {
            return Ok(Progress::Done);
        };
        for _ in 0..BATCH {
            if queue.pop(memory, &mut self.chain)? {
                let message = self.message(memory)?;
                queue.complete(memory, self.chain.head(), 0)?;
                self.counters.control_received.increment();
                if !message.is_some_and(|message| self.follow(message)) {
                    self.counters.control_invalid.increment();
                }
            } else if !queue.enable_notification(memory)? {
                return Ok(Progress::Done);
            }
        }
        Ok(Progress::More)
    }

    /// Parses the message in the current chain.
    fn message(&self, memory: &GuestRam) -> Result<Option<FromDriver>, QueueError> {
        if self.chain.writable_len() != 0 {
            return Err(QueueError::Direction);
        }
        if self.chain.readable_len() != LEN {
            return Ok(None);
        }
        let mut bytes = [0; LEN];
        self.chain.read(memory, 0, &mut bytes)?;
        Ok(FromDriver::parse(bytes, self.ports.len()))
    }

    /// Follows a message; `false` if the driver may not send it now.
    fn follow(&mut self, message: FromDriver) -> bool {
        match message {
            FromDriver::DeviceReady(Value::Yes) => {
                self.ports.iter_mut().for_each(Port::announce);
                true
            }
            // The driver gives up: nothing more happens until it starts the device again.
            FromDriver::DeviceReady(Value::No) => true,
            FromDriver::PortReady(port, Value::Yes) => self.ports[port].make_ready(),
            FromDriver::PortReady(_, Value::No) => true,
            FromDriver::PortOpen(port, said) => {
                let port = &mut self.ports[port];
                let may = port.is_ready();
                if may {
                    port.driver = said;
                }
                if may && said == Value::No && port.settings.direction == Direction::Input {
                    port.is_blocked = false;
                }
                may
            }
        }
    }

    /// Sends the pending messages, as far as the driver has buffers.
    fn tell(&mut self, queues: &mut Queues<'_>) -> Result<(), QueueError> {
        let Some((queue, memory)) = queues.get(TO_DRIVER) else {
            return Ok(());
        };
        for (number, port) in self.ports.iter_mut().enumerate() {
            while let Some(message) = port.owed() {
                if !next_buffer(queue, memory, &mut self.chain)? {
                    return Ok(());
                }
                let bytes = message.bytes(number);
                let fits = bytes.len() <= self.chain.writable_len();
                let written = if fits {
                    self.chain.write(memory, 0, &bytes)?;
                    self.counters.control_sent.increment();
                    bytes.len() as u32
                } else {
                    self.counters.control_dropped.increment();
                    0
                };
                queue.complete(memory, self.chain.head(), written)?;
                port.sent(message);
            }
        }
        Ok(())
    }

    /// Fills up to a batch of buffers from the host's input.
    fn receive(&mut self, port: usize, queues: &mut Queues<'_>) -> Result<Progress, QueueError> {
        let Some((queue, memory)) = queues.get(Use::Receive(port).queue()) else {
            return Ok(Progress::Done);
        };
        if self.ports[port].settings.direction == Direction::Output {
            // Drivers offer buffers whichever way the port goes: they stay.
            return Ok(Progress::Done);
        }
        for _ in 0..BATCH {
            let state = &self.ports[port];
            let moves = state.driver == Value::Yes && state.host == Value::Yes && !state.is_blocked;
            if !moves || self.fill(port, queue, memory)? != Head::Used {
                return Ok(Progress::Done);
            }
        }
        Ok(Progress::More)
    }

    /// Fills the buffer at the queue's head.
    fn fill(
        &mut self,
        port: usize,
        queue: &mut Virtqueue,
        memory: &GuestRam,
    ) -> Result<Head, QueueError> {
        queue.disable_notification(memory)?;
        if !next_buffer(queue, memory, &mut self.chain)? {
            self.counters.rx_backpressure.increment();
            return Ok(Head::Missing);
        }
        let len = self.chain.writable_len().min(CHUNK);
        match self.backend.read(port, &mut self.bytes[..len]) {
            Moved::Bytes(count) => {
                let count = count.min(len);
                self.chain.write(memory, 0, &self.bytes[..count])?;
                queue.complete(memory, self.chain.head(), count as u32)?;
                self.counters.rx_bytes.add(count as u64);
                return Ok(Head::Used);
            }
            Moved::Blocked => self.ports[port].is_blocked = true,
            Moved::Closed => self.ports[port].host = Value::No,
        }
        queue.unpop(1);
        Ok(Head::Blocked)
    }

    /// Writes up to a batch of chunks to the host.
    fn transmit(&mut self, port: usize, queues: &mut Queues<'_>) -> Result<Progress, QueueError> {
        let Some((queue, memory)) = queues.get(Use::Transmit(port).queue()) else {
            self.ports[port].is_drained = true;
            return Ok(Progress::Done);
        };
        let output = self.ports[port].settings.direction == Direction::Output;
        if output && self.ports[port].is_blocked {
            return Ok(Progress::Done);
        }
        queue.disable_notification(memory)?;
        for _ in 0..BATCH {
            match self.empty(port, queue, memory)? {
                Head::Used => {}
                Head::Blocked => {
                    self.ports[port].is_blocked = true;
                    self.counters.tx_backpressure.increment();
                    return Ok(Progress::Done);
                }
                Head::Missing if queue.enable_notification(memory)? => {
                    queue.disable_notification(memory)?;
                }
                Head::Missing => {
                    self.ports[port].is_drained = true;
                    return Ok(Progress::Done);
                }
            }
        }
        Ok(Progress::More)
    }

    /// Writes a chunk of the chain at the queue's head to the host. The progress is kept beside the
    /// queue: a driver that changes the chain meanwhile sends other bytes, but no more than its
    /// chain has.
    fn empty(
        &mut self,
        port: usize,
        queue: &mut Virtqueue,
        memory: &GuestRam,
    ) -> Result<Head, QueueError> {
        if !queue.pop(memory, &mut self.chain)? {
            return Ok(Head::Missing);
        }
        if self.chain.writable_len() != 0 {
            return Err(QueueError::Direction);
        }
        let state = &mut self.ports[port];
        let begin = state.taken.min(self.chain.readable_len());
        let rest = self.chain.readable_len() - begin;
        let len = rest.min(CHUNK);
        let open = state.settings.direction == Direction::Output && state.host == Value::Yes;
        let moved = if open && len > 0 {
            let bytes = &mut self.bytes[..len];
            self.chain.read(memory, begin, bytes)?;
            self.backend.write(port, bytes)
        } else {
            Moved::Closed
        };
        match moved {
            Moved::Bytes(count) => {
                let count = count.min(len);
                self.counters.tx_bytes.add(count as u64);
                state.taken = begin + count;
                if count < rest {
                    queue.unpop(1);
                    return Ok(Head::Used);
                }
            }
            Moved::Blocked => {
                queue.unpop(1);
                return Ok(Head::Blocked);
            }
            Moved::Closed => {
                if open && len > 0 {
                    state.host = Value::No;
                }
                self.counters.tx_discarded.add(rest as u64);
            }
        }
        state.taken = 0;
        queue.complete(memory, self.chain.head(), 0)?;
        Ok(Head::Used)
    }

    /// One piece of work on a queue.
    fn work(&mut self, queue: usize, queues: &mut Queues<'_>) -> Result<Progress, QueueError> {
        match Use::of(queue) {
            Use::Receive(port) => {
                let progress = self.receive(port, queues)?;
                self.ports[port].is_unfinished = progress == Progress::More;
                Ok(progress)
            }
            Use::Transmit(port) => {
                let progress = self.transmit(port, queues)?;
                if self.ports[port].settings.direction == Direction::Output {
                    self.ports[port].is_unfinished = progress == Progress::More;
                }
                Ok(progress)
            }
            Use::ToDriver => Ok(Progress::Done),
            Use::FromDriver => {
                let progress = self.hear(queues)?;
                // A port that has just been opened may have buffers already.
                (0..self.ports.len()).try_fold(progress, |progress, port| {
                    Ok(progress.or(self.receive(port, queues)?))
                })
            }
        }
    }

    /// Finishes any work: sends messages and sets what to wait for.
    fn settle(&mut self, queues: &mut Queues<'_>) -> Result<(), QueueError> {
        for (number, port) in self.ports.iter_mut().enumerate() {
            let interest = port.interest();
            if interest != port.watched {
                self.backend.watch(number, interest);
                port.watched = interest;
            }
        }
        self.tell(queues)
    }
}

impl<B: Backend> VirtioDevice for Console<B> {
    fn kind(&self) -> DeviceKind {
        DeviceKind {
            id: 3,
            class: 0x07_8000,
        }
    }

    fn queue_sizes(&self) -> &[u16] {
        &self.queue_sizes
    }

    fn features(&self) -> u64 {
        MULTIPORT
    }

    fn accepts(&self, features: u64) -> bool {
        features & MULTIPORT != 0
    }

    fn read_config(&self, offset: usize, data: &mut [u8]) {
        let mut config = [0; CONFIG_LEN];
        let ports = (self.ports.len() as u32).to_le_bytes();
        config[MAX_PORTS..MAX_PORTS + 4].copy_from_slice(&ports);
        for (byte, value) in data.iter_mut().zip(config.iter().skip(offset)) {
            *byte = *value;
        }
    }

    fn start(&mut self, _features: u64) {
        self.started = true;
    }

    fn stop(&mut self) {
        self.started = false;
        self.ports.iter_mut().for_each(Port::reset);
    }

    fn process(&mut self, index: u16, queues: &mut Queues<'_>) -> Result<Progress, QueueError> {
        let progress = self.work(index.into(), queues)?;
        self.settle(queues)?;
        Ok(progress)
    }

    fn backend_ready(&mut self, queues: &mut Queues<'_>) -> Result<Progress, QueueError> {
        let mut progress = Progress::Done;
        for port in 0..self.ports.len() {
            let state = &mut self.ports[port];
            if !std::mem::take(&mut state.is_blocked) && !state.is_unfinished {
                continue;
            }
            let queue = match state.settings.direction {
                Direction::Input => Use::Receive(port),
                Direction::Output => Use::Transmit(port),
            };
            progress = progress.or(self.work(queue.queue(), queues)?);
        }
        self.settle(queues)?;
        Ok(progress)
    }

    fn interest(&self) -> Interest {
        Interest::READ
    }

    fn counters(&self) -> Arc<dyn CounterSource> {
        Arc::clone(&self.counters) as Arc<dyn CounterSource>
    }
}

/// Takes the driver's next buffer; if there is none, requests a notification for the next one.
fn next_buffer(
    queue: &mut Virtqueue,
    memory: &GuestRam,
    chain: &mut Chain,
) -> Result<bool, QueueError> {
    let popped = queue.pop_or_ask(memory, chain)?;
    if popped && (chain.readable_len() != 0 || chain.writable_len() == 0) {
        return Err(QueueError::Direction);
    }
    Ok(popped)
}
