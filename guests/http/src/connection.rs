//! One connection from its first byte to its last.
//!
//! Requests are answered in order, so pipelining needs nothing special. In the
//! usual case, a complete request for a known file, an answer is one parse, one
//! lookup and one send of three slices: the file's prepared head, the fields
//! that change (`Date`, `Connection`), and the file itself, without a copy, an
//! allocation or a change of timeout.
//!
//! A client holds its connection only as [`limits`] allow: a head and a body
//! have an overall time each, a response a least rate, silence an end. After an
//! answer that ends the connection the client's remaining bytes are awaited for
//! a moment, since closing with bytes unread resets the connection and may take
//! the answer with it.

use alloc::vec::Vec;
use core::time::Duration;

use tare_libos::net::IpAddr;
use tare_libos::serve::{Buffer, NoRoom, Sizes, Transport, TransportError};
use tare_web::body::{BodyReader, Progress};
use tare_web::framing::Framing;

use crate::access_log::{AccessLog, Entry};
use crate::answer::{Answer, Content, plain};
use crate::limits;
use crate::multipart::Multipart;
use crate::request::{self, Method, Parsed, Persistence, Request};
use crate::server::{DATE_LINE, Platform, Server};
use crate::status::Status;

/// Serves a connection until it ends.
pub fn serve<T: Transport, P: Platform>(transport: T, server: &Server<P>) {
    server.counters.accepted.one();
    let mut connection = Connection::new(transport, server);
    if let Err(ending) = connection.run() {
        connection.end(ending);
    }
    server.counters.ended.one();
}

/// Answers a connection beyond the limit.
pub fn refuse<T: Transport, P: Platform>(transport: T, server: &Server<P>) {
    server.counters.accepted.one();
    server.counters.refused.one();
    let mut connection = Connection::new(transport, server);
    let answer = plain(
        &mut connection.head,
        Status::ServiceUnavailable,
        b"Retry-After: 1\r\n",
    );
    if connection
        .send(&answer, Method::Get, Persistence::Close)
        .is_ok()
    {
        connection.transport.finish();
        // Takes the request in, which else would reset the connection.
        let _ = connection.receive(limits::REFUSED_LINGER);
    }
    server.counters.ended.one();
}

struct Connection<'s, T, P> {
    transport: T,
    server: &'s Server<P>,
    buffer: Buffer<Heads>,
    /// Scratch for the heads of answers other than whole files.
    head: Vec<u8>,
    /// For the access log, where there is one.
    logged: Logged,
}

/// What the access log wants of a connection.
#[derive(Default)]
struct Logged {
    /// The head of the request that is being answered.
    request: Vec<u8>,
    client: Option<IpAddr>,
    /// Bytes of the last answer that were not sent.
    unsent: usize,
}

/// Sizes of a connection's buffer: it grows to the longest head.
struct Heads;

impl Sizes for Heads {
    const FIRST: usize = limits::BUFFER;
    const KEPT: usize = limits::BUFFER;
    const MOST: usize = limits::MAX_HEAD;
}

/// Why a connection ends.
enum CloseReason {
    /// The peer has ended, or the answer said so.
    Closed,
    /// The answer said so, and the peer may still be sending.
    Refused,
    /// No request came.
    Idle,
    /// The peer does not take its answer.
    Stalled,
    /// The connection is gone.
    Broken,
}

/// Largest scratch that a connection keeps between requests.
const KEPT_SCRATCH: usize = 512;

impl<'s, T: Transport, P: Platform> Connection<'s, T, P> {
    fn new(transport: T, server: &'s Server<P>) -> Self {
        let mut logged = Logged::default();
        if server.log().is_some() {
            // A connection that broke has no address any more.
            logged.client = transport.peer();
        }
        Self {
            transport,
            server,
            buffer: Buffer::new(),
            head: Vec::new(),
            logged,
        }
    }

    /// Answers requests; only ever returns with the reason for the end.
    fn run(&mut self) -> Result<(), CloseReason> {
        loop {
            for _ in 0..limits::BATCH {
                self.exchange()?;
            }
            self.transport.give_way();
        }
    }

