//! The listening socket and its clients, driven by the program's event loop.
//!
//! When all places are taken a client that is between requests makes room, or one
//! that has been in requests for a second, however busy it is; while there is none,
//! further clients wait in the socket's backlog, and the listener is not watched.

use std::io;
use std::io::ErrorKind;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use super::Routes;
use super::connection::{Connection, Fate};
use crate::poll::{Interest, Poll, Wait};

/// Most clients at a time.
pub(crate) const MAX_CLIENTS: usize = 16;
/// How long a client may be in the middle of requests and answers while others wait.
const REQUEST_LIMIT: Duration = Duration::from_secs(1);

/// The server. Uses its first token and one more for each client.
pub struct Server {
    listener: UnixListener,
    listening: Interest,
    first_token: u64,
    clients: [Option<Client>; MAX_CLIENTS],
}

struct Client {
    connection: Connection,
    watched: Interest,
    /// When it was accepted, or the request that it is in the middle of began, or its last answer was
    /// sent. What comes within a request does not renew it: a client that sends one byte after the
    /// other would keep its place.
    since: Instant,
}

impl Server {
    /// Serves `listener` with tokens from `first_token` on.
    pub fn new(listener: UnixListener, poll: &Poll, first_token: u64) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        poll.add(&listener, first_token)?;
        Ok(Self {
            listener,
            listening: Interest::READ,
            first_token,
            clients: [const { None }; MAX_CLIENTS],
        })
    }

    /// How long to wait for the next event: with clients in the backlog, until others can be closed.
    /// Then call [`Self::resume`].
    pub fn wait(&self) -> Wait {
        if self.listening == Interest::READ {
            Wait::Forever
        } else {
            Wait::Nanoseconds(REQUEST_LIMIT.as_nanos() as u64)
        }
    }

    /// Handles `token` if it is one of the server's.
    pub fn ready(&mut self, poll: &Poll, token: u64, routes: &mut impl Routes) {
        let Some(slot) = token.checked_sub(self.first_token) else {
            return;
        };
        match usize::try_from(slot).ok().and_then(|n| n.checked_sub(1)) {
            None => self.accept(poll),
            Some(slot) if slot < MAX_CLIENTS => self.advance(poll, slot, routes),
            Some(_) => {}
        }
    }

    /// Accepts clients from the backlog, if there is room for them now.
    pub fn resume(&mut self, poll: &Poll) {
        if self.listening != Interest::READ && self.place().is_some() {
            self.listen(poll, Interest::READ);
            self.accept(poll);
        }
    }

    fn accept(&mut self, poll: &Poll) {
        while let Some(slot) = self.place() {
            let accepted = self.listener.accept();
            let connection = match accepted.and_then(|(stream, _)| Connection::new(stream)) {
                Ok(connection) => connection,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if passes(error.kind()) => continue,
                // Out of descriptors: closing an idle client frees one.
                Err(_) if self.clients[slot].take().is_some() => continue,
                Err(_) => break,
            };
            let token = self.first_token + 1 + slot as u64;
            // Replacing a client closes its descriptor, which leaves the set.
            self.clients[slot] = poll.add(&connection, token).ok().map(|()| Client {
                connection,
                watched: Interest::READ,
                since: Instant::now(),
            });
        }
        self.listen(poll, Interest::default());
    }

    fn listen(&mut self, poll: &Poll, interest: Interest) {
        let changed = poll.change(&self.listener, self.first_token, self.listening, interest);
        if changed.is_ok() {
            self.listening = interest;
        }
    }

    fn advance(&mut self, poll: &Poll, slot: usize, routes: &mut impl Routes) {
        let Some(client) = &mut self.clients[slot] else {
            return;
        };
        let was_idle = client.connection.is_idle();
        let fate = client.connection.advance(routes);
        if was_idle || client.connection.is_idle() {
            client.since = Instant::now();
        }
        let token = self.first_token + 1 + slot as u64;
        let interest = client.connection.interest();
        let watching = poll.change(&client.connection, token, client.watched, interest);
        client.watched = interest;
        if fate == Fate::Leaves || watching.is_err() {
            self.clients[slot] = None;
        }
        self.resume(poll);
    }

    /// A place for another client: a free one, or that of a client that can be closed.
    fn place(&self) -> Option<usize> {
        if let Some(free) = self.clients.iter().position(Option::is_none) {
            return Some(free);
        }
        let may_go = |client: &Client| {
            client.connection.is_idle() || client.since.elapsed() >= REQUEST_LIMIT
        };
        let clients = (0..).zip(self.clients.iter().flatten());
        clients
            .filter(|(_, client)| may_go(client))
            .min_by_key(|(_, client)| client.since)
            .map(|(slot, _)| slot)
    }
}

