//! One connection from its first byte to its last. Requests are answered in order, so
//! that pipelining needs nothing special.

use alloc::vec::Vec;
use core::time::Duration;

use tare_libos::serve::{Buffer, NoRoom, Sizes, Transport, TransportError};
use tare_libos::time::{SystemTime, UNIX_EPOCH};

use crate::body::{BodyReader, Progress};
use crate::framing::Framing;
use crate::output::{Growing, Short, append};
use crate::request::{Head, Refusal, Request, parse};
use crate::response::{Response, write_refusal};
use crate::{date, limits};

/// Serves a connection until it ends.
pub fn converse<T: Transport>(transport: T, answer: &impl Fn(&Request) -> Response) {
    let mut connection = Connection::new(transport);
    if let Err(CloseReason::Refused) = connection.run(answer) {
        connection.linger(limits::LINGER);
    }
}

/// Answers a connection beyond the limit, whose thread is the one that accepts others.
pub(crate) fn refuse<T: Transport>(transport: T) {
    let mut connection = Connection::new(transport);
    if let Err(CloseReason::Refused) = connection.refuse::<()>(Refusal::Connections) {
        connection.linger(Duration::from_millis(10));
    }
}

/// Why a connection ends.
enum CloseReason {
    /// The peer has ended, is silent, or does not take its answer.
    Closed,
    /// An answer said so, and the peer may still be sending.
    Refused,
}

impl From<TransportError> for CloseReason {
    fn from(_: TransportError) -> Self {
        Self::Closed
    }
}

struct Connection<T> {
    transport: T,
    buffer: Buffer<Requests>,
}

/// Longest answer to a refused client, head and body.
pub(crate) const MAX_REFUSAL: usize = 320;

fn now() -> [u8; date::LEN] {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    date::format(now.as_secs())
}

fn date_text(date: &[u8; date::LEN]) -> &str {
    core::str::from_utf8(date).unwrap_or_default()
}

/// Sizes of a connection's buffer.
struct Requests;

impl Sizes for Requests {
    const FIRST: usize = limits::BUFFER;
    const KEPT: usize = limits::BUFFER;
    // A head that is too long is seen to be so.
    const MOST: usize = limits::MAX_HEAD + limits::BUFFER;
}

impl<T: Transport> Connection<T> {
    fn new(transport: T) -> Self {
        Self {
            transport,
            buffer: Buffer::new(),
        }
    }

    fn run(&mut self, answer: &impl Fn(&Request) -> Response) -> Result<(), CloseReason> {
        loop {
            for _ in 0..limits::BATCH {
                self.exchange(answer)?;
            }
            self.transport.give_way();
        }
    }

    /// One request and its answer.
    fn exchange(&mut self, answer: &impl Fn(&Request) -> Response) -> Result<(), CloseReason> {
        let head = self.head()?;
        let keeps = head.keeps;
        let request = self.body(head)?;
        let response = answer(&request);
        self.send(&response, request.method(), keeps)?;
        if keeps {
            Ok(())
        } else {
            Err(CloseReason::Refused)
        }
    }

    fn head(&mut self) -> Result<Head, CloseReason> {
        self.skip_empty_lines();
        while self.buffer.is_empty() {
            let room = self.buffer.room().map_err(|_| CloseReason::Closed)?;
            match self.transport.receive(room, Some(limits::IDLE))? {
                0 => return Err(CloseReason::Closed),
                n => self.buffer.received(n),
            }
            self.skip_empty_lines();
        }
        let deadline = self.transport.now() + limits::HEAD;
        let mut seen = 0;
        loop {
            let received = self.buffer.filled().len();
            let bytes = &self.buffer.filled()[..received.min(limits::MAX_HEAD)];
            // Only whole lines, once each: the answer does not depend on how the network
            // cuts the bytes, and a head that drips in is not parsed for each byte.
            let head = match bytes[seen..].iter().rposition(|byte| *byte == b'\n') {
                Some(line_end) => parse(&bytes[..=seen + line_end]),
                None => Ok(None),
            };
            seen = bytes.len();
            match head {
                Ok(Some(head)) => {
                    self.buffer.consume(head.len);
                    return Ok(head);
                }
                Ok(None) if received > limits::MAX_HEAD => {
                    return self.refuse(Refusal::HeadTooLarge);
                }
                Ok(None) => self.receive(deadline)?,
                Err(refusal) => return self.refuse(refusal),
            }
        }
    }

