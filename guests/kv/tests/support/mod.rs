//! A scripted client: what it sends comes in pieces, and nothing waits.

#![allow(dead_code, clippy::unwrap_used)]

use std::collections::VecDeque;
use std::time::Duration;

use tare_guest_kv::connection;
use tare_guest_kv::host::HostClock;
use tare_guest_kv::server::{Server, Settings};
use tare_libos::serve::{Transport, TransportError};

/// The client's side of a connection.
struct Script<'a> {
    pieces: VecDeque<Vec<u8>>,
    sent: &'a mut Vec<u8>,
    ended: &'a mut bool,
    window: usize,
}

impl Transport for Script<'_> {
    fn receive(&mut self, into: &mut [u8], _: Option<Duration>) -> Result<usize, TransportError> {
        let Some(mut piece) = self.pieces.pop_front() else {
            *self.ended = true;
            return Ok(0);
        };
        let n = piece.len().min(into.len());
        into[..n].copy_from_slice(&piece[..n]);
        if n < piece.len() {
            self.pieces.push_front(piece.split_off(n));
        }
        Ok(n)
    }

    fn send<const N: usize>(
        &mut self,
        parts: &[&[u8]; N],
        _: Duration,
    ) -> Result<usize, TransportError> {
        let bytes = parts.concat();
        let n = bytes.len().min(self.window);
        self.sent.extend_from_slice(&bytes[..n]);
        Ok(n)
    }

    fn finish(&mut self) {}

    fn now(&self) -> Duration {
        Duration::ZERO
    }
}

/// What came of a script.
#[derive(Debug)]
pub(crate) struct Answers {
    pub bytes: Vec<u8>,
    /// Whether the server ended the connection before the client did.
    pub closed: bool,
}

impl Answers {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

pub(crate) fn server() -> Server<HostClock> {
    Server::new(Settings::default(), HostClock)
}

/// Sends the pieces to the server, one after the other.
pub(crate) fn talk(
    server: &Server<HostClock>,
    pieces: impl IntoIterator<Item = Vec<u8>>,
) -> Answers {
    let (mut bytes, mut ended) = (Vec::new(), false);
    let script = Script {
        pieces: pieces.into_iter().filter(|it| !it.is_empty()).collect(),
        sent: &mut bytes,
        ended: &mut ended,
        window: 1000,
    };
    connection::serve(script, server);
    Answers {
        bytes,
        closed: !ended,
    }
}

/// The answers of a server of its own to one piece.
pub(crate) fn ask(bytes: impl AsRef<[u8]>) -> Answers {
    talk(&server(), [bytes.as_ref().to_vec()])
}
