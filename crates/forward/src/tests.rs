//! Connections between clients in memory and a guest with the library OS's TCP.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;

use tare_devices::net::RxOffload;
use tare_tcp::segment::{Segment, flags};
use tare_tcp::time::{Duration, Instant};
use tare_tcp::{Config, Connection, FourTuple, Identity, Pool, Secret, State};

use crate::frame::{Frame, Question};
use crate::output::OutFrame;
use crate::{Beside, Ends, FrameOwner, Limits, Readiness, Settings, Slot, Stream, Table};

mod datagrams;
mod ends;
mod flow;
mod hostile;

const PORT: u16 = 80;
const MTU: u16 = 1500;

fn settings() -> Settings {
    Settings {
        guest_mac: [2, 0, 0, 0, 0, 15],
        gateway_mac: [2, 0, 0, 0, 0, 2],
        v4: Ends {
            guest: Ipv4Addr::new(10, 0, 2, 15),
            gateway: Ipv4Addr::new(10, 0, 2, 2),
        },
        v6: Some(Ends {
            guest: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 15),
            gateway: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2),
        }),
        mtu: MTU,
        beside: Beside::Nothing,
        limits: Limits {
            connections: 100,
            buffers: 4 << 20,
        },
        secret: [7; 16],
    }
}

/// A client's socket, which a test holds the other side of.
#[derive(Clone, Default)]
struct Client(Rc<RefCell<Socket>>);

#[derive(Default)]
struct Socket {
    /// What the client has sent and the table not read.
    sent: VecDeque<u8>,
    client_ended: bool,
    /// What the client has received.
    received: Vec<u8>,
    /// Bytes that it takes before it is full.
    room: usize,
    finished: bool,
    reset: bool,
    /// Why writing fails.
    broken: Option<ErrorKind>,
}

impl Stream for Client {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut socket = self.0.borrow_mut();
        if socket.sent.is_empty() && !socket.client_ended {
            return Err(ErrorKind::WouldBlock.into());
        }
        let count = bytes.len().min(socket.sent.len());
        for byte in &mut bytes[..count] {
            *byte = socket.sent.pop_front().unwrap();
        }
        Ok(count)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut socket = self.0.borrow_mut();
        assert!(!socket.finished, "nothing follows the end");
        if let Some(kind) = socket.broken {
            return Err(kind.into());
        }
        let count = bytes.len().min(socket.room);
        if count == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        socket.room -= count;
        socket.received.extend(&bytes[..count]);
        Ok(count)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.0.borrow_mut().finished = true;
        Ok(())
    }

    fn reset(self) {
        self.0.borrow_mut().reset = true;
    }
}

impl Client {
    fn received(&self) -> Vec<u8> {
        self.0.borrow().received.clone()
    }
}

/// How the guest treats segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Serves,
    /// It has no listener: every SYN is refused.
    Refuses,
    /// It takes no frames.
    Absent,
}

/// A guest with a listener, and the table that it is connected to.
struct World {
    table: Table<Client>,
    now: Instant,
    mood: Mood,
    pool: Pool,
    connections: HashMap<FourTuple, Connection>,
    /// Segments with data that went to the guest.
    frames: usize,
}

impl World {
    fn new() -> Self {
        Self::with(settings())
    }

    fn with(settings: Settings) -> Self {
        let mut table = Table::new(settings);
        let now = Instant::from_micros(1_000_000);
        let accepted = RxOffload {
            csum: true,
            ..RxOffload::default()
        };
        table.restart(accepted, now);
        Self {
            table,
            now,
            mood: Mood::Serves,
            pool: Pool::new(64 << 20),
            connections: HashMap::new(),
            frames: 0,
        }
    }

    fn connect(&mut self) -> (Slot, Client) {
        self.connect_from("127.0.0.1:40000".parse().unwrap())
    }

    fn connect_from(&mut self, from: SocketAddr) -> (Slot, Client) {
        let client = Client::default();
        client.0.borrow_mut().room = usize::MAX / 2;
        let opened = self.table.open(client.clone(), from, PORT, self.now);
        let slot = opened.unwrap_or_else(|_| panic!("no place"));
        self.run();
        (slot, client)
    }

