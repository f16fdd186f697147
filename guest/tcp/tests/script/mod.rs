//! Scripts in packetdrill's manner: segments are injected at given times, and
//! what is sent is compared. Sequence numbers are relative to each side's SYN.

#![allow(dead_code)] // each test takes a part

use std::net::SocketAddr;

use tare_tcp::options::{Options, Timestamps};
use tare_tcp::segment::flags;
use tare_tcp::time::{Duration, Instant};
use tare_tcp::{Config, Connection, FourTuple, Identity, Pool, Secret, Segment, Seq, State};

pub(crate) const ACK: u8 = flags::ACK;
pub(crate) const SYN: u8 = flags::SYN;
pub(crate) const RST: u8 = flags::RST;
pub(crate) const FIN: u8 = flags::FIN;
pub(crate) const PSH: u8 = flags::PSH;

pub(crate) const SECRET: Secret = Secret::new(*b"secret of a test");
/// The peer's initial sequence number.
const PEER: u32 = 0xffff_ff00;

/// A segment that was sent, with relative numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub flags: u8,
    pub seq: u32,
    pub ack: u32,
    pub window: u16,
    pub len: usize,
    pub options: Options,
}

/// A connection under test, its peer being the script.
pub(crate) struct Script {
    pub now: Instant,
    pub tcp: Connection,
    pub pool: Pool,
    iss: Seq,
    /// The peer's clock, if it uses timestamps.
    pub stamps: bool,
}

pub(crate) fn tuple() -> FourTuple {
    FourTuple {
        local: SocketAddr::from(([192, 0, 2, 1], 80)),
        remote: SocketAddr::from(([192, 0, 2, 2], 4000)),
    }
}

/// What the peer's SYN offers.
pub(crate) fn modern() -> Options {
    Options {
        mss: Some(1012),
        window_scale: Some(0),
        sack_permitted: true,
        ..Options::default()
    }
}

pub(crate) fn config() -> Config {
    Config {
        mss: 1012,
        ..Config::default()
    }
}

/// When a script begins.
const BEGIN: Instant = Instant::from_micros(10_000_000);

/// A connection that the peer's SYN with these options opens.
fn accept(config: Config, options: Options, pool: &Pool) -> Connection {
    let syn = Segment {
        seq: Seq(PEER),
        ack: Seq(0),
        flags: SYN,
        window: 65_535,
        options,
        payload: b"",
    };
    let tuple = tuple();
    let identity = Identity {
        secret: &SECRET,
        tuple: &tuple,
    };
    Connection::accept(config, identity, &syn, pool, BEGIN)
}

/// The options of the SYN-ACK of a connection with this configuration.
pub(crate) fn answer_to_syn(config: Config, options: Options) -> Options {
    let mut tcp = accept(config, options, &Pool::new(16 << 20));
    tcp.poll(BEGIN).expect("a SYN-ACK").options
}

impl Script {
    /// An open connection whose peer offered `options`: data segments carry 1,000
    /// bytes with timestamps and 1,012 without.
    pub(crate) fn open(options: Options) -> Self {
        Self::open_in(options, Pool::new(16 << 20))
    }

    /// An open connection with memory from `pool`.
    pub(crate) fn open_in(options: Options, pool: Pool) -> Self {
        let mut script = Self::half_open_in(options, pool);
        script.inject(ACK, 1, 1, b"");
        assert_eq!(script.tcp.state(), State::Established);
        script.nothing();
        script
    }

    /// An open connection over a link that cuts segments of up to `together` bytes.
    pub(crate) fn open_cutting(together: u16, options: Options) -> Self {
        let config = Config {
            together,
            ..config()
        };
        let mut script = Self::half_open_with(config, options, Pool::new(16 << 20));
        script.inject(ACK, 1, 1, b"");
        script.nothing();
        script
    }

    /// Right after the SYN-ACK.
    pub(crate) fn half_open(options: Options) -> Self {
        Self::half_open_in(options, Pool::new(16 << 20))
    }

