//! [`Table`]: the connections, by slot and by the ends that a frame names.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use tare_devices::net::{RxFrame, RxOffload};
use tare_fragments::{Fragment, Fragments, Taken};
use tare_tcp::segment::{Segment, flags};
use tare_tcp::time::{Duration, Instant};
use tare_tcp::{Connection, FourTuple, Identity, Loss, Pool, Secret, State};

use crate::datagrams::{Answer, DatagramClient, Datagrams};
use crate::deadlines::Deadlines;
use crate::frame::{self, Frame, Malformed};
use crate::output::OutFrame;
use crate::relay::{Relay, Remains, Stream, Watched};
use crate::{Beside, ForwardCounters, Settings, neighbour};

/// Answers of the table itself (resets, hardware addresses) that wait for room; a guest that asks
/// for more and takes none gets no more.
const ANSWERS_MAX: usize = 64;
/// Ports for clients whose own port is taken (RFC 6335, 6: dynamic ports).
const DYNAMIC_PORTS: std::ops::RangeInclusive<u16> = 49_152..=65_535;

/// How long after a guest's driver began a port counts as not served yet: its clients wait.
const START_LIMIT: Duration = Duration::from_secs(10);
/// Pause before such a guest is tried again: the first, which doubles, and the longest.
const RETRY_FIRST_MS: u64 = 10;
const RETRY_LONGEST_MS: u64 = 500;
/// Tries after which a port at which nothing listens is reported: after 1.13 s, when most programs have begun.
const REPORT_RETRIES: u32 = 7;

/// A connection's place.
pub type Slot = u32;

/// What a stream may be ready for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// Data, or the client's end.
    pub readable: bool,
    /// Room.
    pub writable: bool,
    /// The client has finished.
    pub ended: bool,
    /// The client has reset it.
    pub failed: bool,
}

/// Whose a frame of the guest is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrameOwner<'a> {
    /// The table: it was taken, or dropped and counted.
    Table,
    /// A client of a UDP port.
    Client(Answer<'a>),
    /// passt: it belongs to no connection.
    Passt,
}

/// All connections of one guest.
#[derive(Debug)]
pub struct Table<S> {
    settings: Settings,
    secret: Secret,
    pool: Pool,
    relays: Vec<Option<Relay<S>>>,
    free: Vec<Slot>,
    open: usize,
    by_ends: HashMap<FourTuple, Slot>,
    /// When the guest's driver began.
    began: Instant,
    /// Ports of the guest that have answered since.
    served: HashSet<u16>,
    /// Ports of the guest that a client waits at and nothing listens at, each once, and those to be reported.
    closed: HashSet<u16>,
    closed_reports: Vec<u16>,
    next_port: u16,
    deadlines: Deadlines,
    /// Connections that may have output.
    queue: VecDeque<Slot>,
    /// Connections that have taken segments since the last [`Table::settle`].
    touched: Vec<Slot>,
    /// Connections that wait for memory.
    starved: VecDeque<Slot>,
    /// Connections whose streams must be watched for more.
    unwatched: Vec<Slot>,
    answers: VecDeque<Vec<u8>>,
    datagrams: Datagrams,
    /// Answers that come in fragments.
    fragments: Fragments,
    /// Of the last datagram.
    identification: u16,
    /// Whether a datagram goes before a segment: they take turns.
    is_datagrams_turn: bool,
    accepted: RxOffload,
    out: OutFrame,
    has_out: bool,
    counters: Arc<ForwardCounters>,
}

impl<S: Stream> Table<S> {
    /// A table without connections.
    pub fn new(settings: Settings) -> Self {
        Self {
            secret: Secret::new(settings.secret),
            pool: Pool::new(settings.limits.buffers),
            relays: Vec::new(),
            free: Vec::new(),
            open: 0,
            by_ends: HashMap::new(),
            began: Instant::default(),
            served: HashSet::new(),
            closed: HashSet::new(),
            closed_reports: Vec::new(),
            next_port: *DYNAMIC_PORTS.start(),
            deadlines: Deadlines::default(),
            queue: VecDeque::new(),
            touched: Vec::new(),
            starved: VecDeque::new(),
            unwatched: Vec::new(),
            answers: VecDeque::new(),
            datagrams: Datagrams::default(),
            fragments: Fragments::default(),
            identification: u16::from_be_bytes([settings.secret[0], settings.secret[1]]),
            is_datagrams_turn: false,
            accepted: RxOffload::default(),
            out: OutFrame::default(),
            has_out: false,
            counters: Arc::default(),
            settings,
        }
    }