    /// Empty lines before a request are to be ignored (RFC 9112, 2.2).
    fn skip_empty_lines(&mut self) {
        let bytes = self.buffer.filled();
        let is_line_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
        let skipped = bytes.iter().take_while(|byte| is_line_end(byte)).count();
        self.buffer.consume(skipped);
    }

    /// The request with its body.
    fn body(&mut self, head: Head) -> Result<Request, CloseReason> {
        if head.body == Framing::Length(0) {
            return Ok(head.request);
        }
        let reader = BodyReader::new(head.body, limits::REQUEST_BODY);
        let mut reader = match reader {
            Ok(reader) => reader,
            Err(error) => return self.refuse(error.into()),
        };
        if head.expects_continue && self.buffer.is_empty() {
            self.send_parts([b"HTTP/1.1 100 Continue\r\n\r\n", b""])?;
        }
        let deadline = self.transport.now() + limits::BODY;
        let mut body = Vec::new();
        loop {
            let bytes = self.buffer.filled();
            let available = bytes.len();
            let fed = reader.feed(bytes, |content| {
                append(&mut body, content).map_err(|_| Refusal::Memory)
            });
            match fed {
                Ok(Progress::Done(n)) => {
                    self.buffer.consume(n);
                    return Ok(head.request.with_body(body));
                }
                Ok(Progress::More) => self.buffer.consume(available),
                Err(refusal) => return self.refuse(refusal),
            }
            self.receive(deadline)?;
        }
    }

    /// Receives bytes of a request that has begun.
    fn receive(&mut self, deadline: Duration) -> Result<(), CloseReason> {
        let room = match self.buffer.room() {
            Ok(room) => room,
            Err(NoRoom::Full) => return self.refuse(Refusal::HeadTooLarge),
            Err(NoRoom::NoMemory) => return self.refuse(Refusal::Memory),
        };
        let within = deadline.saturating_sub(self.transport.now());
        let received = match within {
            Duration::ZERO => Err(TransportError::TimedOut),
            within => self.transport.receive(room, Some(within)),
        };
        match received {
            Ok(0) | Err(TransportError::Broken) => Err(CloseReason::Closed),
            Ok(n) => {
                self.buffer.received(n);
                Ok(())
            }
            Err(TransportError::TimedOut) => self.refuse(Refusal::Timeout),
        }
    }

    fn refuse<R>(&mut self, refusal: Refusal) -> Result<R, CloseReason> {
        let mut answer = Short::<MAX_REFUSAL>::new();
        write_refusal(&mut answer, refusal, date_text(&now())).map_err(|_| CloseReason::Closed)?;
        self.send_parts([answer.bytes(), b""])?;
        Err(CloseReason::Refused)
    }

    /// Without memory for its head a response cannot be sent, and what has no answer ends.
    fn send(&mut self, response: &Response, method: &str, keeps: bool) -> Result<(), CloseReason> {
        let mut head = Growing::default();
        let written = response.write_head(&mut head, date_text(&now()), keeps);
        if written.is_err() {
            return self.refuse(Refusal::Memory);
        }
        self.send_parts([head.bytes(), response.body_for(method)])
    }

    fn send_parts(&mut self, mut parts: [&[u8]; 2]) -> Result<(), CloseReason> {
        let left = parts[0].len() + parts[1].len();
        let allowed = limits::WRITE + Duration::from_secs((left / limits::LEAST_RATE) as u64);
        let deadline = self.transport.now() + allowed;
        while parts.iter().any(|part| !part.is_empty()) {
            let mut sent = self.transport.send(&parts, limits::WRITE)?;
            for part in &mut parts {
                let taken = sent.min(part.len());
                *part = &part[taken..];
                sent -= taken;
            }
            if self.transport.now() > deadline {
                return Err(CloseReason::Closed);
            }
        }
        Ok(())
    }

    /// Ends the sending side and reads on for a moment.
    fn linger(&mut self, moment: Duration) {
        self.transport.finish();
        let deadline = self.transport.now() + moment;
        let mut passed = [0; 512];
        let mut left = limits::MAX_BODY;
        loop {
            let within = deadline.saturating_sub(self.transport.now());
            if within.is_zero() {
                return;
            }
            match self.transport.receive(&mut passed, Some(within)) {
                Ok(n @ 1..) if n < left => left -= n,
                _ => return,
            }
        }
    }
}