    /// One request and its answer.
    fn exchange(&mut self) -> Result<(), CloseReason> {
        let mut deadline = None;
        loop {
            self.skip_empty_lines();
            if self.buffer.is_empty() {
                self.await_request()?;
            }
            match request::parse(self.buffer.filled()) {
                Ok(Parsed::Complete(request, len)) => {
                    let pending = Pending::new(&request, self.server, &mut self.head);
                    if self.server.log().is_some() {
                        self.keep_head(len);
                    }
                    self.buffer.consume(len);
                    return self.conclude(pending);
                }
                Ok(Parsed::Partial) => {
                    let now = self.transport.now();
                    let deadline = *deadline.get_or_insert(now + limits::HEAD);
                    self.await_head(deadline)?;
                }
                Err(status) => return self.refuse(status),
            }
        }
    }

    /// Empty lines before a request are to be ignored (RFC 9112, 2.2).
    fn skip_empty_lines(&mut self) {
        let bytes = self.buffer.filled();
        if let Some(b'\r' | b'\n') = bytes.first() {
            let request = bytes.iter().position(|byte| !matches!(byte, b'\r' | b'\n'));
            let skipped = request.unwrap_or(bytes.len());
            self.buffer.consume(skipped);
        }
    }

    fn await_request(&mut self) -> Result<(), CloseReason> {
        match self.receive(limits::IDLE) {
            Ok(()) => Ok(()),
            Err(Received::TimedOut) => Err(CloseReason::Idle),
            Err(Received::Ended) => Err(CloseReason::Closed),
            Err(Received::Broken | Received::Full) => Err(CloseReason::Broken),
        }
    }

    /// Receives until the bytes hold the end of a head, so that a head that
    /// drips in is not parsed again for each byte.
    fn await_head(&mut self, deadline: Duration) -> Result<(), CloseReason> {
        loop {
            let seen = self.buffer.filled().len();
            let within = deadline.saturating_sub(self.transport.now());
            let received = match within {
                Duration::ZERO => Err(Received::TimedOut),
                within => self.receive(within),
            };
            match received {
                Ok(()) if ends_head(self.buffer.filled(), seen) => return Ok(()),
                Ok(()) => {}
                Err(Received::Full) => return self.refuse(too_long(self.buffer.filled())),
                Err(Received::TimedOut) => {
                    self.server.counters.request_timeouts.one();
                    return self.refuse(Status::RequestTimeout);
                }
                Err(Received::Ended) => return Err(CloseReason::Closed),
                Err(Received::Broken) => return Err(CloseReason::Broken),
            }
        }
    }

    fn receive(&mut self, within: Duration) -> Result<(), Received> {
        let room = self.buffer.room().map_err(|reason| match reason {
            NoRoom::Full => Received::Full,
            NoRoom::NoMemory => Received::Broken,
        })?;
        match self.transport.receive(room, Some(within)) {
            Ok(0) => Err(Received::Ended),
            Ok(n) => {
                self.buffer.received(n);
                self.server.counters.received_bytes.add(n as u64);
                Ok(())
            }
            Err(TransportError::TimedOut) => Err(Received::TimedOut),
            Err(TransportError::Broken) => Err(Received::Broken),
        }
    }

    /// Lets the request's body pass, then sends the answer.
    fn conclude(&mut self, pending: Pending) -> Result<(), CloseReason> {
        let mut persistence = pending.persistence;
        if pending.body != Framing::Length(0) {
            if pending.closes_instead_of_reading() {
                persistence = Persistence::Close;
            } else if let Err(problem) = self.discard(&pending) {
                self.head.clear();
                return self.refuse(problem?);
            }
        }
        self.send(&pending.answer, pending.method, persistence)?;
        self.reset_scratch();
        match persistence {
            Persistence::Close if pending.body == Framing::Length(0) => Err(CloseReason::Closed),
            Persistence::Close => Err(CloseReason::Refused),
            Persistence::Keep | Persistence::KeepByRequest => Ok(()),
        }
    }