    /// Its counters, shared.
    pub fn counters(&self) -> Arc<ForwardCounters> {
        Arc::clone(&self.counters)
    }

    /// Connections that there are.
    pub fn open_connections(&self) -> usize {
        self.open
    }

    /// Bytes of all buffers.
    pub fn buffered(&self) -> usize {
        self.pool.used()
    }

    /// Whether another connection has a place.
    pub fn has_room(&self) -> bool {
        self.open < self.settings.limits.connections
    }

    /// Who else is on the wire from here on.
    pub fn set_beside(&mut self, beside: Beside) {
        self.settings.beside = beside;
    }

    fn stream(&self, slot: Slot) -> Option<&S> {
        self.relays.get(slot as usize)?.as_ref()?.stream.as_ref()
    }

    /// Another driver of the guest begins, or the same one again: its connections are gone. Frames
    /// to it may use the offloads that it accepts.
    pub fn restart(&mut self, accepted: RxOffload, now: Instant) {
        self.accepted = accepted;
        self.began = now;
        self.served.clear();
        self.closed.clear();
        self.closed_reports.clear();
        self.has_out = false;
        self.answers.clear();
        self.fragments = Fragments::default();
        self.datagrams.clear();
        self.queue.clear();
        self.touched.clear();
        self.starved.clear();
        self.unwatched.clear();
        for slot in 0..self.relays.len() as Slot {
            self.remove(slot, Remains::Loss);
        }
    }

    /// Opens a connection to the guest's `port` for a client; `Err` gives the stream back if there
    /// is no place for it.
    pub fn open(
        &mut self,
        stream: S,
        client: SocketAddr,
        port: u16,
        now: Instant,
    ) -> Result<Slot, S> {
        let tuple = match self.settings.tuple(client, port) {
            Some(tuple) if self.has_room() => free_tuple(&mut self.next_port, tuple, |it| {
                self.by_ends.contains_key(it)
            }),
            _ => None,
        };
        let Some(tuple) = tuple else {
            self.counters.forward_refused.increment();
            return Err(stream);
        };
        let relay = Relay::new(tuple, self.connection(&tuple, now), stream);
        let slot = self.free.pop().unwrap_or(self.relays.len() as Slot);
        match self.relays.get_mut(slot as usize) {
            Some(place) => *place = Some(relay),
            None => self.relays.push(Some(relay)),
        }
        self.open += 1;
        self.by_ends.insert(tuple, slot);
        self.counters.forward_opened.increment();
        self.enqueue(slot);
        Ok(slot)
    }

    fn connection(&self, tuple: &FourTuple, now: Instant) -> Connection {
        let identity = Identity {
            secret: &self.secret,
            tuple,
        };
        let config = self.settings.tcp(tuple, self.accepted);
        let mut tcp = Connection::connect(config, identity, &self.pool, now);
        // The client's writes go together as they came: nothing is gained by waiting for more.
        tcp.set_nodelay(true);
        tcp
    }

    /// Whether datagrams for the guest have room: until then they wait in their sockets.
    pub fn has_datagram_room(&self) -> bool {
        self.datagrams.has_room()
    }

    /// Takes a client's datagram from one of the host's UDP sockets, for the guest's `port`. One that is longer than
    /// a packet goes in fragments, by IPv6 not; what cannot go, or comes from an address that the guest cannot
    /// answer, is dropped and counted.
    pub fn datagram(&mut self, client: DatagramClient, port: u16, bytes: &[u8], now: Instant) {
        if !self.datagrams.has_room()
            || bytes.len() > self.settings.longest_datagram(client.address.ip())
        {
            return self.counters.forward_datagrams_dropped.increment();
        }
        let ends = self.datagrams.heard(client, now).or_else(|| {
            let ends = self.settings.tuple(client.address, port)?;
            let taken = |ends: &FourTuple| self.datagrams.is_taken(ends);
            let ends = free_tuple(&mut self.next_port, ends, taken)?;
            self.datagrams.insert(client, ends, now);
            Some(ends)
        });
        let Some(ends) = ends else {
            return self.counters.forward_datagrams_dropped.increment();
        };
        self.counters.forward_datagrams_in.increment();
        let mut frame = OutFrame::default();
        frame.begin_datagram(&self.settings, &ends, bytes);
        frame.finish(RxOffload::default());
        self.identification = self.identification.wrapping_add(1);
        for fragment in frame.into_fragments(self.settings.mtu, self.identification) {
            self.datagrams.push(fragment);
        }
    }

