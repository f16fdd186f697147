//! Client of a machine's control socket: HTTP/1.1 over a UNIX socket, one
//! request at a time, with one deadline for each request as a whole.
//!
//! The connection is kept between requests, so that sampling costs the monitor
//! little; it is made anew when the monitor closed it. The server is in
//! `crates/monitor`; the bodies are in [`crate::api`] and [`crate::stats`].

use std::io;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde::de::DeserializeOwned;
use tare_host::signal_number::SignalNumber;

use crate::api::{ErrorBody, MachineStatus, SignalRequest, Stop, StopRequest};
use crate::settings::{Settings, SettingsChange};
use crate::stats::Stats;

/// How long a request may take if [`Client::with_timeout`] says nothing. A monitor answers within
/// milliseconds, but on a host without CPU time left it waits for its turn, and a host that is a
/// virtual machine itself may stand still for seconds.
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest answer that is taken, in bytes.
const MAX_RESPONSE: usize = 16 << 20;
/// Pause between attempts to connect to a socket whose queue is full.
const CONNECT_RETRY: Duration = Duration::from_millis(5);

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No process listens: the machine has ended, or does not listen yet.
    #[error("cannot connect to {path}")]
    Connect {
        /// The socket.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Sending or receiving failed, or the connection closed early.
    #[error("the connection to the machine was lost")]
    Broken(#[source] io::Error),
    /// No complete answer in time.
    #[error("the machine did not answer within {0:?}")]
    TimedOut(Duration),
    /// The answer is not HTTP, or too long.
    #[error("invalid answer from the machine: {0}")]
    BadResponse(&'static str),
    /// The answer's body is not the expected JSON.
    #[error("the machine's answer is not the expected JSON")]
    BadJson(#[source] serde_json::Error),
    /// The machine refused.
    #[error("the machine refused with status {status}: {error}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// What it said.
        error: String,
    },
}

/// An HTTP answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// HTTP status.
    pub status: u16,
    /// Body.
    pub body: Vec<u8>,
}

/// Speaks with one machine.
#[derive(Debug)]
pub struct Client {
    socket: PathBuf,
    timeout: Duration,
    stream: Option<UnixStream>,
}

impl Client {
    /// A client of the machine that listens on `socket`
    /// ([`crate::rundir::RunDir::control_socket`]). Connects at the first request.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self {
            socket: socket.into(),
            timeout: DEFAULT_TIMEOUT,
            stream: None,
        }
    }

    /// The same with another limit for each request.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The machine's configuration and state.
    pub fn machine(&mut self) -> Result<MachineStatus, ClientError> {
        self.json("/v1/machine")
    }

    /// The machine's statistics, with the thread IDs of this process's `/proc`.
    pub fn stats(&mut self) -> Result<Stats, ClientError> {
        let mut stats: Stats = self.json("/v1/stats")?;
        stats.number_threads_outside();
        Ok(stats)
    }

    /// The machine's statistics as Prometheus text.
    pub fn metrics(&mut self) -> Result<String, ClientError> {
        let response = accepted(self.request("GET", "/metrics", &[])?)?;
        String::from_utf8(response.body).map_err(|_| ClientError::BadResponse("not UTF-8"))
    }

    /// The settings in force.
    pub fn settings(&mut self) -> Result<Settings, ClientError> {
        self.json("/v1/settings")
    }

    /// Changes settings, all of the change or nothing; the settings then in
    /// force.
    pub fn set(&mut self, change: &SettingsChange) -> Result<Settings, ClientError> {
        let body = serde_json::to_vec(change).map_err(ClientError::BadJson)?;
        let response = accepted(self.request("PUT", "/v1/settings", &body)?)?;
        serde_json::from_slice(&response.body).map_err(ClientError::BadJson)
    }

    /// Asks the machine to end; it ends after this returns (its run directory
    /// goes last: see [`crate::rundir::RunDir::is_alive`]).
    pub fn stop(&mut self, how: Stop) -> Result<(), ClientError> {
        let body = serde_json::to_vec(&StopRequest { how }).map_err(ClientError::BadJson)?;
        accepted(self.request("PUT", "/v1/stop", &body)?).map(drop)
    }

    /// Has the machine's guest send its program a signal. Refused where it runs no program.
    pub fn send_signal(&mut self, signal: SignalNumber) -> Result<(), ClientError> {
        let body = serde_json::to_vec(&SignalRequest { signal }).map_err(ClientError::BadJson)?;
        accepted(self.request("PUT", "/v1/signal", &body)?).map(drop)
    }

    /// Any request, for statuses that the methods above turn into errors.
    pub fn request(
        &mut self,
        method: &str,
        path: &str,
        body: &[u8],
    ) -> Result<Response, ClientError> {
        let deadline = Instant::now() + self.timeout;
        let reused = self.stream.is_some();
        match self.attempt(method, path, body, deadline) {
            // The monitor may close an idle connection just as it is used again.
            Err(ClientError::Broken(_)) if reused => self.attempt(method, path, body, deadline),
            other => other,
        }
    }

    fn json<T: DeserializeOwned>(&mut self, path: &str) -> Result<T, ClientError> {
        let response = accepted(self.request("GET", path, &[])?)?;
        serde_json::from_slice(&response.body).map_err(ClientError::BadJson)
    }

    fn attempt(
        &mut self,
        method: &str,
        path: &str,
        body: &[u8],
        deadline: Instant,
    ) -> Result<Response, ClientError> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.connect(deadline)?,
        };
        self.send(&mut stream, method, path, body, deadline)?;
        let (response, keep) = self.receive(&mut stream, deadline)?;
        self.stream = keep.then_some(stream);
        Ok(response)
    }

    fn connect(&self, deadline: Instant) -> Result<UnixStream, ClientError> {
        loop {
            match connect_now(&self.socket) {
                Ok(stream) => return Ok(stream),
                // The listener's queue is full.
                Err(Errno::AGAIN) if Instant::now() < deadline => std::thread::sleep(CONNECT_RETRY),
                Err(Errno::AGAIN) => return Err(ClientError::TimedOut(self.timeout)),
                Err(errno) => {
                    return Err(ClientError::Connect {
                        path: self.socket.clone(),
                        source: errno.into(),
                    });
                }
            }
        }
    }

    fn send(
        &self,
        stream: &mut UnixStream,
        method: &str,
        path: &str,
        body: &[u8],
        deadline: Instant,
    ) -> Result<(), ClientError> {
        let length = body.len();
        let mut request =
            format!("{method} {path} HTTP/1.1\r\nHost: tare\r\nContent-Length: {length}\r\n\r\n")
                .into_bytes();
        request.extend_from_slice(body);
        let left = self.left(deadline)?;
        stream
            .set_write_timeout(Some(left))
            .and_then(|()| stream.write_all(&request))
            .map_err(|error| self.broken(error))
    }

    fn receive(
        &self,
        stream: &mut UnixStream,
        deadline: Instant,
    ) -> Result<(Response, bool), ClientError> {
        let mut received = Vec::new();
        let mut chunk = [0; 4096];
        loop {
            if let Some(head) = Head::parse(&received)?
                && received.len() >= head.length + head.body
            {
                let body = received[head.length..head.length + head.body].to_vec();
                let status = head.status;
                return Ok((Response { status, body }, head.keep));
            }
            if received.len() > MAX_RESPONSE {
                return Err(ClientError::BadResponse("too long"));
            }
            let left = self.left(deadline)?;
            let read = stream
                .set_read_timeout(Some(left))
                .and_then(|()| stream.read(&mut chunk));
            let count = match read {
                // By any signal: a read with a limit is not begun again (signal(7)).
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read.map_err(|error| self.broken(error))?,
            };
            if count == 0 {
                return Err(ClientError::Broken(io::ErrorKind::UnexpectedEof.into()));
            }
            received.extend_from_slice(&chunk[..count]);
        }
    }

    fn left(&self, deadline: Instant) -> Result<Duration, ClientError> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ClientError::TimedOut(self.timeout));
        }
        Ok(left)
    }

    fn broken(&self, error: io::Error) -> ClientError {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                ClientError::TimedOut(self.timeout)
            }
            _ => ClientError::Broken(error),
        }
    }
}