    /// Reads a body away. The error is the status to refuse with, or the end.
    ///
    /// A body is refused for what came of it, not for its length in the head, like one in chunks:
    /// a client that does not go on gets 408. Only one that asks first is refused at once.
    fn discard(&mut self, pending: &Pending) -> Result<(), Result<Status, CloseReason>> {
        let waits = pending.expects_continue && self.buffer.is_empty();
        let is_too_long = matches!(pending.body, Framing::Length(len) if len > limits::MAX_BODY);
        if is_too_long && waits {
            return Err(Ok(Status::ContentTooLarge));
        }
        let framing = match pending.body {
            Framing::Length(len) => Framing::Length(len.min(limits::MAX_BODY)),
            Framing::Chunked => Framing::Chunked,
        };
        let mut body =
            BodyReader::new(framing, limits::DISCARDED).map_err(|error| Ok(Status::from(error)))?;
        if waits {
            let parts = [&b"HTTP/1.1 100 Continue\r\n\r\n"[..], b"", b""];
            self.send_parts(parts).map_err(Err)?;
        }
        let deadline = self.transport.now() + limits::BODY;
        loop {
            let bytes = self.buffer.filled();
            let available = bytes.len();
            match body.feed::<Status>(bytes, |_| Ok(())).map_err(Ok)? {
                Progress::Done(_) if is_too_long => return Err(Ok(Status::ContentTooLarge)),
                Progress::Done(n) => {
                    self.buffer.consume(n);
                    return Ok(());
                }
                Progress::More => self.buffer.consume(available),
            }
            let within = deadline.saturating_sub(self.transport.now());
            let received = match within {
                Duration::ZERO => Err(Received::TimedOut),
                within => self.receive(within),
            };
            received.map_err(|reason| match reason {
                Received::TimedOut => {
                    self.server.counters.request_timeouts.one();
                    Ok(Status::RequestTimeout)
                }
                Received::Ended => Err(CloseReason::Closed),
                Received::Broken | Received::Full => Err(CloseReason::Broken),
            })?;
        }
    }

    /// Refuses a request; the connection ends.
    fn refuse<R>(&mut self, status: Status) -> Result<R, CloseReason> {
        let answer = plain(&mut self.head, status, b"");
        self.send(&answer, Method::Get, Persistence::Close)?;
        Err(CloseReason::Refused)
    }

    fn send(
        &mut self,
        answer: &Answer,
        method: Method,
        persistence: Persistence,
    ) -> Result<(), CloseReason> {
        let tail = Tail::new(self.server.date_line(), persistence);
        let head = core::mem::take(&mut self.head);
        let (head_bytes, content): (&[u8], &[u8]) = match &answer.content {
            Content::Whole(asset) => (asset.ok_head(), &asset.bytes),
            Content::Part(asset, range) => (&head, &asset.bytes[range.clone()]),
            // Its content is sent piece by piece.
            Content::Parts(_) => (&head, b""),
            Content::Static(bytes) => (&head, bytes),
            Content::Owned(bytes) => (&head, bytes),
        };
        let content = if method == Method::Head { b"" } else { content };
        self.server.counters.response(answer.status);
        let mut sent = self.send_parts([head_bytes, tail.bytes(), content]);
        let mut len = content.len();
        if let (Content::Parts(parts), Method::Get) = (&answer.content, method) {
            len = parts.len();
            sent = self.send_pieces(parts, sent);
        }
        self.head = head;
        if let Some(log) = self.server.log() {
            self.log(log, answer.status, len);
        }
        sent
    }

    /// Sends what follows the head, if that was sent.
    #[cold]
    fn send_pieces(
        &mut self,
        parts: &Multipart,
        head: Result<(), CloseReason>,
    ) -> Result<(), CloseReason> {
        let mut left = parts.len();
        if head.is_err() {
            self.logged.unsent = left;
            return head;
        }
        for [between, part] in parts.pieces() {
            left -= between.len() + part.len();
            let sent = self.send_parts([between, part, b""]);
            if sent.is_err() {
                self.logged.unsent += left;
                return sent;
            }
        }
        Ok(())
    }

    /// Keeps the head of the request for the log; its buffer is used anew while it is answered.
    #[cold]
    fn keep_head(&mut self, len: usize) {
        let request = &mut self.logged.request;
        request.clear();
        if request.try_reserve_exact(len).is_ok() {
            request.extend_from_slice(&self.buffer.filled()[..len]);
        }
    }

    #[cold]
    fn log(&mut self, log: &AccessLog, status: Status, content: usize) {
        let logged = core::mem::take(&mut self.logged.request);
        let is_known = !logged.is_empty();
        let unsent = core::mem::take(&mut self.logged.unsent);
        let added = log.add(&Entry {
            // Of a request that is refused the buffer has what came.
            head: if is_known {
                &logged
            } else {
                self.buffer.filled()
            },
            client: self.logged.client,
            unix_s: self.server.platform().unix_s(),
            status,
            bytes: content.saturating_sub(unsent) as u64,
        });
        let counters = &self.server.counters;
        if added {
            counters.logged.one();
        } else {
            counters.log_dropped.one();
        }
    }

