//! Requests and answers on a connection.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::connection::{AnswerLimit, Connection, WHOLE};

/// Longest answer that is taken, bytes.
const ANSWER_MAX: usize = 1 << 20;

/// A connection to an application.
#[derive(Debug)]
pub struct Dialog {
    connection: Connection,
    limit: Duration,
    /// How long an answer may go on after the longest wait for its first bytes.
    whole: Duration,
}

impl Dialog {
    /// Connects; each wait for an answer ends after `limit`, and no answer goes on without end.
    pub fn open(address: SocketAddr, limit: Duration) -> io::Result<Self> {
        Ok(Self {
            connection: Connection::open(address, limit, &Arc::default())?,
            limit,
            whole: WHOLE,
        })
    }

    /// The same; each wait for an answer ends once `interrupted` is set.
    pub fn ended_by(mut self, interrupted: &Arc<AtomicBool>) -> Self {
        self.connection.end_by(interrupted);
        self
    }

    /// Sends, and takes an answer of this many bytes.
    pub fn exchange(&mut self, request: &[u8], answer_bytes: usize) -> io::Result<Vec<u8>> {
        self.connection.send(request)?;
        let limit = self.answer_limit();
        let mut answer = vec![0; answer_bytes];
        let mut read = 0;
        while read < answer_bytes {
            match self.connection.read(limit, &mut answer[read..])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => read += count,
            }
        }
        Ok(answer)
    }

    /// Sends, and takes what comes until nothing has for `quiet`. Later requests
    /// may take as long as on a new connection.
    pub fn learn(&mut self, request: &[u8], quiet: Duration) -> io::Result<Vec<u8>> {
        self.connection.send(request)?;
        let mut limit = self.answer_limit();
        let mut answer = Vec::new();
        let mut chunk = [0; 4096];
        loop {
            match self.connection.read(limit, &mut chunk) {
                Ok(0) => return Ok(answer),
                Ok(bytes) => answer.extend_from_slice(&chunk[..bytes]),
                // What goes on has no length to learn.
                Err(error) if answer.is_empty() || error.kind() == io::ErrorKind::TimedOut => {
                    return Err(error);
                }
                Err(_) => return Ok(answer),
            }
            limit = limit.with_silence(quiet);
            if answer.len() > ANSWER_MAX {
                return Ok(answer);
            }
        }
    }

    /// Sends, and takes everything until the application closes, or nothing
    /// more comes: then what came.
    pub fn until_closed(mut self, request: &[u8]) -> io::Result<Vec<u8>> {
        self.connection.send(request)?;
        let limit = self.answer_limit();
        let mut answer = Vec::new();
        let read = self.connection.read_to_end(limit, ANSWER_MAX, &mut answer);
        match read {
            Err(error) if answer.is_empty() => Err(error),
            _ => Ok(answer),
        }
    }

    fn answer_limit(&self) -> AnswerLimit {
        AnswerLimit::new(self.limit, self.whole)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{Ipv4Addr, TcpListener};
    use std::thread;

    use super::*;
    use crate::connection::testing::endless;

    /// Each wait is short, and together they have no end.
    #[test]
    fn an_application_that_sends_without_end_holds_nothing_up() {
        let limit = Duration::from_millis(100);
        let open = || {
            let mut dialog = Dialog::open(endless(b"x", || {}), limit).unwrap();
            dialog.whole = Duration::ZERO;
            dialog
        };
        let learnt = open().learn(b"1", limit).unwrap_err();
        let exchanged = open().exchange(b"1", ANSWER_MAX).unwrap_err();
        for error in [learnt, exchanged] {
            assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
        }
        let closed = open().until_closed(b"1");
        assert!(closed.map_or_else(
            |it| it.kind() == io::ErrorKind::TimedOut,
            |it| !it.is_empty()
        ));
    }

    #[test]
    fn what_follows_a_learnt_answer_may_take_as_long_as_the_first() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1];
            stream.read_exact(&mut request).unwrap();
            stream.write_all(b"one").unwrap();
            stream.read_exact(&mut request).unwrap();
            thread::sleep(Duration::from_millis(200));
            stream.write_all(b"two").unwrap();
        });
        let mut dialog = Dialog::open(address, Duration::from_secs(30)).unwrap();
        let quiet = Duration::from_millis(20);
        assert_eq!(dialog.learn(b"1", quiet).unwrap(), b"one");
        assert_eq!(dialog.exchange(b"2", 3).unwrap(), b"two");
        server.join().unwrap();
    }
}
