//! What shows that an application works in its guest.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rustix::io::{Errno, read, retry_on_intr};

use crate::connection::{AnswerLimit, Connection, WHOLE};

/// How long an answer may let wait for its next bytes.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// A connection that stays open for so long has a server at its other end: the
/// forwarding in between accepts every one and closes those that the guest does not accept.
const OPEN_LIMIT: Duration = Duration::from_millis(400);
/// Most bytes of an answer.
const ANSWER_BYTES: usize = 16 << 20;

/// What shows that an application works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// A command in the guest, beside the application, that ends with 0.
    Command(Vec<String>),
    /// An answer below 400 to a request.
    Http {
        /// The guest's port.
        port: u16,
        /// The path, with its slash.
        path: String,
    },
    /// A connection that is taken.
    Tcp {
        /// The guest's port.
        port: u16,
    },
    /// It ends with 0, or goes on for a while.
    Runs,
}

/// A check that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid check `{0}`: use http:PORT/PATH, tcp:PORT, or a command")]
pub struct CheckError(String);

impl FromStr for Check {
    type Err = CheckError;

    fn from_str(text: &str) -> Result<Self, CheckError> {
        let wrong = || CheckError(text.to_owned());
        let port = |text: &str| text.parse().ok().filter(|port| *port != 0);
        if let Some(rest) = text.strip_prefix("http:") {
            let (number, path) = rest.split_once('/').unwrap_or((rest, ""));
            let plain = path.chars().all(|c| c.is_ascii_graphic());
            let port = port(number).filter(|_| plain).ok_or_else(wrong)?;
            let path = format!("/{path}");
            return Ok(Self::Http { port, path });
        }
        if let Some(number) = text.strip_prefix("tcp:") {
            let port = port(number).ok_or_else(wrong)?;
            return Ok(Self::Tcp { port });
        }
        let args: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        if args.is_empty() {
            Err(wrong())
        } else {
            Ok(Self::Command(args))
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(args) => f.write_str(&args.join(" ")),
            Self::Http { port, path } => write!(f, "http:{port}{path}"),
            Self::Tcp { port } => write!(f, "tcp:{port}"),
            Self::Runs => f.write_str("it runs"),
        }
    }
}

impl Check {
    /// The guest's port that it needs.
    pub fn port(&self) -> Option<u16> {
        match self {
            Self::Http { port, .. } | Self::Tcp { port } => Some(*port),
            Self::Command(_) | Self::Runs => None,
        }
    }
}

/// An answer over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// What came after the header.
    pub body: Vec<u8>,
}

/// Asks a server at a port of this host, until `interrupted` is set. An answer that does not end in
/// time is an error.
pub fn get(port: u16, path: &str, interrupted: &Arc<AtomicBool>) -> io::Result<Answer> {
    let limit = AnswerLimit::new(ANSWER_LIMIT, WHOLE);
    get_within(limit, port, path, interrupted)
}

fn get_within(
    limit: AnswerLimit,
    port: u16,
    path: &str,
    interrupted: &Arc<AtomicBool>,
) -> io::Result<Answer> {
    let mut connection = Connection::open(local(port), ANSWER_LIMIT, interrupted)?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    connection.send(request.as_bytes())?;
    let mut bytes = Vec::new();
    connection.read_to_end(limit, ANSWER_BYTES, &mut bytes)?;
    parse(&bytes).ok_or_else(|| io::Error::other("the answer is not HTTP"))
}

/// Connects to a port of this host and sees whether a server accepts.
pub fn is_taken(port: u16) -> io::Result<()> {
    let stream = TcpStream::connect_timeout(&local(port), ANSWER_LIMIT)?;
    stream.set_read_timeout(Some(OPEN_LIMIT))?;
    // By any signal: a read with a limit is not begun again (signal(7)).
    match retry_on_intr(|| read(&stream, &mut [0])) {
        Ok(0) => Err(io::ErrorKind::ConnectionRefused.into()),
        Ok(_) | Err(Errno::AGAIN) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

fn parse(bytes: &[u8]) -> Option<Answer> {
    let line = bytes.split(|byte| *byte == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?;
    let status = line.strip_prefix("HTTP/1.")?.split(' ').nth(1)?;
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    Some(Answer {
        status: status.trim().parse().ok()?,
        body: bytes[end + 4..].to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::atomic::Ordering;
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::connection::testing::endless;

    #[test]
    fn checks_are_read_and_others_are_named() {
        for text in ["http:80/", "http:8080/a?b", "tcp:6379"] {
            assert_eq!(text.parse::<Check>().unwrap().to_string(), text);
        }
        let command = "redis-cli ping".parse::<Check>().unwrap();
        assert_eq!(
            command,
            Check::Command(vec!["redis-cli".into(), "ping".into()])
        );
        for text in [
            "http:0/",
            "http:x/",
            "tcp:",
            "tcp:70000",
            " ",
            "http:80/a b",
        ] {
            assert!(text.parse::<Check>().is_err(), "{text}");
        }
    }

    #[test]
    fn an_answer_has_its_status_and_body() {
        let answer = parse(b"HTTP/1.1 404 Not Found\r\nA: b\r\n\r\nno").unwrap();
        assert_eq!((answer.status, answer.body.as_slice()), (404, &b"no"[..]));
        for wrong in [&b"HTTP/1.1 200 OK\r\nA: b"[..], b"", b"SSH-2.0\r\n\r\n"] {
            assert_eq!(parse(wrong), None);
        }
    }

    /// As a guest does that wants to hold up whoever checks it.
    #[test]
    fn an_answer_without_end_is_an_error() {
        let address = endless(b"HTTP/1.1 200 OK\r\n\r\n", || {});
        let limit = AnswerLimit::new(Duration::from_millis(100), Duration::ZERO);
        let error = get_within(limit, address.port(), "/", &Arc::default()).unwrap_err();
        assert_eq!(error.to_string(), "the answer did not end in time");
    }

    #[test]
    fn an_interruption_ends_an_answer_that_goes_on() {
        let interrupted: Arc<AtomicBool> = Arc::default();
        let flag = Arc::clone(&interrupted);
        let address = endless(b"HTTP/1.1 200 OK\r\n\r\n", move || {
            flag.store(true, Ordering::Relaxed);
        });
        let hour = Duration::from_secs(3600);
        let limit = AnswerLimit::new(hour, hour);
        let error = get_within(limit, address.port(), "/", &interrupted).unwrap_err();
        assert_eq!(error.to_string(), "interrupted");
    }

    #[test]
    fn a_connection_that_is_closed_at_once_was_not_taken() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (done, asked) = mpsc::channel();
        let server = thread::spawn(move || {
            drop(listener.accept().unwrap());
            let (stream, _) = listener.accept().unwrap();
            asked.recv().unwrap();
            drop(stream);
        });
        assert!(is_taken(port).is_err());
        is_taken(port).unwrap();
        done.send(()).unwrap();
        server.join().unwrap();
        assert!(is_taken(port).is_err());
    }
}
