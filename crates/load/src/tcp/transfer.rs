//! One transfer in real time: two ends, and the wire between them in this thread.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tare_tcp::wire::{Direction, Fate, Impairment, Random};

use super::linux::{self, End, Received};
use super::ours::Ours;
use crate::interrupt::Interrupt;

const PORT: u16 = 80;
const SENDER: &str = "192.0.2.1/24";
const RECEIVER: &str = "192.0.2.2/24";
/// Longest wait for an event, so that an end is noticed.
const SLICE_US: u64 = 20_000;
const ETHERNET_HEADER: usize = 14;
const PROTOCOL_TCP: u8 = 6;

/// Whose TCP sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arm {
    /// This project's.
    Tare,
    /// The host kernel's.
    Linux,
}

impl Arm {
    /// Both, as their places in rounds count.
    pub const BOTH: [Self; 2] = [Self::Tare, Self::Linux];

    /// Its name in figures.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tare => "tare",
            Self::Linux => "linux",
        }
    }
}

/// What a transfer came to.
#[derive(Clone, Copy, Debug)]
pub struct TransferStats {
    /// What the receiver got.
    pub received: Received,
    /// Segments with data that the sender gave to the wire.
    pub segments: u64,
    /// Those that held only what it had sent before.
    pub again: u64,
}

/// The sending end.
enum Sender {
    Ours(Box<Ours>),
    Linux(End<()>),
}

/// A frame on its way; the order is that of sending where times are equal.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Arrival {
    at_us: u64,
    order: u64,
    is_to_receiver: bool,
    frame: Vec<u8>,
}

struct Wire {
    begin: Instant,
    directions: [Direction; 2],
    random: Random,
    arrivals: BinaryHeap<Reverse<Arrival>>,
    order: u64,
    count: Count,
}

/// Sends `bytes` bytes from `arm` to Linux over a wire that is `impairment`, at most for
/// `limit`. The threads of wire and ends have priority over others of the host, whose delays would
/// else be a second impairment.
pub fn transfer(
    arm: Arm,
    impairment: Impairment,
    (bytes, seed): (usize, u64),
    limit: Duration,
    interrupt: &Interrupt,
) -> io::Result<TransferStats> {
    thread::scope(|scope| {
        let wire = scope.spawn(|| {
            linux::go_before_others()?;
            carry(arm, impairment, (bytes, seed), limit, interrupt)
        });
        let panicked = |_| io::Error::other("the wire panicked");
        wire.join().map_err(panicked)?
    })
}

fn carry(
    arm: Arm,
    impairment: Impairment,
    (bytes, seed): (usize, u64),
    limit: Duration,
    interrupt: &Interrupt,
) -> io::Result<TransferStats> {
    let port = SocketAddr::from(([192, 0, 2, 1], PORT));
    let mut sender = match arm {
        Arm::Tare => {
            let ours = Ours::new(SENDER, PORT, bytes, seed);
            Sender::Ours(Box::new(ours.ok_or(io::ErrorKind::InvalidInput)?))
        }
        Arm::Linux => Sender::Linux(linux::sender(SENDER, port, bytes)?),
    };
    let receiver = linux::receiver(RECEIVER, port, limit)?;
    let mut wire = Wire::new(impairment, seed);
    let mut carried = Ok(());
    while !receiver.is_finished() && wire.begin.elapsed() < limit && carried.is_ok() {
        carried = wire.turn(&mut sender, &receiver.tap);
        if interrupt.check().is_err() {
            break;
        }
    }
    let received = receiver.stop();
    if let Sender::Linux(end) = sender {
        let stopped = end.stop();
        carried?;
        let received = received?;
        stopped?;
        return Ok(wire.stats(received));
    }
    carried?;
    Ok(wire.stats(received?))
}

impl Wire {
    fn new(impairment: Impairment, seed: u64) -> Self {
        Self {
            begin: Instant::now(),
            directions: [Direction::new(impairment), Direction::new(impairment)],
            random: Random::new(seed),
            arrivals: BinaryHeap::new(),
            order: 0,
            count: Count::default(),
        }
    }