    fn end(&mut self, slot: Slot, client: &Client) {
        client.0.borrow_mut().client_ended = true;
        self.tell(slot, true);
    }

    fn ready(&mut self, slot: Slot) {
        self.tell(slot, false);
    }

    /// As edges of a socket do: once for each change.
    fn tell(&mut self, slot: Slot, ended: bool) {
        let ready = Readiness {
            readable: true,
            writable: true,
            ended,
            failed: false,
        };
        self.table.host_ready(slot, ready, self.now);
        self.run();
    }

    fn send(&mut self, slot: Slot, client: &Client, bytes: &[u8]) {
        client.0.borrow_mut().sent.extend(bytes);
        self.ready(slot);
    }

    /// The guest's only connection.
    fn guest(&mut self) -> &mut Connection {
        assert_eq!(self.connections.len(), 1);
        self.connections.values_mut().next().unwrap()
    }

    /// What the guest has received.
    fn guest_reads(&mut self) -> Vec<u8> {
        let now = self.now;
        let mut all = vec![0; 1 << 20];
        let count = self.guest().recv(&mut all, now).unwrap_or(0);
        all.truncate(count);
        self.run();
        all
    }

    fn guest_sends(&mut self, bytes: &[u8]) {
        assert_eq!(self.guest().send(bytes).unwrap(), bytes.len());
        self.run();
    }

    /// Lets both sides exchange what they have, until neither has more.
    fn run(&mut self) {
        if self.mood == Mood::Absent {
            return;
        }
        loop {
            let mut is_quiet = true;
            while let Some(frame) = self.table.peek(self.now) {
                is_quiet = false;
                let bytes = frame.bytes.to_vec();
                self.table.consume();
                self.take(&bytes);
            }
            is_quiet &= !self.answer();
            if is_quiet {
                return;
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        let Ok(Frame::Tcp(tuple, bytes)) = Frame::parse(bytes) else {
            panic!("the host sends TCP");
        };
        let segment = Segment::parse(bytes).unwrap();
        self.frames += usize::from(!segment.payload.is_empty());
        if self.mood == Mood::Refuses {
            if let Some(reset) = segment.reset() {
                send(&mut self.table, &tuple, &reset, self.now);
            }
            return;
        }
        let (pool, now) = (&self.pool, self.now);
        let connection = self.connections.entry(tuple).or_insert_with(|| {
            assert!(segment.has(flags::SYN), "{segment:?}");
            let identity = Identity {
                secret: &Secret::new([1; 16]),
                tuple: &tuple,
            };
            Connection::accept(Config::default(), identity, &segment, pool, now)
        });
        connection.on_segment(now, &segment);
    }

    fn answer(&mut self) -> bool {
        let mut has_sent = false;
        for (tuple, connection) in &mut self.connections {
            while let Some(out) = connection.poll(self.now) {
                has_sent = true;
                send(&mut self.table, tuple, &out, self.now);
            }
        }
        self.table.settle(self.now);
        has_sent
    }

    /// Time passes, a deadline at a time.
    fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let guests = self
                .connections
                .values()
                .filter_map(Connection::next_deadline);
            let next = guests.chain(self.table.deadline()).min();
            self.now = next.unwrap_or(end).min(end).max(self.now);
            self.table.deadline_passed(self.now);
            self.run();
            if self.now >= end {
                return;
            }
        }
    }

    fn counted(&self, name: &str) -> u64 {
        use tare_devices::CounterSource as _;
        self.table.counters().snapshot()[name]
    }
}

/// Sends a segment of the guest's.
fn send(table: &mut Table<Client>, tuple: &FourTuple, out: &tare_tcp::Outgoing<'_>, now: Instant) {
    let mut frame = OutFrame::default();
    frame.begin(&settings(), tuple, out);
    frame.finish(RxOffload::default());
    assert_eq!(table.take(&frame.bytes, now), FrameOwner::Table);
}
