//! Requests and answers on a connection.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

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

    /// Sends, and takes an answer of so many bytes.
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
            match self.0.read(&mut chunk) {
                Ok(0) => return Ok(answer),
                Ok(bytes) => answer.extend_from_slice(&chunk[..bytes]),
                Err(error) if answer.is_empty() => return Err(error),
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
    pub(crate) fn until_closed(mut self, request: &[u8]) -> io::Result<Vec<u8>> {
        self.0.write_all(request)?;
        let mut answer = Vec::new();
        match self.0.take(ANSWER_MAX).read_to_end(&mut answer) {
            Err(error) if answer.is_empty() => Err(error),
            _ => Ok(answer),
        }
    }
}

/// An answer without what differs from second to second.
pub(crate) fn timeless(protocol: Protocol, answer: &[u8]) -> Vec<u8> {
    if protocol != Protocol::Http {
        return answer.to_owned();
    }
    let lines = answer.split_inclusive(|byte| *byte == b'\n');
    lines
        .filter(|line| !line.starts_with(b"Date: "))
        .flatten()
        .copied()
        .collect()
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
}