    fn send_parts(&mut self, mut parts: [&[u8]; 3]) -> Result<(), CloseReason> {
        let mut deadline = None;
        let mut left: usize = parts.iter().map(|part| part.len()).sum();
        self.server.counters.sent_bytes.add(left as u64);
        loop {
            let sent = match self.transport.send(&parts, limits::WRITE) {
                Ok(sent) => sent,
                Err(error) => {
                    self.logged.unsent = left;
                    return Err(match error {
                        TransportError::TimedOut => CloseReason::Stalled,
                        TransportError::Broken => CloseReason::Broken,
                    });
                }
            };
            if sent >= left {
                return Ok(());
            }
            let now = self.transport.now();
            let allowed =
                limits::WRITE + Duration::from_secs((left >> limits::MIN_RATE_SHIFT) as u64);
            if now >= *deadline.get_or_insert(now + allowed) {
                self.logged.unsent = left - sent;
                return Err(CloseReason::Stalled);
            }
            left -= sent;
            skip(&mut parts, sent);
        }
    }

    fn reset_scratch(&mut self) {
        self.head.clear();
        if self.head.capacity() > KEPT_SCRATCH {
            self.head = Vec::new();
        }
    }

    #[cold]
    fn end(&mut self, ending: CloseReason) {
        let counters = &self.server.counters;
        match ending {
            CloseReason::Closed => {}
            CloseReason::Refused => self.linger(),
            CloseReason::Idle => counters.idle_timeouts.one(),
            CloseReason::Stalled => counters.write_timeouts.one(),
            CloseReason::Broken => counters.resets.one(),
        }
    }

    /// Ends the sending side and reads on for a moment.
    fn linger(&mut self) {
        self.transport.finish();
        let deadline = self.transport.now() + limits::LINGER;
        let mut left = limits::MAX_BODY as usize;
        loop {
            let within = deadline.saturating_sub(self.transport.now());
            let pending = self.buffer.filled().len();
            self.buffer.consume(pending);
            if within.is_zero() || left < pending || self.receive(within).is_err() {
                return;
            }
            left -= pending;
        }
    }
}

/// What receiving came to, other than bytes.
enum Received {
    TimedOut,
    Ended,
    Broken,
    Full,
}

/// An answer, and what of its request matters until it is sent.
struct Pending {
    answer: Answer,
    method: Method,
    persistence: Persistence,
    body: Framing,
    expects_continue: bool,
}

impl Pending {
    fn new<P: Platform>(request: &Request<'_>, server: &Server<P>, head: &mut Vec<u8>) -> Self {
        Self {
            answer: server.answer(request, head),
            method: request.method,
            persistence: request.persistence,
            body: request.body,
            expects_continue: request.expects_continue,
        }
    }

    /// A client that waits for leave to send its body does not get it for a
    /// request that has failed already (RFC 9110, 10.1.1).
    fn closes_instead_of_reading(&self) -> bool {
        self.expects_continue && self.answer.status.code() >= 400
    }
}

/// The end of a head: the fields that change, and the empty line.
struct Tail {
    bytes: [u8; Self::MAX],
    len: usize,
}

impl Tail {
    const MAX: usize = DATE_LINE + 26;

    fn new(date: [u8; DATE_LINE], persistence: Persistence) -> Self {
        let rest: &[u8] = match persistence {
            Persistence::Keep => b"\r\n",
            Persistence::Close => b"Connection: close\r\n\r\n",
            Persistence::KeepByRequest => b"Connection: keep-alive\r\n\r\n",
        };
        let mut bytes = [0; Self::MAX];
        bytes[..DATE_LINE].copy_from_slice(&date);
        let len = DATE_LINE + rest.len();
        bytes[DATE_LINE..len].copy_from_slice(rest);
        Self { bytes, len }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

fn skip(parts: &mut [&[u8]; 3], mut n: usize) {
    for part in parts {
        let taken = n.min(part.len());
        *part = &part[taken..];
        n -= taken;
    }
}

/// Whether an empty line ends in what came after the first `seen` bytes.
fn ends_head(bytes: &[u8], seen: usize) -> bool {
    let from = seen.saturating_sub(3);
    let recent = &bytes[from..];
    let ends = |at: usize| {
        matches!(
            &recent[at..],
            [b'\n', b'\n', ..] | [b'\n', b'\r', b'\n', ..]
        )
    };
    (0..recent.len()).any(ends)
}

/// The status for a head that does not fit.
fn too_long(bytes: &[u8]) -> Status {
    if bytes.contains(&b'\n') {
        Status::HeaderFieldsTooLarge
    } else if bytes.contains(&b' ') {
        Status::UriTooLong
    } else {
        // Not even a method.
        Status::BadRequest
    }
}
