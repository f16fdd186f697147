//! Published ports without a process in between: the link is the host's end of each connection
//! ([`tare_forward::Table`]), with the sockets of the clients behind it, and those of UDP ports. passt may be beside it for
//! everything else: connections and datagrams that the guest begins, names. It may start with the first frame that
//! is for it: a process waits until that is in passt's socket (`tare_passt::waiter`).
//!
//! `tare` has opened the ports' sockets. This thread accepts, reads, writes and ends connections, and receives and
//! sends datagrams by the sockets of UDP ports; it cannot make a socket or connect one.
//!
//! All sockets are in one epoll, whose descriptor is the link's. Connections and passt's socket are in
//! it once, by edges: a stream that has said that it is ready is read or written until it is not, so
//! that a request costs no change of the set, and frames that the guest takes no buffers for do not
//! keep the set ready.
//!
//! The guest may leave checksums, and cutting long segments, to its device: a connection here needs neither. For
//! passt the link does both.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{
    RecvFlags, SendFlags, Shutdown, SocketFlags, acceptfrom_with, recv, send, shutdown,
};
use tare_control::config::PasstStart;
use tare_devices::blk::{Clock as _, MonotonicClock};
use tare_devices::net::{
    FLAG_DATA_VALID, GSO_NONE, Link, LinkError, LinkFeatures, LinkOffload, NetHeader, RxFrame,
    RxOffload, checksum,
};
use tare_forward::{
    Beside, Cut, ForwardCounters, FrameOwner, Settings, Slot, Stream, Table, Watched,
};
use tare_tcp::time::{Duration, Instant};

use super::StreamLink;
use super::dropped::FilterCounters;
use super::ports::{DatagramPorts, PortSocket};
use crate::complaint::complain;
use crate::poll::{Interest, Poll, Ready};

/// Longest frame with segmentation offload.
const MAX_FRAME: usize = 65_550;
/// Token of passt's socket; listeners' follow.
const PASST: u64 = 0;
const LISTENERS: u64 = 1;
/// Tokens of UDP ports' sockets: beyond all listeners', whose descriptors are fewer.
const DATAGRAMS: u64 = 1 << 31;
/// Connections' tokens: their slots from here on.
const CONNECTIONS: u64 = 1 << 32;
/// Connections that are accepted before others have their turn.
const ACCEPTED_AT_ONCE: usize = 64;
/// Time without a try after one that found no descriptor or memory for a client: a listener whose
/// client waits is always ready.
const PAUSE: Duration = Duration::from_millis(100);

/// The link.
pub struct ForwardLink {
    poll: Poll,
    listeners: Vec<PortSocket>,
    /// Whether the listeners are in the set: not while there is no place for another connection,
    /// and not in a pause.
    listens: bool,
    datagrams: DatagramPorts,
    /// Until when no client is accepted.
    paused_until: Option<Instant>,
    table: Table<Client>,
    /// passt, until it ends: published ports do not end with it.
    passt: Option<StreamLink>,
    /// Whether it has started, or does so with the first frame.
    passt_start: PasstStart,
    /// What passt's socket is watched for.
    passt_watched: Interest,
    /// A frame of the guest stays with it until passt has room.
    refused: bool,
    /// Whether it may have frames: they are looked for after the table's.
    passt_ready: bool,
    /// Whose the frame is that was peeked at.
    peeked: Owner,
    /// Whether the set is to be looked at.
    is_ready: bool,
    ready: VecDeque<Ready>,
    /// Frames of the guest that are longer than passt's, or all without a passt.
    frame: Box<[u8]>,
    /// Bytes of one in `frame`; 0 if it is in passt's room.
    reserved: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Table,
    Passt,
}

/// A client's socket.
#[derive(Debug)]
struct Client(OwnedFd);