/// Whether the next attempt may succeed at once.
fn passes(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Interrupted | ErrorKind::ConnectionAborted)
}

#[cfg(test)]
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

        /// Clients in the middle of a request on every place.
        fn half_requests(&mut self) -> Vec<UnixStream> {
            let mut clients: Vec<_> = (0..MAX_CLIENTS).map(|_| self.connect()).collect();
            for client in &mut clients {
                client.write_all(&GET[..8]).unwrap();
                self.turn();
            }
            clients
        }

        /// The same, and one more with a whole one.
        fn full_of_half_requests(&mut self) -> (Vec<UnixStream>, UnixStream) {
            let clients = self.half_requests();
            let mut waiting = self.connect();
            waiting.write_all(GET).unwrap();
            self.turn();
            (clients, waiting)
        }

        /// Lets the limit pass for all clients.
        fn age(&mut self) {
            for client in self.server.clients.iter_mut().flatten() {
                client.since = client.since.checked_sub(REQUEST_LIMIT).unwrap();
            }
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
    fn the_idle_client_that_was_silent_longest_goes() {
        let mut rig = Rig::new();
        let mut clients: Vec<_> = (0..MAX_CLIENTS).map(|_| rig.connect()).collect();
        for n in [2, 1, 0] {
            clients[n].write_all(GET).unwrap();
            rig.turn();
            assert!(read_some(&mut clients[n]).starts_with("HTTP/1.1 200"));
        }
        let mut newest = rig.connect();
        assert_eq!(clients[2].read(&mut [0]).unwrap(), 0, "dropped");
        newest.write_all(GET).unwrap();
        rig.turn();
        assert!(read_some(&mut newest).starts_with("HTTP/1.1 200"));
    }

    #[test]
    fn a_client_waits_while_all_others_are_in_the_middle_of_a_request() {
        let mut rig = Rig::new();
        let (mut clients, mut waiting) = rig.full_of_half_requests();
        assert_ne!(rig.server.wait(), Wait::Forever);
        let mut ready = Vec::new();
        rig.poll.wait(&mut ready, Wait::No).unwrap();
        assert!(ready.is_empty(), "no busy loop while it waits");
        for client in &mut clients {
            client.write_all(&GET[8..]).unwrap();
            rig.turn();
            assert!(read_some(client).starts_with("HTTP/1.1 200"));
        }
        rig.turn();
        assert!(read_some(&mut waiting).starts_with("HTTP/1.1 200"));
        assert_eq!(rig.server.wait(), Wait::Forever);
    }

    #[test]
    fn half_requests_keep_others_out_for_a_second_at_most() {
        let mut rig = Rig::new();
        let (_clients, mut waiting) = rig.full_of_half_requests();
        rig.age();
        rig.server.resume(&rig.poll);
        rig.turn();
        assert!(read_some(&mut waiting).starts_with("HTTP/1.1 200"));
    }

    /// Whether another client gets a place of clients that have been in requests for as long as they may
    /// and have just sent `more`.
    fn makes_room_after(more: &[u8]) -> bool {
        let mut rig = Rig::new();
        let mut clients = rig.half_requests();
        rig.age();
        for client in &mut clients {
            client.write_all(more).unwrap();
            rig.turn();
        }
        let mut waiting = rig.connect();
        waiting.write_all(GET).unwrap();
        rig.turn();
        waiting.set_nonblocking(true).unwrap();
        waiting.read(&mut [0]).is_ok_and(|count| count == 1)
    }

    #[test]
    fn clients_that_drip_keep_others_out_for_a_second_at_most() {
        assert!(makes_room_after(&GET[8..9]));
    }

    #[test]
    fn clients_that_are_never_between_requests_make_room() {
        assert!(makes_room_after(&[&GET[8..], &GET[..8]].concat()));
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

    struct Count(usize);

    impl Routes for Count {
        fn answer(&mut self, _: &Request<'_>) -> Response {
            self.0 += 1;
            Response::ok("text/plain", Vec::new())
        }
    }

    #[test]
    fn a_client_with_many_requests_leaves_others_their_turn() {
        const REQUESTS: usize = 200;
        let mut rig = Rig::new();
        let mut client = rig.connect();
        client.write_all(&GET.repeat(REQUESTS)).unwrap();
        let (mut count, mut ready, mut turns) = (Count(0), Vec::new(), 0);
        while count.0 < REQUESTS {
            rig.poll.wait(&mut ready, Wait::No).unwrap();
            assert!(!ready.is_empty(), "what is left makes it ready");
            for token in ready.drain(..) {
                rig.server.ready(&rig.poll, token, &mut count);
            }
            turns += 1;
        }
        assert!(turns > 1, "all in one turn");
    }
}
