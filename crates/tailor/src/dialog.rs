//! Requests and answers on a connection.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustix::io::{read, retry_on_intr};

/// Longest answer that is taken, bytes.
const ANSWER_MAX: u64 = 1 << 20;

/// A connection to an application.
#[derive(Debug)]
pub struct Dialog {
    stream: TcpStream,
    limit: Duration,
}

impl Dialog {
    /// Connects; each wait for an answer ends after `limit`.
    pub fn open(address: SocketAddr, limit: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, limit)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        Ok(Self { stream, limit })
    }

    /// Sends, and takes an answer of this many bytes.
    pub fn exchange(&mut self, request: &[u8], answer_bytes: usize) -> io::Result<Vec<u8>> {
        self.stream.write_all(request)?;
        let mut answer = vec![0; answer_bytes];
        self.stream.read_exact(&mut answer)?;
        Ok(answer)
    }

    /// Sends, and takes what comes until nothing has for `quiet`. Later requests
    /// may take as long as on a new connection.
    pub fn learn(&mut self, request: &[u8], quiet: Duration) -> io::Result<Vec<u8>> {
        let answer = self.until_quiet(request, quiet);
        self.stream.set_read_timeout(Some(self.limit))?;
        answer
    }

    fn until_quiet(&mut self, request: &[u8], quiet: Duration) -> io::Result<Vec<u8>> {
        self.stream.write_all(request)?;
        let mut answer = Vec::new();
        let mut chunk = [0; 4096];
        loop {
            // By any signal: a read with a limit is not begun again (signal(7)).
            match retry_on_intr(|| read(&self.stream, &mut chunk)) {
                Ok(0) => return Ok(answer),
                Ok(bytes) => answer.extend_from_slice(&chunk[..bytes]),
                Err(errno) if answer.is_empty() => return Err(errno.into()),
                Err(_) => return Ok(answer),
            }
            self.stream.set_read_timeout(Some(quiet))?;
            if answer.len() as u64 > ANSWER_MAX {
                return Ok(answer);
            }
        }
    }

    /// Sends, and takes everything until the application closes, or nothing
    /// more comes: then what came.
    pub fn until_closed(mut self, request: &[u8]) -> io::Result<Vec<u8>> {
        self.stream.write_all(request)?;
        let mut answer = Vec::new();
        match self.stream.take(ANSWER_MAX).read_to_end(&mut answer) {
            Err(error) if answer.is_empty() => Err(error),
            _ => Ok(answer),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};
    use std::thread;

    use super::*;

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