    /// A stream has become ready.
    pub fn host_ready(&mut self, slot: Slot, ready: Readiness, now: Instant) {
        let Some(relay) = relay(&mut self.relays, slot) else {
            return;
        };
        relay.readable |= ready.readable;
        relay.writable |= ready.writable;
        relay.end_is_near |= ready.ended;
        if ready.failed {
            relay.abort();
        }
        self.pump(slot, now);
        self.feed(now);
    }

    /// Moves what can be moved. Returns whether that was not stopped by a lack of memory.
    fn pump(&mut self, slot: Slot, now: Instant) -> bool {
        let Some(relay) = relay(&mut self.relays, slot) else {
            return true;
        };
        let was_starved = relay.is_starved;
        relay.pump(now, &self.counters);
        if relay.wants_more().is_some() {
            self.unwatched.push(slot);
        }
        let is_starved = relay.is_starved;
        if is_starved && !was_starved {
            self.starved.push_back(slot);
        }
        self.enqueue(slot);
        !is_starved
    }

    /// Memory may have become free for those that wait for it.
    fn feed(&mut self, now: Instant) {
        while let Some(slot) = self.starved.front().copied() {
            // It may have ended since, and another may have its place.
            if !self.pump(slot, now) {
                return;
            }
            self.starved.pop_front();
        }
    }

