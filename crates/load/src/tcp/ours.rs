//! Our end of the wire: the library OS's network stack in this thread, with a server that
//! sends a pattern to the first who connects.

use std::collections::VecDeque;
use std::time::Instant;

use tare_io::{ErrorKind, IoSlice};
use tare_net::frame::{Checksums, Medium};
use tare_net::link::{Link, Properties, Received, SendChecksums};
use tare_net::stack::{ConnectionId, Half, ListenerId, Progress, Seeds, Setup, Stack};
use tare_net::waiters::NoWake;

use super::linux::byte;

/// Bytes of a write.
const CHUNK: usize = 64 << 10;
/// Frames that wait to be read by the wire: a virtio queue's.
const QUEUE: usize = 256;

/// The link between the stack and the wire.
#[derive(Default)]
struct Cable {
    incoming: VecDeque<Vec<u8>>,
    outgoing: VecDeque<Vec<u8>>,
}

impl Link for Cable {
    type Buffer = Vec<u8>;

    fn properties(&self) -> Properties {
        Properties {
            medium: Medium::Ethernet,
            mac: [2, 0, 0, 0, 0, 1],
            mtu: 1500,
            checksums: SendChecksums::Software,
            together: 0,
        }
    }

    fn receive(&mut self) -> Option<Received<Vec<u8>>> {
        let buffer = self.incoming.pop_front()?;
        let checksums = Checksums::Unverified;
        Some(Received { buffer, checksums })
    }

    fn recycle(&mut self, _buffer: Vec<u8>) {}

    fn send_ready(&mut self) -> bool {
        self.outgoing.len() < QUEUE
    }

    fn send<R>(&mut self, len: usize, _cut: u16, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut frame = vec![0; len];
        let result = fill(&mut frame);
        self.outgoing.push_back(frame);
        result
    }

    fn flush(&mut self) {}
}

/// Time as the stack counts it.
type StackInstant = tare_net::stack::Instant;

/// A server of `bytes` bytes.
pub(super) struct Ours {
    stack: Stack<Cable, NoWake>,
    begin: Instant,
    listener: ListenerId,
    connection: Option<ConnectionId>,
    sent: usize,
    bytes: usize,
    has_shut: bool,
}

impl Ours {
    pub(super) fn new(address: &str, port: u16, bytes: usize, seed: u64) -> Option<Self> {
        let begin = Instant::now();
        let seeds = Seeds {
            general: seed,
            secret: [seed as u8; 16],
        };
        let setup = Setup::from_word(address)?;
        let mut stack = Stack::new(Cable::default(), setup, seeds, at(begin));
        let listener = stack.listen(([0, 0, 0, 0], port), 4).ok()?;
        Some(Self {
            stack,
            begin,
            listener,
            connection: None,
            sent: 0,
            bytes,
            has_shut: false,
        })
    }

    /// Takes a frame from the wire.
    pub(super) fn take(&mut self, frame: Vec<u8>) {
        self.stack.link().incoming.push_back(frame);
    }

    /// The next frame for the wire.
    pub(super) fn send(&mut self) -> Option<Vec<u8>> {
        self.stack.link().outgoing.pop_front()
    }

    /// Does what is due.
    pub(super) fn turn(&mut self) {
        let now = at(self.begin);
        while self.stack.poll(now, 64) == Progress::More {}
        self.serve(now);
    }

    fn serve(&mut self, now: StackInstant) {
        if self.connection.is_none() {
            self.connection = self.stack.accept(self.listener).ok().map(|it| it.0);
        }
        let Some(id) = self.connection else {
            return;
        };
        while self.sent < self.bytes {
            let end = self.bytes.min(self.sent + CHUNK);
            let chunk: Vec<u8> = (self.sent..end).map(byte).collect();
            match self.stack.write(id, &[IoSlice::new(&chunk)], now) {
                Ok(n) => self.sent += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // The receiver sees what became of it.
                Err(_) => self.sent = self.bytes,
            }
        }
        if !self.has_shut {
            self.has_shut = true;
            let _ = self.stack.shutdown(id, Half::Write, now);
        }
    }

    /// Microseconds until it has to be looked at.
    pub(super) fn due_us(&self) -> Option<u64> {
        let due = self.stack.deadline()?.total_micros();
        Some((due - at(self.begin).total_micros()).max(0).cast_unsigned())
    }
}

/// Microseconds since `begin`, from one on: zero is before everything.
fn at(begin: Instant) -> StackInstant {
    let micros = i64::try_from(begin.elapsed().as_micros()).unwrap_or(i64::MAX - 1);
    StackInstant::from_micros(micros + 1)
}
