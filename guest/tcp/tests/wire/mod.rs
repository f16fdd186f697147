//! A wire between two connections, in simulated time: loss, delay, jitter,
//! reordering, duplicates, damage, a rate with a queue, and an MTU. The same
//! seed gives the same run.

#![allow(dead_code)] // each test takes a part

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;

use tare_tcp::segment::flags;
use tare_tcp::time::{Duration, Instant};
use tare_tcp::{Config, Connection, FourTuple, Identity, Outgoing, Pool, Secret, Segment};

use tare_tcp::wire::{Direction, Fate};
pub(crate) use tare_tcp::wire::{Impairment, Random};

/// Bytes of an IPv4 header.
const IP_HEADER: usize = 20;

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Arrival {
    at: u64,
    order: u64,
    to: usize,
    bytes: Vec<u8>,
}

/// Two ends, their wire and their clock.
pub(crate) struct World {
    pub now: Instant,
    pub ends: [Connection; 2],
    impairment: Impairment,
    directions: [Direction; 2],
    arrivals: BinaryHeap<Reverse<Arrival>>,
    random: Random,
    order: u64,
    /// Arrivals are handed over at multiples of this, as interrupts that are coalesced
    /// and CPUs that are busy do; 0 is at once.
    pub batch_us: u64,
}

pub(crate) const SECRET: Secret = Secret::new(*b"secret of a test");

pub(crate) fn tuple(local: usize) -> FourTuple {
    let ends = [
        SocketAddr::from(([10, 0, 0, 1], 40_000)),
        SocketAddr::from(([10, 0, 0, 2], 80)),
    ];
    FourTuple {
        local: ends[local],
        remote: ends[1 - local],
    }
}

impl World {
    /// End 0 connects to end 1, which answers its SYN when that arrives.
    pub(crate) fn new(impairment: Impairment, config: Config, seed: u64) -> Self {
        let now = Instant::from_micros(1_000_000);
        let pool = Pool::new(64 << 20);
        let mut client = connect(config, &pool, now);
        let syn = {
            let out = client.poll(now).expect("a SYN");
            let mut bytes = vec![0; out.wire_len()];
            out.write(40_000, 80, &mut bytes);
            bytes
        };
        let tuple = tuple(1);
        let identity = Identity {
            secret: &SECRET,
            tuple: &tuple,
        };
        let syn = Segment::parse(&syn).expect("a segment");
        let server = Connection::accept(config, identity, &syn, &pool, now);
        Self {
            now,
            ends: [client, server],
            impairment,
            directions: [Direction::new(impairment), Direction::new(impairment)],
            arrivals: BinaryHeap::new(),
            random: Random::new(seed),
            order: 0,
            batch_us: 0,
        }
    }

    /// Sends all that may be sent now.
    pub(crate) fn flush(&mut self) {
        for from in 0..2 {
            while let Some(out) = self.ends[from].poll(self.now) {
                for part in parts(&out) {
                    self.carry(from, part);
                }
            }
        }
    }

    fn carry(&mut self, from: usize, bytes: Vec<u8>) {
        let (now, size) = (self.now.as_micros(), bytes.len() + IP_HEADER);
        let arrivals = match self.directions[from].carry(&mut self.random, now, size) {
            Fate::TooLarge if self.impairment.reports_mtu => {
                let seq = Segment::parse(&bytes).expect("own segment").seq;
                let mss = self.impairment.mtu as u16 - 40;
                return self.ends[from].on_packet_too_big(seq, mss, self.now);
            }
            // A damaged segment is dropped for its checksum.
            Fate::TooLarge | Fate::Lost | Fate::Damaged(_) => return,
            Fate::Arrives(first, second) => [Some(first), second],
        };
        for at in arrivals.into_iter().flatten() {
            self.order += 1;
            self.arrivals.push(Reverse(Arrival {
                at: at.next_multiple_of(self.batch_us.max(1)),
                order: self.order,
                to: 1 - from,
                bytes: bytes.clone(),
            }));
        }
    }

