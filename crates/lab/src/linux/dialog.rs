//! Requests and answers on a connection.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustix::io::{read, retry_on_intr};

use super::catalog::Protocol;

/// Longest answer that is taken, bytes.
const ANSWER_MAX: u64 = 1 << 20;

/// A connection to an application.
pub(crate) struct Dialog(TcpStream);

impl Dialog {
    /// Connects; each wait for an answer ends after `limit`.
    pub(crate) fn open(address: SocketAddr, limit: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, limit)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        Ok(Self(stream))
    }

    /// Sends, and takes an answer of this many bytes.
    pub(crate) fn exchange(&mut self, request: &[u8], answer_bytes: usize) -> io::Result<Vec<u8>> {
        self.0.write_all(request)?;
        let mut answer = vec![0; answer_bytes];
        self.0.read_exact(&mut answer)?;
        Ok(answer)
    }

    /// Sends, and takes what comes until nothing has for `quiet`.
    pub(crate) fn learn(&mut self, request: &[u8], quiet: Duration) -> io::Result<Vec<u8>> {
        self.0.write_all(request)?;
        let mut answer = Vec::new();
        let mut chunk = [0; 4096];
        loop {
            // By any signal: a read with a limit is not begun again (signal(7)).
            match retry_on_intr(|| read(&self.0, &mut chunk)) {
                Ok(0) => return Ok(answer),
                Ok(bytes) => answer.extend_from_slice(&chunk[..bytes]),
                Err(errno) if answer.is_empty() => return Err(errno.into()),
                Err(_) => return Ok(answer),
            }
            self.0.set_read_timeout(Some(quiet))?;
            if answer.len() as u64 > ANSWER_MAX {
                return Ok(answer);
            }
        }
    }

    /// Sends, and takes everything until the application closes, or nothing
    /// more comes: then what came.
    fn until_closed(mut self, request: &[u8]) -> io::Result<Vec<u8>> {
        self.0.write_all(request)?;
        let mut answer = Vec::new();
        match self.0.take(ANSWER_MAX).read_to_end(&mut answer) {
            Err(error) if answer.is_empty() => Err(error),
            _ => Ok(answer),
        }
    }
}

/// Everything that is answered to one request, on its own connection.
pub(crate) fn ask(address: SocketAddr, limit: Duration, request: &[u8]) -> io::Result<Vec<u8>> {
    Dialog::open(address, limit)?.until_closed(request)
}

/// An answer without what differs from second to second or from start to start: its
/// date, and the order in which a server's hash table gives what it allows.
pub(crate) fn timeless(protocol: Protocol, answer: &[u8]) -> Vec<u8> {
    if protocol != Protocol::Http {
        return answer.to_owned();
    }
    let lines = answer.split_inclusive(|byte| *byte == b'\n');
    lines
        .filter(|line| !line.starts_with(b"Date: "))
        .flat_map(in_order)
        .collect()
}

/// The line with the methods of an `Allow` header in alphabetical order.
fn in_order(line: &[u8]) -> Vec<u8> {
    let name: &[u8] = b"Allow: ";
    let Some(list) = line.strip_prefix(name) else {
        return line.to_owned();
    };
    let mut methods: Vec<&[u8]> = list.trim_ascii().split(|byte| *byte == b',').collect();
    methods.sort_unstable();
    [name, &methods.join(&b','), b"\r\n"].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_is_not_compared() {
        let answer = b"HTTP/1.1 200 OK\r\nDate: now\r\nServer: x\r\n\r\nDate of birth\n";
        let kept = timeless(Protocol::Http, answer);
        assert_eq!(kept, b"HTTP/1.1 200 OK\r\nServer: x\r\n\r\nDate of birth\n");
        assert_eq!(timeless(Protocol::Redis, b"Date: x\n"), b"Date: x\n");
    }

    #[test]
    fn methods_are_allowed_in_any_order() {
        let answer = |list| format!("HTTP/1.1 405 No\r\nAllow: {list}\r\n\r\nbody").into_bytes();
        let kept = |list| timeless(Protocol::Http, &answer(list));
        assert_eq!(kept("POST,GET,HEAD"), answer("GET,HEAD,POST"));
        assert_ne!(kept("GET,HEAD"), kept("GET,HEAD,POST"));
    }
}
