//! One connection from its first byte to its last.
//!
//! Whatever has arrived is carried out before anything is sent, so that a
//! pipeline of small commands is answered with one message. A connection may be
//! quiet forever, as with memcached: no timer runs for it unless the server
//! is set up with one.

use memchr::memchr;
use tare_libos::serve::{Buffer, Sizes, Transport, TransportError};

use crate::limits;
use crate::output::Output;
use crate::request::{self, Command, Get, Parsed};
use crate::server::{Server, Then};
use crate::store::{Clock, OutputFull};

/// Serves a connection until it ends.
pub fn serve<T: Transport, C: Clock>(transport: T, server: &Server<C>) {
    server.traffic.begins();
    // However it ends, there is no peer left to answer.
    let _ = Connection::new(transport, server).run();
    server.traffic.ends();
}

/// Answers a connection beyond the limit.
pub fn refuse<T: Transport, C: Clock>(transport: T, server: &Server<C>) {
    server.traffic.refused();
    let mut output = Output::new(transport, &server.traffic);
    let text = b"ERROR Too many open connections\r\n";
    output.bytes.extend_from_slice(text);
    let _ = output.flush();
}

struct Connection<'s, T, C> {
    server: &'s Server<C>,
    buffer: Buffer<Commands>,
    output: Output<'s, T>,
    /// Bytes to come that belong to a refused value.
    skip: usize,
}

/// Sizes of a connection's buffer: a value's limit, not this one, bounds it.
struct Commands;

impl Sizes for Commands {
    const FIRST: usize = limits::BUFFER;
    const KEPT: usize = limits::KEPT_BUFFER;
    const MOST: usize = usize::MAX;
}

/// Why a connection ends.
#[derive(Debug)]
enum CloseReason {
    /// The peer has ended, asked for it, or sent an invalid command.
    Closed,
    /// The stream has failed, or a wait has been too long.
    Failed,
}

impl From<TransportError> for CloseReason {
    fn from(_: TransportError) -> Self {
        Self::Failed
    }
}

/// What a command that is not there yet waits for.
enum Awaited {
    LineEnd,
    Bytes(usize),
}

impl<'s, T: Transport, C: Clock> Connection<'s, T, C> {
    fn new(transport: T, server: &'s Server<C>) -> Self {
        Self {
            server,
            buffer: Buffer::new(),
            output: Output::new(transport, &server.traffic),
            skip: 0,
        }
    }

    /// Carries out commands; only ever returns with the reason for the end.
    fn run(&mut self) -> Result<(), CloseReason> {
        let mut served = 0;
        loop {
            self.pass_skipped()?;
            let filled = self.buffer.filled();
            if filled.is_empty() {
                self.receive()?;
                continue;
            }
            match request::parse(filled) {
                Parsed::Command(command, len) => {
                    let then = carry_out(self.server, &command, &mut self.output)?;
                    self.buffer.consume(len);
                    self.follow(then)?;
                }
                Parsed::Line | Parsed::Fields => self.gather(Awaited::LineEnd)?,
                Parsed::Data { total, .. } => self.gather(Awaited::Bytes(total))?,
                Parsed::Hopeless => self.follow(Then::Close)?,
            }
            served += 1;
            if served == limits::BATCH {
                served = 0;
                self.output.flush()?;
                self.output.transport.give_way();
            }
        }
    }

    fn follow(&mut self, then: Then) -> Result<(), CloseReason> {
        match then {
            Then::Continue => Ok(self.output.flush_if_full()?),
            Then::Skip(bytes) => {
                self.skip = bytes;
                Ok(())
            }
            Then::Close => {
                self.output.flush()?;
                Err(CloseReason::Closed)
            }
        }
    }

    /// Lets the bytes of a refused value pass.
    fn pass_skipped(&mut self) -> Result<(), CloseReason> {
        while self.skip > 0 {
            let passed = self.skip.min(self.buffer.filled().len());
            self.buffer.consume(passed);
            self.skip -= passed;
            if self.skip > 0 {
                self.receive()?;
            }
        }
        Ok(())
    }

    /// Receives until the bytes may hold a whole command, so that one that drips
    /// in is not parsed again for each byte.
    fn gather(&mut self, awaited: Awaited) -> Result<(), CloseReason> {
        loop {
            let seen = self.buffer.filled().len();
            if self.receive()? == Received::NoRoom {
                return self.refuse_data();
            }
            let filled = self.buffer.filled();
            let enough = match awaited {
                Awaited::Bytes(total) => filled.len() >= total,
                Awaited::LineEnd => {
                    let passes = |limit| (seen..filled.len()).contains(&limit);
                    memchr(b'\n', &filled[seen..]).is_some()
                        || passes(limits::MAX_LINE)
                        || passes(limits::MAX_GET_LINE)
                }
            };
            if enough {
                return Ok(());
            }
        }
    }

    /// There is no memory for what the client is sending.
    #[cold]
    fn refuse_data(&mut self) -> Result<(), CloseReason> {
        let filled = self.buffer.filled();
        match request::parse(filled) {
            Parsed::Data { total, verb, key } => {
                let out = &mut self.output.bytes;
                self.server.refuse_data(verb, key, out);
                let present = filled.len();
                self.buffer.consume(present);
                self.skip = total - present;
                Ok(())
            }
            _ => Err(CloseReason::Failed),
        }
    }

    /// Sends what is left to send and waits for more.
    fn receive(&mut self) -> Result<Received, CloseReason> {
        if !self.output.bytes.is_empty() {
            self.output.flush()?;
        }
        let Ok(room) = self.buffer.room() else {
            return Ok(Received::NoRoom);
        };
        let within = self.server.settings.idle;
        match self.output.transport.receive(room, within)? {
            0 => Err(CloseReason::Closed),
            n => {
                self.buffer.received(n);
                self.server.traffic.received(n);
                Ok(Received::Bytes)
            }
        }
    }
}

#[derive(PartialEq, Eq)]
enum Received {
    Bytes,
    /// The buffer cannot grow.
    NoRoom,
}

fn carry_out<T: Transport, C: Clock>(
    server: &Server<C>,
    command: &Command<'_>,
    output: &mut Output<'_, T>,
) -> Result<Then, TransportError> {
    match command {
        Command::Get(get) => {
            answer_get(server, get, output)?;
            Ok(Then::Continue)
        }
        command => Ok(server.execute(command, &mut output.bytes)),
    }
}

/// A `get` of many large items is sent as it grows.
fn answer_get<T: Transport, C: Clock>(
    server: &Server<C>,
    get: &Get<'_>,
    output: &mut Output<'_, T>,
) -> Result<(), TransportError> {
    let mut result = Ok(());
    for key in get.keys {
        if server.get_one(get, key, &mut output.bytes).is_err() {
            result = Err(OutputFull);
            break;
        }
        output.flush_if_full()?;
    }
    Server::<C>::end_get(result, &mut output.bytes);
    Ok(())
}