impl Stream for Client {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        Ok(recv(&self.0, bytes, RecvFlags::DONTWAIT)?.0)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        Ok(send(&self.0, bytes, flags)?)
    }

    fn finish(&mut self) -> io::Result<()> {
        match shutdown(&self.0, Shutdown::Write) {
            // The client has reset it: reading says so.
            Err(Errno::NOTCONN) | Ok(()) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn reset(self) {
        // Without this, what is closed ends in order. A client that is gone needs no reset.
        let _ = set_socket_linger(&self.0, Some(std::time::Duration::ZERO));
    }
}

fn interest(watched: Watched) -> Interest {
    Interest {
        readable: watched >= Watched::Input,
        writable: watched == Watched::Both,
    }
}

/// A frame whose checksums need no second look: it was on no wire.
fn valid(mut frame: RxFrame<'_>) -> RxFrame<'_> {
    if !frame.header.needs_csum() {
        frame.header.flags |= FLAG_DATA_VALID;
    }
    frame
}

fn now() -> Instant {
    Instant::from_micros(MonotonicClock.now_ns() / 1000)
}

impl ForwardLink {
    /// A link with the ports' sockets, and perhaps a passt beside it, as the settings say.
    pub(crate) fn new(
        settings: Settings,
        listeners: Vec<PortSocket>,
        datagrams: DatagramPorts,
        passt: Option<StreamLink>,
    ) -> io::Result<Self> {
        debug_assert_eq!(passt.is_none(), settings.beside == Beside::Nothing);
        let passt_start = match settings.beside {
            Beside::WaitingPasst => PasstStart::WhenNeeded,
            Beside::Nothing | Beside::Passt => PasstStart::Started,
        };
        let mut link = Self {
            poll: Poll::new()?,
            listeners,
            listens: false,
            datagrams,
            paused_until: None,
            table: Table::new(settings),
            passt,
            passt_start,
            passt_watched: Interest::default(),
            refused: false,
            passt_ready: false,
            peeked: Owner::Table,
            is_ready: false,
            ready: VecDeque::new(),
            frame: vec![0; MAX_FRAME].into_boxed_slice(),
            reserved: 0,
        };
        link.watch_listeners()?;
        link.datagrams.watch(&link.poll, DATAGRAMS)?;
        link.watch_passt()?;
        if link.passt.is_some() && passt_start == PasstStart::Started {
            link.table.counters().forward_passt_started.increment();
        }
        Ok(link)
    }

    /// The table's counters.
    pub(crate) fn counters(&self) -> Arc<ForwardCounters> {
        self.table.counters()
    }

    /// Those of the filter before passt.
    pub(crate) fn dropped(&self) -> Option<Arc<FilterCounters>> {
        self.passt.as_ref().map(StreamLink::dropped)
    }

    /// Listens as long as there is a place for another connection.
    fn watch_listeners(&mut self) -> io::Result<()> {
        let listens = self.table.has_room() && self.paused_until.is_none();
        if listens == self.listens {
            return Ok(());
        }
        let (old, new) = if listens {
            (Interest::default(), Interest::READ)
        } else {
            (Interest::READ, Interest::default())
        };
        for (token, listener) in (LISTENERS..).zip(&self.listeners) {
            self.poll.change(&listener.socket, token, old, new)?;
        }
        self.listens = listens;
        Ok(())
    }

    fn watch_passt(&mut self) -> io::Result<()> {
        if let Some(passt) = &self.passt {
            let wanted = Interest {
                readable: true,
                // What was refused may have gone since, and room comes by no edge then.
                writable: passt.has_unsent() || self.refused,
            };
            if wanted != self.passt_watched {
                let old = std::mem::replace(&mut self.passt_watched, wanted);
                self.poll.change_edges(passt, PASST, old, wanted)?;
            }
        }
        Ok(())
    }

    /// Takes what is ready in the set, once the thread has seen that it is.
    fn serve_if_ready(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.is_ready) {
            self.serve()?;
        }
        Ok(())
    }

    /// Handles what is ready in the set.
    fn serve(&mut self) -> io::Result<()> {
        self.poll.collect(&mut self.ready)?;
        let now = now();
        while let Some(ready) = self.ready.pop_front() {
            match ready.token.checked_sub(CONNECTIONS) {
                Some(slot) => {
                    let readiness = tare_forward::Readiness {
                        readable: ready.readable,
                        writable: ready.writable,
                        ended: ready.ended,
                        failed: ready.failed,
                    };
                    self.table.host_ready(slot as Slot, readiness, now);
                }
                None if ready.token >= DATAGRAMS => {
                    self.datagrams.set_ready((ready.token - DATAGRAMS) as usize);
                }
                None if ready.token >= LISTENERS => {
                    self.accept((ready.token - LISTENERS) as usize, now)?;
                }
                None => self.passt_ready = true,
            }
        }
        self.watch_clients()?;
        self.watch_listeners()
    }

    fn accept(&mut self, number: usize, now: Instant) -> io::Result<()> {
        for _ in 0..ACCEPTED_AT_ONCE {
            if !self.table.has_room() {
                break;
            }
            let Some(listener) = self.listeners.get(number) else {
                break;
            };
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let (socket, client) = match acceptfrom_with(&listener.socket, flags) {
                Ok((socket, client)) => (socket, client),
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    self.pause(now);
                    break;
                }
                // None is there, or it has failed (accept(2)).
                Err(_) => break,
            };
            let client = client.and_then(|client| SocketAddr::try_from(client).ok());
            let Some(client) = client else {
                continue;
            };
            let port = listener.port;
            if let Err(client) = self.table.open(Client(socket), client, port, now) {
                client.reset();
            }
        }
        Ok(())
    }

    /// A client that waits for a program that never listens looks like one that hangs.
    fn report_closed_ports(&mut self) {
        while let Some(port) = self.table.next_closed_port() {
            complain(format_args!(
                "nothing listens at port {port} of the guest, and a client has connected to it"
            ));
        }
    }

    /// Accepts no client for a while.
    fn pause(&mut self, now: Instant) {
        self.paused_until = Some(now + PAUSE);
        self.table.counters().forward_pauses.increment();
    }

    /// Whether passt has a frame; one that has ended is gone from here on.
    fn passt_has_frame(&mut self) -> bool {
        let Some(passt) = &mut self.passt else {
            return false;
        };
        let has_frame = matches!(passt.peek(), Ok(Some(_)));
        if passt.is_gone() {
            self.lose_passt();
        }
        has_frame && self.passt.is_some()
    }

    /// passt has ended: the guest's own connections are refused from here on.
    fn lose_passt(&mut self) {
        if self.passt.take().is_some() {
            self.table.set_beside(Beside::Nothing);
            self.table.counters().forward_passt_ended.increment();
        }
    }

    /// A frame for passt is in its socket's buffer: what waits starts it.
    fn start_passt(&mut self) {
        if self.passt_start == PasstStart::WhenNeeded {
            self.passt_start = PasstStart::Started;
            self.table.set_beside(Beside::Passt);
            self.table.counters().forward_passt_started.increment();
        }
    }

    /// Gives passt the frame last reserved: whole frames with checksums.
    fn pass_on(&mut self, header: &NetHeader, reserved: usize) -> Result<(), LinkError> {
        let counters = self.table.counters();
        let Some(passt) = &mut self.passt else {
            return Ok(());
        };
        if header.gso_type != GSO_NONE {
            let within: Vec<u8>;
            let frame = if reserved == 0 {
                within = passt.reserved().to_vec();
                &within
            } else {
                &self.frame[..reserved]
            };
            let Some(cut) = Cut::of(frame, header) else {
                counters.forward_malformed.increment();
                return Ok(());
            };
            if cut.frame_len(0) > passt.features().max_frame {
                counters.forward_passt_dropped.increment();
                return Ok(());
            }
            for number in 0..cut.count() {
                let Ok(Some(room)) = passt.reserve(cut.frame_len(number)) else {
                    counters.forward_passt_dropped.increment();
                    break;
                };
                cut.write(number, room);
                passt.commit(&NetHeader::default())?;
            }
        } else if reserved > 0 {
            counters.forward_passt_dropped.increment();
            return Ok(());
        } else {
            if header.needs_csum() && checksum::complete(header, passt.reserved()).is_none() {
                counters.forward_malformed.increment();
                return Ok(());
            }
            passt.commit(&NetHeader::default())?;
        }
        if passt.has_unsent() {
            self.start_passt();
        }
        Ok(())
    }

    /// Watches clients for what the table waits for.
    fn watch_clients(&mut self) -> io::Result<()> {
        while let Some((slot, client, [wanted, old])) = self.table.watch_next() {
            let token = CONNECTIONS + u64::from(slot);
            self.poll
                .change_edges(&client.0, token, interest(old), interest(wanted))?;
        }
        Ok(())
    }
}