    /// Takes a frame of the guest, if it is for a connection. [`Table::settle`] follows after the
    /// last one of a batch.
    pub fn take<'a>(&mut self, frame: &'a [u8], now: Instant) -> FrameOwner<'a> {
        let found = Frame::parse(frame);
        if let Ok(Frame::Udp(ends, bytes)) = found
            && let Some(answer) = self.answer_to_client(&ends, bytes.into(), now)
        {
            return FrameOwner::Client(answer);
        }
        if let Ok(Frame::Part(to)) = found
            && self.datagrams.has_client_at(to)
        {
            return match self.part(frame, now) {
                Some(answer) => FrameOwner::Client(answer),
                None => FrameOwner::Table,
            };
        }
        if let Ok(Frame::Tcp(tuple, bytes)) = found
            && let Some(slot) = self.by_ends.get(&tuple).copied()
        {
            self.segment(slot, bytes, now);
            return FrameOwner::Table;
        }
        if self.is_for_passt(found) {
            return FrameOwner::Passt;
        }
        match found {
            Ok(Frame::Tcp(tuple, bytes)) => self.stray(&tuple, bytes),
            Ok(Frame::Question(question)) => {
                if let Some(answer) = neighbour::answer(&self.settings, question) {
                    self.answer(answer);
                }
            }
            Ok(Frame::Udp(..) | Frame::Part(_) | Frame::Datagram(_) | Frame::Other) => {
                self.counters.forward_unclaimed.increment()
            }
            Err(Malformed) => self.counters.forward_malformed.increment(),
        }
        FrameOwner::Table
    }

    fn answer_to_client<'a>(
        &mut self,
        ends: &FourTuple,
        bytes: Cow<'a, [u8]>,
        now: Instant,
    ) -> Option<Answer<'a>> {
        let client = self.datagrams.client(ends, now)?;
        self.counters.forward_datagrams_out.increment();
        Some(Answer { client, bytes })
    }

    /// Takes a fragment to an address of clients; an answer, once all of it is there.
    fn part<'a>(&mut self, frame: &[u8], now: Instant) -> Option<Answer<'a>> {
        let found =
            Fragment::of(frame).filter(|it| self.settings.v4.guest.octets() == it.key.source);
        let bytes = found.and_then(|it| frame.get(usize::from(it.start)..usize::from(it.end)));
        let (Some(found), Some(bytes)) = (found, bytes) else {
            self.counters.forward_malformed.increment();
            return None;
        };
        let since = core::time::Duration::from_micros(now.as_micros());
        let taken = self.fragments.take(&found, bytes, |_| true, since);
        let dropped = self.fragments.take_dropped();
        self.counters.forward_fragments_dropped.add(dropped);
        let Taken::Complete(packet) = taken else {
            return None;
        };
        match frame::ipv4(&packet) {
            Ok(Frame::Udp(ends, bytes)) => {
                let answer = self.answer_to_client(&ends, bytes.to_vec().into(), now);
                if answer.is_none() {
                    self.counters.forward_unclaimed.increment();
                }
                answer
            }
            _ => {
                self.counters.forward_malformed.increment();
                None
            }
        }
    }

    /// Whether passt gets a frame that belongs to no connection: all of them once it runs, and before only
    /// what it must start for. A guest that serves others sends none of these by itself.
    fn is_for_passt(&self, frame: Result<Frame<'_>, Malformed>) -> bool {
        match (self.settings.beside, frame) {
            (Beside::Nothing, _) => false,
            (Beside::Passt, _) => true,
            (Beside::WaitingPasst, Ok(Frame::Tcp(tuple, bytes))) => {
                self.settings.reaches(tuple.local.ip())
                    && Segment::parse(bytes).is_ok_and(|segment| opens(&segment))
            }
            (Beside::WaitingPasst, Ok(Frame::Udp(ends, _))) => {
                self.settings.reaches(ends.local.ip())
            }
            (Beside::WaitingPasst, Ok(Frame::Part(to) | Frame::Datagram(to))) => {
                self.settings.reaches(to)
            }
            (Beside::WaitingPasst, Ok(Frame::Question(question))) => {
                neighbour::is_about_others(&self.settings, question)
            }
            (Beside::WaitingPasst, Ok(Frame::Other) | Err(Malformed)) => false,
        }
    }

    fn segment(&mut self, slot: Slot, bytes: &[u8], now: Instant) {
        let Ok(segment) = Segment::parse(bytes) else {
            return self.counters.forward_malformed.increment();
        };
        if let Some(relay) = relay(&mut self.relays, slot) {
            let was_opening = relay.tcp.state() == State::SynSent;
            relay.tcp.on_segment(now, &segment);
            if was_opening && relay.tcp.state() == State::Established {
                self.served.insert(relay.tuple.remote.port());
                // Most clients speak first, and at once.
                relay.readable = true;
            }
            if self.touched.last() != Some(&slot) {
                self.touched.push(slot);
            }
        }
    }

    /// Refuses a connection that the guest opens, and ends one that is not known any more.
    fn stray(&mut self, tuple: &FourTuple, bytes: &[u8]) {
        let Ok(segment) = Segment::parse(bytes) else {
            return self.counters.forward_malformed.increment();
        };
        self.counters.forward_strays.increment();
        if let Some(reset) = segment.reset() {
            let mut frame = OutFrame::default();
            frame.begin(&self.settings, tuple, &reset);
            frame.finish(RxOffload::default());
            self.answer(frame.bytes);
        }
    }

    fn answer(&mut self, frame: Vec<u8>) {
        if self.answers.len() < ANSWERS_MAX {
            self.answers.push_back(frame);
        }
    }

    /// A port of the guest that clients wait at and nothing has listened at since its driver began; each is reported
    /// once.
    pub fn next_closed_port(&mut self) -> Option<u16> {
        self.closed_reports.pop()
    }

    /// A stream to be watched for more than until now: for what, and before.
    pub fn watch_next(&mut self) -> Option<(Slot, &S, [Watched; 2])> {
        while let Some(slot) = self.unwatched.pop() {
            let relay = self.relays.get_mut(slot as usize)?.as_mut();
            let wanted = relay.and_then(|relay| {
                let wanted = relay.wants_more()?;
                Some([wanted, std::mem::replace(&mut relay.watched, wanted)])
            });
            if let Some(change) = wanted {
                return Some((slot, self.stream(slot)?, change));
            }
        }
        None
    }

    /// Gives the streams what the last frames have brought.
    pub fn settle(&mut self, now: Instant) {
        while let Some(slot) = self.touched.pop() {
            self.pump(slot, now);
        }
        self.feed(now);
    }

    /// Whether frames for the guest may be there.
    pub fn has_output(&self) -> bool {
        self.has_out
            || !self.queue.is_empty()
            || !self.answers.is_empty()
            || !self.datagrams.is_empty()
    }

    /// The next frame for the guest: the same one until [`Table::consume`].
    pub fn peek(&mut self, now: Instant) -> Option<RxFrame<'_>> {
        if !self.has_out {
            self.has_out = self.next_frame(now);
        }
        self.has_out.then_some(RxFrame {
            header: self.out.header,
            bytes: &mut self.out.bytes,
        })
    }

    /// Drops the frame that [`Table::peek`] gave.
    pub fn consume(&mut self) {
        self.has_out = false;
    }

    fn next_frame(&mut self, now: Instant) -> bool {
        if let Some(answer) = self.answers.pop_front() {
            self.out.set(answer);
            return true;
        }
        self.is_datagrams_turn = !self.is_datagrams_turn;
        (self.is_datagrams_turn && self.next_datagram())
            || self.next_segment(now)
            || self.next_datagram()
    }

    fn next_datagram(&mut self) -> bool {
        let Some(datagram) = self.datagrams.pop() else {
            return false;
        };
        self.out.set(datagram);
        true
    }

    fn next_segment(&mut self, now: Instant) -> bool {
        while let Some(slot) = self.queue.pop_front() {
            let Some(relay) = relay(&mut self.relays, slot) else {
                continue;
            };
            if fill(&mut self.out, relay, &self.settings, self.accepted, now) {
                self.queue.push_back(slot);
                return true;
            }
            relay.is_queued = false;
            self.counters.forward_resent.add(relay.take_resent());
            let is_early = now.since(self.began) < START_LIMIT;
            let port = relay.tuple.remote.port();
            if relay.stream.is_some()
                && relay.retry_at.is_none()
                && relay.tcp.loss() == Some(Loss::Refused)
                && !self.served.contains(&port)
            {
                if is_early {
                    let pause = (RETRY_FIRST_MS << relay.retries.min(10)).min(RETRY_LONGEST_MS);
                    relay.retries += 1;
                    relay.retry_at = Some(now + Duration::from_millis(pause));
                }
                if (!is_early || relay.retries > REPORT_RETRIES) && self.closed.insert(port) {
                    self.closed_reports.push(port);
                }
            }
            let next = relay.retry_at.or(relay.tcp.next_deadline());
            let old = std::mem::replace(&mut relay.deadline, next);
            let remains = relay.remains();
            self.deadlines.change(slot, old, next);
            if remains != Remains::All {
                self.remove(slot, remains);
                // Its memory is free for those that wait for some.
                self.feed(now);
            }
        }
        false
    }

    /// When [`Table::deadline_passed`] is to be called.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadlines.earliest()
    }

    /// Time has passed: acknowledgements and retransmissions may be due.
    pub fn deadline_passed(&mut self, now: Instant) {
        let due: Vec<Slot> = self.deadlines.due(now).collect();
        for slot in due {
            self.retry(slot, now);
            self.enqueue(slot);
        }
    }

    /// Opens a connection again that the guest refused before it was listening, while its client is
    /// there: no one would end one without a client.
    fn retry(&mut self, slot: Slot, now: Instant) {
        let Some(tuple) = relay(&mut self.relays, slot)
            .filter(|relay| relay.stream.is_some())
            .filter(|relay| relay.retry_at.is_some_and(|at| at <= now))
            .map(|relay| relay.tuple)
        else {
            return;
        };
        let tcp = self.connection(&tuple, now);
        if let Some(relay) = relay(&mut self.relays, slot) {
            relay.reopen(tcp);
        }
    }

    fn enqueue(&mut self, slot: Slot) {
        if let Some(relay) = relay(&mut self.relays, slot)
            && !std::mem::replace(&mut relay.is_queued, true)
        {
            self.queue.push_back(slot);
        }
    }

    fn remove(&mut self, slot: Slot, remains: Remains) {
        let Some(relay) = self.relays.get_mut(slot as usize).and_then(Option::take) else {
            return;
        };
        self.deadlines.change(slot, relay.deadline, None);
        self.by_ends.remove(&relay.tuple);
        if relay.is_starved {
            self.starved.retain(|waiting| *waiting != slot);
        }
        self.free.push(slot);
        self.open -= 1;
        match remains {
            Remains::Nothing => self.counters.forward_closed.increment(),
            Remains::Aborted => self.counters.forward_aborted.increment(),
            Remains::Loss | Remains::All => {
                self.counters.forward_lost.increment();
                if let Some(stream) = relay.stream {
                    stream.reset();
                }
            }
        }
    }
}

