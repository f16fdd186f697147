//! [`Relay`]: one connection, between a stream of the host and the guest's TCP.

use std::io::{self, ErrorKind};

use tare_tcp::time::Instant;
use tare_tcp::{Connection, FourTuple, Loss, State};

use crate::ForwardCounters;

/// A client's connection, as the host has it. No call waits: [`ErrorKind::WouldBlock`].
/// Dropping it ends it in order.
pub trait Stream {
    /// Reads; `Ok(0)` is the client's end.
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize>;
    /// Writes.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;
    /// The guest has finished: nothing is written any more.
    fn finish(&mut self) -> io::Result<()>;
    /// Ends it with a reset.
    fn reset(self);
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Relay<S> {
    pub(crate) tuple: FourTuple,
    pub(crate) tcp: Connection,
    /// `None` once the client is gone; TCP may have a reset to send.
    pub(crate) stream: Option<S>,
    /// Whether the stream may have something to read, and room. Whoever watches it says so again after
    /// each time that it had not.
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// What the stream is watched for.
    pub(crate) watched: Watched,
    /// The client has finished: its end comes behind what is not read yet.
    pub(crate) end_is_near: bool,
    /// It has been read.
    client_ended: bool,
    /// The client knows that the guest has finished.
    guest_ended: bool,
    /// It is in the queue of connections that may have output.
    pub(crate) is_queued: bool,
    /// There was no memory for what the client has sent, and no acknowledgement will come that makes
    /// it try again.
    pub(crate) is_starved: bool,
    /// When the guest, which was not listening yet, is tried again, and how often it was.
    pub(crate) retry_at: Option<Instant>,
    pub(crate) retries: u32,
    /// Its deadline in the set.
    pub(crate) deadline: Option<Instant>,
    /// Retransmissions that are counted.
    resent: u64,
}

/// What a stream is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Watched {
    /// Nothing: the guest has not answered yet, and nothing could be done.
    Not,
    /// Data and the client's end.
    Input,
    /// Room too, from the first time that there was none.
    Both,
}

/// What remains of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remains {
    /// It goes on.
    All,
    /// Nothing: both sides have finished.
    Nothing,
    /// Nothing: the guest is gone.
    Loss,
    /// Nothing: the client is gone, and the guest knows.
    Aborted,
}

impl<S: Stream> Relay<S> {
    pub(crate) fn new(tuple: FourTuple, tcp: Connection, stream: S) -> Self {
        Self {
            tuple,
            tcp,
            stream: Some(stream),
            readable: false,
            writable: true,
            watched: Watched::Not,
            end_is_near: false,
            client_ended: false,
            guest_ended: false,
            is_queued: false,
            is_starved: false,
            retry_at: None,
            retries: 0,
            deadline: None,
            resent: 0,
        }
    }

    /// Moves bytes both ways as far as both sides take them.
    pub(crate) fn pump(&mut self, now: Instant, counters: &ForwardCounters) {
        let pumped = self
            .deliver(now, counters)
            .and_then(|()| self.fetch(counters));
        if pumped.is_err() {
            self.abort();
        }
        self.tcp.trim();
    }

    /// The client is gone: the guest is not tried again for it.
    pub(crate) fn abort(&mut self) {
        self.stream = None;
        self.retry_at = None;
        self.tcp.abort();
    }

    fn deliver(&mut self, now: Instant, counters: &ForwardCounters) -> io::Result<()> {
        let Some(stream) = &mut self.stream else {
            return Ok(());
        };
        while self.writable && self.tcp.recv_queue() > 0 {
            let mut written = Ok(0);
            let taken = self.tcp.recv_with(now, |bytes| {
                let offered = bytes.len();
                written = stream.write(bytes);
                if let Ok(count) = written {
                    self.writable = count == offered;
                }
                written.as_ref().copied().unwrap_or(0)
            });
            counters.forward_out_bytes.add(taken as u64);
            match written {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.tcp.recv_queue() == 0 && self.tcp.is_finished() && !self.guest_ended {
            self.guest_ended = true;
            stream.finish()?;
        }
        Ok(())
    }

    fn fetch(&mut self, counters: &ForwardCounters) -> io::Result<()> {
        let Some(stream) = &mut self.stream else {
            return Ok(());
        };
        self.is_starved = false;
        if matches!(self.tcp.state(), State::SynSent | State::SynReceived) {
            // Until the connection is there the kernel keeps what the client sends: a guest that
            // refuses it is tried again with all of it.
            return Ok(());
        }
        while self.readable && !self.client_ended && self.tcp.may_send() {
            let mut read = Ok(0);
            let asked = self.tcp.send_with(|room| {
                read = stream.read(room);
                if let Ok(count) = read {
                    // Behind what was read there is nothing, or the end.
                    self.readable = count == room.len() || self.end_is_near;
                }
                read.as_ref().copied().unwrap_or(0)
            });
            let Ok(Some(count)) = asked else {
                // The guest's acknowledgements make room.
                self.is_starved = self.tcp.send_queue() == 0;
                return Ok(());
            };
            counters.forward_in_bytes.add(count as u64);
            match read {
                Ok(0) => self.client_ended = true,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.readable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.client_ended {
            self.tcp.close();
        }
        Ok(())
    }

    /// Tries the guest again, which was not listening.
    pub(crate) fn reopen(&mut self, tcp: Connection) {
        self.tcp = tcp;
        self.retry_at = None;
        self.resent = 0;
    }

    /// What the stream must be watched for, if that is more than until now.
    pub(crate) fn wants_more(&mut self) -> Option<Watched> {
        let wanted = match self.tcp.state() {
            State::SynSent => Watched::Not,
            _ if self.writable => Watched::Input,
            _ => Watched::Both,
        };
        (self.stream.is_some() && wanted > self.watched).then_some(wanted)
    }

    /// Retransmissions since the last call.
    pub(crate) fn take_resent(&mut self) -> u64 {
        let all = self.tcp.statistics().segments_retransmitted;
        all - std::mem::replace(&mut self.resent, all)
    }

    /// Whether it is over. To be asked when it has no output.
    pub(crate) fn remains(&self) -> Remains {
        let is_closed = self.tcp.state() == State::Closed;
        if self.stream.is_none() {
            return if is_closed {
                Remains::Aborted
            } else {
                Remains::All
            };
        }
        if self.retry_at.is_some() {
            return Remains::All;
        }
        match self.tcp.loss() {
            Some(Loss::Aborted) => Remains::Aborted,
            // All that the guest had to say has come: its client gets that, and the end.
            Some(Loss::Reset) if self.tcp.is_finished() => self.until_delivered(),
            Some(_) => Remains::Loss,
            None if is_closed || self.tcp.state() == State::TimeWait => self.until_delivered(),
            None => Remains::All,
        }
    }

    /// What remains of a connection that is over on the guest's side.
    fn until_delivered(&self) -> Remains {
        if self.guest_ended {
            Remains::Nothing
        } else {
            Remains::All
        }
    }
}