    fn stats(&self, received: Received) -> TransferStats {
        TransferStats {
            received,
            segments: self.count.segments,
            again: self.count.again,
        }
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Waits for the next event, and carries what there is.
    fn turn(&mut self, sender: &mut Sender, receiver: &File) -> io::Result<()> {
        self.wait(sender, receiver)?;
        self.deliver(sender, receiver)?;
        match sender {
            Sender::Linux(end) => self.collect(&end.tap, true)?,
            Sender::Ours(ours) => {
                ours.turn();
                while let Some(frame) = ours.send() {
                    self.carry(frame, true);
                }
            }
        }
        self.collect(receiver, false)
    }

    fn wait(&self, sender: &Sender, receiver: &File) -> io::Result<()> {
        let next = self
            .arrivals
            .peek()
            .map(|Reverse(arrival)| arrival.at_us)
            .map(|at| at.saturating_sub(self.now_us()));
        let mut files = vec![PollFd::from_borrowed_fd(receiver.as_fd(), PollFlags::IN)];
        let due = match sender {
            Sender::Ours(ours) => ours.due_us(),
            Sender::Linux(end) => {
                files.push(PollFd::from_borrowed_fd(end.tap.as_fd(), PollFlags::IN));
                None
            }
        };
        let wait = [next, due, Some(SLICE_US)].into_iter().flatten().min();
        let timeout = Duration::from_micros(wait.unwrap_or(SLICE_US));
        match poll(&mut files, Timespec::try_from(timeout).ok().as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Frames that an end has sent.
    fn collect(&mut self, mut tap: &File, is_to_receiver: bool) -> io::Result<()> {
        let mut buf = [0; 2048];
        loop {
            match tap.read(&mut buf) {
                Ok(n) => self.carry(buf[..n].to_vec(), is_to_receiver),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    fn carry(&mut self, mut frame: Vec<u8>, is_to_receiver: bool) {
        let now = self.now_us();
        // ARP is not part of what is compared.
        if !is_tcp(&frame) {
            return self.send(now, is_to_receiver, frame);
        }
        if is_to_receiver {
            self.count.note(&frame);
        }
        let direction = &mut self.directions[usize::from(is_to_receiver)];
        let bytes = frame.len() - ETHERNET_HEADER;
        match direction.carry(&mut self.random, now, bytes) {
            Fate::TooLarge | Fate::Lost => {}
            Fate::Damaged(at) => {
                // In TCP's header or its data.
                let room = (bytes - 20) as u64;
                let place = ETHERNET_HEADER + 20 + (self.random.draw() % room) as usize;
                frame[place] ^= 1 << (self.random.draw() & 7);
                self.send(at, is_to_receiver, frame);
            }
            Fate::Arrives(first, second) => {
                if let Some(second) = second {
                    self.send(second, is_to_receiver, frame.clone());
                }
                self.send(first, is_to_receiver, frame);
            }
        }
    }

    fn send(&mut self, at_us: u64, is_to_receiver: bool, frame: Vec<u8>) {
        self.order += 1;
        self.arrivals.push(Reverse(Arrival {
            at_us,
            order: self.order,
            is_to_receiver,
            frame,
        }));
    }

    /// Hands over what has arrived. An end whose queue is full loses it, as a card does.
    fn deliver(&mut self, sender: &mut Sender, receiver: &File) -> io::Result<()> {
        let now = self.now_us();
        let is_due = |arrival: &&Reverse<Arrival>| arrival.0.at_us <= now;
        while self.arrivals.peek().filter(is_due).is_some() {
            let Some(Reverse(arrival)) = self.arrivals.pop() else {
                break;
            };
            match sender {
                _ if arrival.is_to_receiver => write(receiver, &arrival.frame)?,
                Sender::Linux(end) => write(&end.tap, &arrival.frame)?,
                Sender::Ours(ours) => ours.take(arrival.frame),
            }
        }
        Ok(())
    }
}

fn write(mut tap: &File, frame: &[u8]) -> io::Result<()> {
    match tap.write(frame) {
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        _ => Ok(()),
    }
}

fn is_tcp(frame: &[u8]) -> bool {
    frame.get(12..14) == Some(&[8, 0]) && frame.get(23) == Some(&PROTOCOL_TCP)
}

/// What the sender put on the wire.
#[derive(Debug, Default)]
struct Count {
    segments: u64,
    again: u64,
    /// Behind the last byte sent so far.
    highest: Option<u32>,
}

impl Count {
    fn note(&mut self, frame: &[u8]) {
        let Some((seq, data)) = sequence(frame) else {
            return;
        };
        if data == 0 {
            return;
        }
        let end = seq.wrapping_add(data);
        let highest = self.highest.unwrap_or(seq);
        let is_new = end.wrapping_sub(highest).cast_signed() > 0;
        self.segments += 1;
        self.again += u64::from(!is_new);
        self.highest = Some(if is_new { end } else { highest });
    }
}

/// Sequence number and bytes of data of a TCP segment in IPv4.
fn sequence(frame: &[u8]) -> Option<(u32, u32)> {
    let ip = frame.get(ETHERNET_HEADER..)?;
    let header = usize::from(ip.first()? & 15) * 4;
    let total = usize::from(u16::from_be_bytes(*ip.get(2..)?.first_chunk()?));
    let tcp = ip.get(header..total)?;
    let seq = u32::from_be_bytes(*tcp.get(4..)?.first_chunk()?);
    let data = tcp.len().checked_sub(usize::from(tcp.get(12)? >> 4) * 4)?;
    Some((seq, u32::try_from(data).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A segment of 10 bytes of data with this sequence number.
    fn segment(seq: u32) -> Vec<u8> {
        let mut frame = vec![0; 14 + 20 + 20 + 10];
        frame[12] = 8;
        frame[14] = 0x45;
        frame[17] = 50;
        frame[23] = PROTOCOL_TCP;
        frame[38..42].copy_from_slice(&seq.to_be_bytes());
        frame[46] = 0x50;
        frame
    }

    #[test]
    fn data_that_was_sent_before_is_counted() {
        let mut count = Count::default();
        for seq in [u32::MAX - 9, 0, 10, 0, 20, 25, 10] {
            assert!(is_tcp(&segment(seq)));
            count.note(&segment(seq));
        }
        assert_eq!((count.segments, count.again), (7, 2));
        assert_eq!(sequence(&segment(7)), Some((7, 10)));
        assert_eq!(sequence(&[0; 20]), None);
    }
}