fn relay<S>(relays: &mut [Option<Relay<S>>], slot: Slot) -> Option<&mut Relay<S>> {
    relays.get_mut(slot as usize)?.as_mut()
}

/// The same ends with the client's port, or another one if they are taken.
fn free_tuple(
    next_port: &mut u16,
    mut tuple: FourTuple,
    is_taken: impl Fn(&FourTuple) -> bool,
) -> Option<FourTuple> {
    let mut tries = DYNAMIC_PORTS.len();
    while is_taken(&tuple) {
        tries = tries.checked_sub(1)?;
        tuple.local.set_port(*next_port);
        *next_port = match next_port.checked_add(1) {
            Some(port) => port,
            None => *DYNAMIC_PORTS.start(),
        };
    }
    Some(tuple)
}

/// Whether it opens a connection.
fn opens(segment: &Segment<'_>) -> bool {
    segment.flags & (flags::SYN | flags::ACK | flags::RST) == flags::SYN
}

/// Fills the frame with what the connection has to send, if it has something.
fn fill<S>(
    out: &mut OutFrame,
    relay: &mut Relay<S>,
    settings: &Settings,
    accepted: RxOffload,
    now: Instant,
) -> bool {
    let Some(segment) = relay.tcp.poll(now) else {
        return false;
    };
    out.begin(settings, &relay.tuple, &segment);
    out.finish(accepted);
    true
}
