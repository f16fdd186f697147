//! A scripted client: what it sends comes in pieces, and nothing waits.

#![allow(dead_code)]

use std::time::Duration;

use tare_guest_kv::connection;
use tare_guest_kv::host::HostClock;
use tare_guest_kv::server::{Server, Settings};
use tare_libos::serve::script::Script;

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
    let mut script = Script::sending(pieces).slow(1000, Duration::ZERO);
    connection::serve(&mut script, server);
    Answers {
        bytes: script.sent,
        closed: !script.ended,
    }
}

/// The answers of a new server to one piece.
pub(crate) fn ask(bytes: impl AsRef<[u8]>) -> Answers {
    talk(&server(), [bytes.as_ref().to_vec()])
}
