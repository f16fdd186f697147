//! The listening socket and its clients, as a guest of somebody's event loop.

use std::io;
use std::os::unix::net::UnixListener;

use super::Routes;
use super::connection::{Connection, Fate};
use crate::poll::{Interest, Poll};

/// Most clients at a time.
pub const MAX_CLIENTS: usize = 16;

/// The server. Uses the tokens from its first one on, [`Server::TOKENS`] of them.
pub struct Server {
    listener: UnixListener,
    first_token: u64,
    clients: [Option<Client>; MAX_CLIENTS],
    /// Counts events, to tell who was silent longest.
    turn: u64,
}

struct Client {
    connection: Connection,
    watched: Interest,
    last_turn: u64,
}

impl Server {
    /// Tokens that a server uses.
    pub const TOKENS: u64 = 1 + MAX_CLIENTS as u64;

    /// Serves `listener` with tokens from `first_token` on.
    pub fn new(listener: UnixListener, poll: &Poll, first_token: u64) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        poll.add(&listener, first_token)?;
        Ok(Self {
            listener,
            first_token,
            clients: [const { None }; MAX_CLIENTS],
            turn: 0,
        })
    }

    /// Handles `token` if it is one of the server's.
    pub fn ready(&mut self, poll: &Poll, token: u64, routes: &mut impl Routes) {
        let Some(slot) = token.checked_sub(self.first_token) else {
            return;
        };
        self.turn += 1;
        match usize::try_from(slot).ok().and_then(|n| n.checked_sub(1)) {
            None => self.accept(poll),
            Some(slot) if slot < MAX_CLIENTS => self.advance(poll, slot, routes),
            Some(_) => {}
        }
    }

    fn accept(&mut self, poll: &Poll) {
        while let Ok((stream, _)) = self.listener.accept() {
            let Ok(connection) = Connection::new(stream) else {
                continue;
            };
            let slot = self.free_slot();
            let token = self.first_token + 1 + slot as u64;
            // Replacing a client closes its descriptor, which leaves the set.
            self.clients[slot] = poll.add(&connection, token).ok().map(|()| Client {
                connection,
                watched: Interest::READ,
                last_turn: self.turn,
            });
        }
    }

    fn advance(&mut self, poll: &Poll, slot: usize, routes: &mut impl Routes) {
        let Some(client) = &mut self.clients[slot] else {
            return;
        };
        client.last_turn = self.turn;
        let fate = client.connection.advance(routes);
        let token = self.first_token + 1 + slot as u64;
        let interest = client.connection.interest();
        let watching = poll.change(&client.connection, token, client.watched, interest);
        client.watched = interest;
        if fate == Fate::Leaves || watching.is_err() {
            self.clients[slot] = None;
        }
    }

    /// A free place, or the place of the client that was silent longest.
    fn free_slot(&self) -> usize {
        let last = |client: &Option<Client>| client.as_ref().map(|client| client.last_turn);
        let slots = 0..MAX_CLIENTS;
        slots
            .min_by_key(|slot| last(&self.clients[*slot]))
            .unwrap_or_default()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;
    use std::path::PathBuf;

    use super::*;
    use crate::http::{Request, Response};
    use crate::poll::Wait;

    struct Echo;

    impl Routes for Echo {
        fn answer(&mut self, request: &Request<'_>) -> Response {
            Response::ok("text/plain", request.path.repeat(1000).into_bytes())
        }
    }

    struct Rig {
        _directory: tempfile::TempDir,
        path: PathBuf,
        poll: Poll,
        server: Server,
    }

    impl Rig {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("s");
            let listener = UnixListener::bind(&path).unwrap();
            let poll = Poll::new().unwrap();
            let server = Server::new(listener, &poll, 5).unwrap();
            Self {
                _directory: directory,
                path,
                poll,
                server,
            }
        }

        fn connect(&mut self) -> UnixStream {
            let stream = UnixStream::connect(&self.path).unwrap();
            self.turn();
            stream
        }

        fn turn(&mut self) {
            let mut ready = Vec::new();
            self.poll.wait(&mut ready, Wait::No).unwrap();
            for token in ready {
                self.server.ready(&self.poll, token, &mut Echo);
            }
        }
    }

    const GET: &[u8] = b"GET /abc HTTP/1.1\r\n\r\n";

    fn read_some(stream: &mut UnixStream) -> String {
        let mut buffer = [0; 65536];
        let count = stream.read(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..count]).into_owned()
    }

    #[test]
    fn pipelined_requests_are_answered_in_order() {
        let mut rig = Rig::new();
        let mut client = rig.connect();
        client
            .write_all(b"GET /1 HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\nConnection: close\r\n\r\n")
            .unwrap();
        rig.turn();
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        assert_eq!(text.matches("HTTP/1.1 200 OK").count(), 2);
        assert!(text.find("/1/1").unwrap() < text.find("/2/2").unwrap());
    }

    #[test]
    fn a_client_that_never_reads_does_not_hold_the_others() {
        let mut rig = Rig::new();
        let mut greedy = rig.connect();
        greedy.set_nonblocking(true).unwrap();
        let mut asked = 0;
        while greedy.write(GET).is_ok() && asked < 10_000 {
            asked += 1;
            rig.turn();
        }
        let mut client = rig.connect();
        client.write_all(GET).unwrap();
        rig.turn();
        assert!(read_some(&mut client).starts_with("HTTP/1.1 200"));
    }

    #[test]
    fn the_client_that_was_silent_longest_goes() {
        let mut rig = Rig::new();
        let mut clients: Vec<_> = (0..MAX_CLIENTS).map(|_| rig.connect()).collect();
        clients[0].write_all(GET).unwrap();
        rig.turn();
        let mut newest = rig.connect();
        assert_eq!(clients[1].read(&mut [0]).unwrap(), 0, "dropped");
        assert!(read_some(&mut clients[0]).starts_with("HTTP/1.1 200"));
        newest.write_all(GET).unwrap();
        rig.turn();
        assert!(read_some(&mut newest).starts_with("HTTP/1.1 200"));
    }

    #[test]
    fn nonsense_is_answered_and_the_connection_closed() {
        let mut rig = Rig::new();
        let mut client = rig.connect();
        client.write_all(b"\x16\x03\x01 hello\r\n\r\n").unwrap();
        rig.turn();
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 400 "), "{text}");
    }

    #[test]
    fn an_idle_server_is_not_woken_by_a_half_request() {
        let mut rig = Rig::new();
        let mut client = rig.connect();
        client.write_all(b"GET /").unwrap();
        rig.turn();
        let mut ready = Vec::new();
        rig.poll.wait(&mut ready, Wait::No).unwrap();
        assert!(ready.is_empty());
    }
}
