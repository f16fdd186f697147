//! Requests and answers on a connection.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustix::io::{read, retry_on_intr};

/// Longest answer that is taken, bytes.
const ANSWER_MAX: u64 = 1 << 20;

/// A connection to an application.
#[derive(Debug)]
pub struct Dialog(TcpStream);

impl Dialog {
    /// Connects; each wait for an answer ends after `limit`.
    pub fn open(address: SocketAddr, limit: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, limit)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        Ok(Self(stream))
    }

    /// Sends, and takes an answer of this many bytes.
    pub fn exchange(&mut self, request: &[u8], answer_bytes: usize) -> io::Result<Vec<u8>> {
        self.0.write_all(request)?;
        let mut answer = vec![0; answer_bytes];
        self.0.read_exact(&mut answer)?;
        Ok(answer)
    }

    /// Sends, and takes what comes until nothing has for `quiet`.
    pub fn learn(&mut self, request: &[u8], quiet: Duration) -> io::Result<Vec<u8>> {
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
    pub fn until_closed(mut self, request: &[u8]) -> io::Result<Vec<u8>> {
        self.0.write_all(request)?;
        let mut answer = Vec::new();
        match self.0.take(ANSWER_MAX).read_to_end(&mut answer) {
            Err(error) if answer.is_empty() => Err(error),
            _ => Ok(answer),
        }
    }
}