/// Connects without waiting: a full queue is EAGAIN, so that a machine that
/// was stopped (SIGSTOP) cannot hold its client forever.
fn connect_now(path: &Path) -> Result<UnixStream, Errno> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &address)?;
    let stream = UnixStream::from(socket);
    rustix::io::ioctl_fionbio(&stream, false)?;
    Ok(stream)
}

fn accepted(response: Response) -> Result<Response, ClientError> {
    if response.status < 400 {
        return Ok(response);
    }
    let error = match serde_json::from_slice::<ErrorBody>(&response.body) {
        Ok(body) => body.error,
        Err(_) => String::from_utf8_lossy(&response.body).into_owned(),
    };
    Err(ClientError::Refused {
        status: response.status,
        error,
    })
}

/// The part of an answer before its body.
struct Head {
    status: u16,
    /// Bytes of the head.
    length: usize,
    /// Bytes of the body.
    body: usize,
    /// The connection stays open.
    keep: bool,
}

impl Head {
    /// `None` while it is incomplete.
    fn parse(received: &[u8]) -> Result<Option<Self>, ClientError> {
        let mut headers = [httparse::EMPTY_HEADER; 16];
        let mut response = httparse::Response::new(&mut headers);
        let length = match response.parse(received) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err(ClientError::BadResponse("not HTTP")),
        };
        let header = |name: &str| {
            let found = |h: &&httparse::Header| h.name.eq_ignore_ascii_case(name);
            let header = response.headers.iter().find(found)?;
            std::str::from_utf8(header.value).ok().map(str::trim)
        };
        let body = header("content-length")
            .and_then(|text| text.parse().ok())
            .filter(|body| *body <= MAX_RESPONSE)
            .ok_or(ClientError::BadResponse("no usable length"))?;
        let keep = !header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
        let status = response.code.unwrap_or_default();
        Ok(Some(Self {
            status,
            length,
            body,
            keep,
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    /// Answers each connection with the next of `answers`, after its request's head came.
    fn server(answers: Vec<&'static [u8]>) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.read(&mut [0; 1024]).unwrap();
                stream.write_all(answer).unwrap();
            }
        });
        (directory, path)
    }