impl AsFd for ForwardLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poll.as_fd()
    }
}

impl Link for ForwardLink {
    fn features(&self) -> LinkFeatures {
        LinkFeatures {
            max_frame: MAX_FRAME,
            offload: LinkOffload::VnetHeader,
        }
    }

    fn set_offload(&mut self, accepted: RxOffload) -> Result<(), LinkError> {
        self.table.restart(accepted, now());
        Ok(())
    }

    fn is_set(&self) -> bool {
        true
    }

    fn ready(&mut self) {
        self.is_ready = true;
    }

    fn has_frames(&self) -> bool {
        self.table.has_output() || self.datagrams.is_ready()
    }

    fn deadline_ns(&self) -> Option<u64> {
        // Rounded up, so that it has passed when it is reached.
        let deadlines = self.table.deadline().into_iter().chain(self.paused_until);
        Some((deadlines.min()?.as_micros() + 1) * 1000)
    }

    fn peek(&mut self) -> Result<Option<RxFrame<'_>>, LinkError> {
        self.serve_if_ready()?;
        let now = now();
        if self.datagrams.is_ready() {
            self.datagrams.receive(&mut self.table, now);
        }
        if self.table.deadline().is_some_and(|due| due <= now) {
            self.table.deadline_passed(now);
        }
        if self.paused_until.is_some_and(|end| end <= now) {
            self.paused_until = None;
            self.watch_listeners()?;
        }
        if self.table.peek(now).is_some() {
            self.peeked = Owner::Table;
            return Ok(self.table.peek(now).map(valid));
        }
        self.report_closed_ports();
        self.watch_listeners()?;
        self.peeked = Owner::Passt;
        self.passt_ready = self.passt_ready && self.passt_has_frame();
        match &mut self.passt {
            Some(passt) if self.passt_ready => Ok(passt.peek()?.map(valid)),
            _ => Ok(None),
        }
    }

    fn consume(&mut self) {
        match (self.peeked, &mut self.passt) {
            (Owner::Passt, Some(passt)) => passt.consume(),
            _ => self.table.consume(),
        }
    }

    fn reserve(&mut self, len: usize) -> Result<Option<&mut [u8]>, LinkError> {
        let mut fits = false;
        if let Some(passt) = &mut self.passt {
            // Room is looked for first: a frame without it stays with the guest.
            fits = len <= passt.features().max_frame;
            let has_room = if fits {
                matches!(passt.reserve(len), Ok(Some(_)))
            } else {
                // For what it is cut into.
                passt.flush().is_ok() && !passt.has_unsent()
            };
            self.refused = !has_room && !passt.is_gone();
            if passt.is_gone() {
                self.lose_passt();
            } else if !has_room {
                return Ok(None);
            }
        }
        match &mut self.passt {
            Some(passt) if fits => {
                self.reserved = 0;
                passt.reserve(len)
            }
            _ => {
                self.reserved = len;
                Ok(self.frame.get_mut(..len))
            }
        }
    }

    fn commit(&mut self, header: &NetHeader) -> Result<(), LinkError> {
        let reserved = std::mem::take(&mut self.reserved);
        let frame: &[u8] = match &mut self.passt {
            Some(passt) if reserved == 0 => passt.reserved(),
            _ => &self.frame[..reserved],
        };
        match self.table.take(frame, now()) {
            FrameOwner::Table => {}
            FrameOwner::Client(answer) => {
                if !self.datagrams.send(answer) {
                    let counters = self.table.counters();
                    counters.forward_datagrams_dropped.increment();
                }
            }
            FrameOwner::Passt => self.pass_on(header, reserved)?,
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), LinkError> {
        self.serve_if_ready()?;
        self.table.settle(now());
        self.watch_clients()?;
        if let Some(passt) = &mut self.passt {
            if passt.flush().is_err() {
                self.lose_passt();
            }
            self.watch_passt()?;
        }
        Ok(())
    }

    fn has_unsent(&self) -> bool {
        self.passt.as_ref().is_some_and(StreamLink::has_unsent)
    }
}

#[cfg(test)]
mod tests;