    fn half_open_in(options: Options, pool: Pool) -> Self {
        Self::half_open_with(config(), options, pool)
    }

    fn half_open_with(config: Config, mut options: Options, pool: Pool) -> Self {
        let now = BEGIN;
        let stamps = options.timestamps.is_some();
        options.timestamps = stamps.then_some(Timestamps {
            value: 10_000,
            echo: 0,
        });
        let mut tcp = accept(config, options, &pool);
        let answer = tcp.poll(now).expect("a SYN-ACK");
        assert_eq!(answer.flags, SYN | ACK);
        assert_eq!(answer.ack, Seq(PEER) + 1);
        let iss = answer.seq;
        let mut script = Self {
            now,
            tcp,
            pool,
            iss,
            stamps,
        };
        script.wait(10);
        script
    }

    pub(crate) fn wait(&mut self, ms: u64) {
        self.now = self.now + Duration::from_millis(ms);
    }

    /// Goes to the next deadline; how many milliseconds that is.
    pub(crate) fn wait_for_deadline(&mut self) -> u64 {
        let due = self.tcp.next_deadline().expect("a deadline");
        let passed = due.since(self.now).as_millis();
        self.now = due;
        passed
    }

    pub(crate) fn segment<'a>(
        &self,
        bits: u8,
        seq: u32,
        ack: u32,
        payload: &'a [u8],
    ) -> Segment<'a> {
        let mut options = Options::default();
        if self.stamps {
            let value = (self.now.as_micros() / 1000) as u32;
            options.timestamps = Some(Timestamps { value, echo: 0 });
        }
        Segment {
            seq: Seq(PEER) + seq,
            ack: self.iss + ack,
            flags: bits,
            window: 65_535,
            options,
            payload,
        }
    }

    pub(crate) fn inject(&mut self, bits: u8, seq: u32, ack: u32, payload: &[u8]) {
        let segment = self.segment(bits, seq, ack, payload);
        self.tcp.on_segment(self.now, &segment);
    }

    /// An acknowledgement with SACK blocks.
    pub(crate) fn sack(&mut self, ack: u32, blocks: &[(u32, u32)]) {
        let mut segment = self.segment(ACK, 1, ack, b"");
        for (start, end) in blocks {
            segment
                .options
                .sack
                .push(self.iss + *start, self.iss + *end);
        }
        self.tcp.on_segment(self.now, &segment);
    }

    /// The next segment that is sent now.
    pub(crate) fn sent(&mut self) -> Option<Sent> {
        let out = self.tcp.poll(self.now)?;
        Some(Sent {
            flags: out.flags & !PSH,
            seq: out.seq.0.wrapping_sub(self.iss.0),
            ack: out.ack.0.wrapping_sub(PEER),
            window: out.window,
            len: out.payload_len(),
            options: out.options,
        })
    }

    /// All that is sent now, as (sequence number, length).
    pub(crate) fn data(&mut self) -> Vec<(u32, usize)> {
        std::iter::from_fn(|| self.sent())
            .map(|sent| (sent.seq, sent.len))
            .collect()
    }

    pub(crate) fn expect(&mut self, bits: u8, seq: u32, ack: u32, len: usize) -> Sent {
        let sent = self.sent().expect("a segment");
        let got = (sent.flags, sent.seq, sent.ack, sent.len);
        assert_eq!(got, (bits, seq, ack, len), "flags, seq, ack, len");
        sent
    }

    pub(crate) fn nothing(&mut self) {
        assert_eq!(self.sent(), None);
    }

    pub(crate) fn send(&mut self, len: usize) {
        assert_eq!(self.tcp.send(&vec![7; len]), Ok(len));
    }

    /// SACK blocks of a segment, relative.
    pub(crate) fn blocks(&self, sent: &Sent) -> Vec<(u32, u32)> {
        let relative = |seq: Seq| seq.0.wrapping_sub(PEER);
        let blocks = sent.options.sack.as_slice().iter();
        blocks
            .map(|(start, end)| (relative(*start), relative(*end)))
            .collect()
    }
}
