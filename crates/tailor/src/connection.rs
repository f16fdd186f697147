//! A connection to an application, which is not trusted: one that sends a byte now and then and
//! does not end holds nothing up.

use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::io::{Errno, read};

/// How long an answer may go on after the longest wait for its first bytes.
pub(crate) const WHOLE: Duration = Duration::from_secs(10);

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    /// How long the stream waits for bytes: what was set last.
    timeout: Duration,
    interrupted: Arc<AtomicBool>,
}

/// How long an answer may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerLimit {
    /// Until then all of it has come.
    deadline: Instant,
    /// Longest wait for the next bytes of it.
    silence: Duration,
}

impl AnswerLimit {
    /// For an answer that begins within `silence` and then takes `whole` at most.
    pub(crate) fn new(silence: Duration, whole: Duration) -> Self {
        Self {
            deadline: Instant::now() + silence + whole,
            silence,
        }
    }

    /// The same deadline with another wait for the next bytes.
    pub(crate) fn with_silence(self, silence: Duration) -> Self {
        Self { silence, ..self }
    }
}

impl Connection {
    /// Connects. Connecting, and each write, ends after `limit`, and every read once `interrupted`
    /// is set.
    pub(crate) fn open(
        address: SocketAddr,
        limit: Duration,
        interrupted: &Arc<AtomicBool>,
    ) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, limit)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        Ok(Self {
            stream,
            timeout: limit,
            interrupted: Arc::clone(interrupted),
        })
    }

    /// Reads end once this is set.
    pub(crate) fn end_by(&mut self, interrupted: &Arc<AtomicBool>) {
        self.interrupted = Arc::clone(interrupted);
    }

    /// Sends all of a request.
    pub(crate) fn send(&mut self, request: &[u8]) -> io::Result<()> {
        self.stream.write_all(request)
    }

    /// The next bytes of an answer; none at its end. [`io::ErrorKind::WouldBlock`]: nothing came in
    /// time. [`io::ErrorKind::TimedOut`]: the answer went on beyond its deadline.
    pub(crate) fn read(&mut self, limit: AnswerLimit, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.interrupted.load(Ordering::Relaxed) {
                return Err(io::Error::other("interrupted"));
            }
            let left = limit.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let what = "the answer did not end in time";
                return Err(io::Error::new(io::ErrorKind::TimedOut, what));
            }
            let timeout = left.min(limit.silence);
            // A call less for each request of a load.
            if self.timeout != timeout {
                self.stream.set_read_timeout(Some(timeout))?;
                self.timeout = timeout;
            }
            match read(&self.stream, &mut *bytes) {
                Ok(count) => return Ok(count),
                // By any signal: a read with a limit is not begun again (signal(7)).
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if timeout < limit.silence => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Adds what comes to `answer` until the application closes, or `most` bytes are there.
    pub(crate) fn read_to_end(
        &mut self,
        limit: AnswerLimit,
        most: usize,
        answer: &mut Vec<u8>,
    ) -> io::Result<()> {
        let mut chunk = [0; 16 << 10];
        while answer.len() < most {
            let room = chunk.len().min(most - answer.len());
            match self.read(limit, &mut chunk[..room])? {
                0 => break,
                count => answer.extend_from_slice(&chunk[..count]),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use std::io::Write as _;
    use std::net::{Ipv4Addr, SocketAddr, TcpListener};
    use std::thread;
    use std::time::Duration;

    /// A server that sends `first`, then a byte now and then until the client is gone, and calls
    /// `sent` after each.
    pub(crate) fn endless(first: &'static [u8], sent: impl Fn() + Send + 'static) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut next = first;
            while stream.write_all(next).is_ok() {
                sent();
                next = b"x";
                thread::sleep(Duration::from_millis(20));
            }
        });
        address
    }
}