    #[test]
    fn a_refusal_carries_the_machines_words() {
        let (_directory, path) = server(vec![
            b"HTTP/1.1 404 x\r\ncontent-length: 19\r\n\r\n{\"error\":\"no such\"}",
        ]);
        let error = Client::new(path).stats().unwrap_err();
        assert!(
            matches!(&error, ClientError::Refused { status: 404, error } if error == "no such"),
            "{error:?}"
        );
    }

    #[test]
    fn a_connection_closed_while_idle_is_made_anew() {
        let (_directory, path) = server(vec![
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\none",
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\ntwo",
        ]);
        let mut client = Client::new(path);
        assert_eq!(client.metrics().unwrap(), "one");
        assert_eq!(client.metrics().unwrap(), "two");
    }

    #[test]
    fn silence_ends_at_the_deadline() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let _listener = UnixListener::bind(&path).unwrap();
        let mut client = Client::new(path).with_timeout(Duration::from_millis(30));
        assert!(matches!(client.stats(), Err(ClientError::TimedOut(_))));
    }

    #[test]
    fn a_socket_without_a_listener_is_its_own_error() {
        let error = Client::new("/nonexistent/socket").stats().unwrap_err();
        assert!(matches!(error, ClientError::Connect { .. }), "{error:?}");
    }

    #[test]
    fn nonsense_and_huge_lengths_are_refused() {
        for answer in [
            b"hello world\r\n\r\n".as_slice(),
            b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n",
            b"HTTP/1.1 200 OK\r\n\r\n",
        ] {
            let (_directory, path) = server(vec![answer]);
            let error = Client::new(path).metrics().unwrap_err();
            assert!(matches!(error, ClientError::BadResponse(_)), "{error:?}");
        }
    }
}