    /// Goes to the next event and handles it; `false` when nothing will happen.
    pub(crate) fn step(&mut self) -> bool {
        self.flush();
        let arrival = self.arrivals.peek().map(|Reverse(arrival)| arrival.at);
        let deadlines = self.ends.iter().filter_map(Connection::next_deadline);
        let next = deadlines.map(Instant::as_micros).chain(arrival).min();
        let Some(next) = next else { return false };
        self.now = Instant::from_micros(next.max(self.now.as_micros()));
        while self
            .arrivals
            .peek()
            .is_some_and(|Reverse(a)| a.at <= self.now.as_micros())
        {
            let Some(Reverse(arrival)) = self.arrivals.pop() else {
                break;
            };
            let segment = Segment::parse(&arrival.bytes).expect("own segment");
            self.ends[arrival.to].on_segment(self.now, &segment);
            self.flush();
        }
        self.flush();
        true
    }

    /// Runs for `duration`.
    pub(crate) fn run_for(&mut self, duration: Duration) {
        let end = self.now + duration;
        while self.now < end && self.step() {}
    }
}

/// A segment as it is on the wire, or those that the link cuts it into.
fn parts(out: &Outgoing<'_>) -> Vec<Vec<u8>> {
    const NOT_LAST: u8 = !(flags::FIN | flags::PSH);
    let mut bytes = vec![0; out.wire_len()];
    out.write(1, 2, &mut bytes);
    if out.cut == 0 {
        return vec![bytes];
    }
    let (header, payload) = bytes.split_at(out.wire_len() - out.payload_len());
    let count = payload.len().div_ceil(out.cut.into());
    let chunks = payload.chunks(out.cut.into()).enumerate();
    let part = |(number, chunk): (usize, &[u8])| {
        let mut part = header.to_vec();
        let seq = out.seq + number as u32 * u32::from(out.cut);
        part[4..8].copy_from_slice(&seq.0.to_be_bytes());
        if number + 1 < count {
            part[13] &= NOT_LAST;
        }
        [part, chunk.to_vec()].concat()
    };
    chunks.map(part).collect()
}

pub(crate) fn connect(config: Config, pool: &Pool, now: Instant) -> Connection {
    let tuple = tuple(0);
    let identity = Identity {
        secret: &SECRET,
        tuple: &tuple,
    };
    Connection::connect(config, identity, pool, now)
}

/// What one transfer came to.
#[derive(Debug)]
pub(crate) struct Transferred {
    pub micros: u64,
    pub sent: u64,
    pub retransmitted: u64,
    pub timeouts: u64,
}

/// The byte at `at` of every transfer.
pub(crate) fn byte(at: usize) -> u8 {
    (at.wrapping_mul(31) ^ at >> 8 ^ at >> 16) as u8
}

/// End 1 sends `len` bytes and closes; end 0 checks each and closes.
pub(crate) fn transfer(world: &mut World, len: usize) -> Transferred {
    let start = world.now;
    let (mut sent, mut got) = (0, 0);
    let mut buf = vec![0; 64 << 10];
    let limit = start + Duration::from_secs(600);
    while world.now < limit {
        while sent < len && world.ends[1].send_queue() < world.ends[1].send_capacity() {
            let chunk: Vec<u8> = (sent..len.min(sent + 16_384)).map(byte).collect();
            match world.ends[1].send(&chunk).expect("sending goes on") {
                0 => break,
                n => sent += n,
            }
        }
        if sent == len {
            world.ends[1].close();
        }
        let n = world.ends[0]
            .recv(&mut buf, world.now)
            .expect("receiving goes on");
        for (at, value) in buf[..n].iter().enumerate() {
            assert_eq!(*value, byte(got + at), "byte {}", got + at);
        }
        got += n;
        if n > 0 {
            continue;
        }
        if got == len && world.ends[0].is_finished() {
            world.ends[0].close();
            let statistics = world.ends[1].statistics();
            let outcome = Transferred {
                micros: world.now.since(start).as_micros(),
                sent: statistics.segments_sent,
                retransmitted: statistics.segments_retransmitted,
                timeouts: statistics.timeouts,
            };
            return outcome;
        }
        assert!(
            world.step(),
            "the connection sleeps with {got} of {len} bytes received"
        );
    }
    panic!("{got} of {len} bytes after 600 s");
}
