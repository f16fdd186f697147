//! Requests to the application, each like the one before.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::check::Check;
use crate::dialog::Dialog;

/// Longest wait for an answer.
const ANSWER: Duration = Duration::from_secs(5);
/// Nothing more comes of an answer after this time.
const QUIET: Duration = Duration::from_millis(300);
/// Most bytes of a request.
const REQUEST_BYTES: usize = 4096;
/// Connections that may end one after the other without an answer in between.
const REOPENED: usize = 3;

/// A request that is repeated on a connection that stays open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Load {
    /// A file over HTTP.
    Http {
        /// The guest's port.
        port: u16,
        /// The path, with its slash.
        path: String,
    },
    /// A text that has one answer.
    Tcp {
        /// The guest's port.
        port: u16,
        /// The text, without the end of its line.
        text: String,
    },
}

/// A load that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid load `{0}`: use http:PORT/PATH, or tcp:PORT/LINE for a line that has an answer (tcp:6379/PING)"
)]
pub struct LoadError(String);

impl FromStr for Load {
    type Err = LoadError;

    fn from_str(text: &str) -> Result<Self, LoadError> {
        let wrong = || LoadError(text.to_owned());
        if let Some(rest) = text.strip_prefix("tcp:") {
            let (port, line) = rest.split_once('/').ok_or_else(wrong)?;
            let port = port.parse().ok().filter(|port| *port != 0);
            let printable = line.chars().all(|c| !c.is_control());
            if line.is_empty() || !printable || line.len() > REQUEST_BYTES {
                return Err(wrong());
            }
            return Ok(Self::Tcp {
                port: port.ok_or_else(wrong)?,
                text: line.to_owned(),
            });
        }
        match text.parse() {
            Ok(Check::Http { port, path }) if path.len() <= REQUEST_BYTES => {
                Ok(Self::Http { port, path })
            }
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http { port, path } => write!(f, "http:{port}{path}"),
            Self::Tcp { port, text } => write!(f, "tcp:{port}/{text}"),
        }
    }
}

impl Load {
    /// The load that a check is already.
    pub fn of(check: &Check) -> Option<Self> {
        match check {
            Check::Http { port, path } => Some(Self::Http {
                port: *port,
                path: path.clone(),
            }),
            Check::Command(_) | Check::Tcp { .. } | Check::Runs => None,
        }
    }

    /// The guest's port.
    pub const fn port(&self) -> u16 {
        match self {
            Self::Http { port, .. } | Self::Tcp { port, .. } => *port,
        }
    }

    fn request(&self) -> Vec<u8> {
        match self {
            Self::Http { path, .. } => {
                format!("GET {path} HTTP/1.1\r\nHost: guest\r\n\r\n").into_bytes()
            }
            Self::Tcp { text, .. } => format!("{text}\r\n").into_bytes(),
        }
    }

    /// What is wrong with an answer, if anything.
    fn judge(&self, answer: &[u8]) -> Result<(), String> {
        if answer.is_empty() {
            return Err("it closed the connection without an answer".to_owned());
        }
        if matches!(self, Self::Tcp { .. }) {
            return Ok(());
        }
        let line = answer.split(|byte| *byte == b'\n').next();
        let line = String::from_utf8_lossy(line.unwrap_or_default());
        let status = line
            .strip_prefix("HTTP/1.")
            .and_then(|it| it.split(' ').nth(1));
        match status.and_then(|status| status.trim().parse::<u16>().ok()) {
            Some(status) if status < 400 => Ok(()),
            Some(status) => Err(format!("it answered {status}")),
            None => Err("the answer is not HTTP".to_owned()),
        }
    }
}

/// Someone who asks.
#[derive(Debug)]
pub(crate) struct Client<'a> {
    request: Vec<u8>,
    answer_bytes: usize,
    address: SocketAddr,
    load: &'a Load,
    dialog: Option<Dialog>,
    /// Ends waits for answers.
    interrupted: Arc<AtomicBool>,
}

impl<'a> Client<'a> {
    /// Asks once at a port of this host, and learns how long an answer is.
    pub(crate) fn meet(
        load: &'a Load,
        port: u16,
        limit: Duration,
        interrupted: &Arc<AtomicBool>,
    ) -> Result<Self, String> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let request = load.request();
        let learn = || -> io::Result<Vec<u8>> {
            let dialog = Dialog::open(address, limit.min(ANSWER))?;
            dialog.ended_by(interrupted).learn(&request, QUIET)
        };
        let answer = learn().map_err(|error| error.to_string())?;
        load.judge(&answer)?;
        Ok(Self {
            answer_bytes: answer.len(),
            request,
            address,
            load,
            dialog: None,
            interrupted: Arc::clone(interrupted),
        })
    }

    /// Another one who asks the same.
    pub(super) fn another(&self) -> Self {
        Self {
            request: self.request.clone(),
            dialog: None,
            interrupted: Arc::clone(&self.interrupted),
            ..*self
        }
    }

    /// One request and its answer; where the server ended the connection, on another.
    pub(crate) fn ask(&mut self) -> Result<(), String> {
        let mut last = String::new();
        for _ in 0..REOPENED {
            let opened = match self.dialog.take() {
                Some(dialog) => Ok(dialog),
                None => Dialog::open(self.address, ANSWER)
                    .map(|dialog| dialog.ended_by(&self.interrupted)),
            };
            let answered = opened.and_then(|mut dialog| {
                let answer = dialog.exchange(&self.request, self.answer_bytes)?;
                Ok((dialog, answer))
            });
            match answered {
                Ok((dialog, answer)) => {
                    self.load.judge(&answer)?;
                    self.dialog = Some(dialog);
                    return Ok(());
                }
                Err(error) => last = error.to_string(),
            }
        }
        Err(format!("no answer under load: {last}"))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    #[test]
    fn loads_are_read_and_others_are_named() {
        for text in ["http:80/", "http:8080/a?b", "tcp:6379/PING", "tcp:7/a b/c"] {
            assert_eq!(text.parse::<Load>().unwrap().to_string(), text);
        }
        let long = format!("tcp:7/{}", "a".repeat(5000));
        for text in [
            "",
            "http:0/",
            "tcp:6379",
            "tcp:6379/",
            "tcp:0/a",
            "tcp:7/a\nb",
            "redis-cli",
            &long,
        ] {
            assert!(text.parse::<Load>().is_err(), "{text}");
        }
        let check: Check = "http:80/a".parse().unwrap();
        assert_eq!(Load::of(&check), "http:80/a".parse().ok());
        assert_eq!(Load::of(&Check::Tcp { port: 7 }), None);
    }

    /// Answers lines, and closes each connection after some.
    fn server(answer: &'static str, each: usize) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                thread::spawn(move || {
                    let reader = BufReader::new(stream.try_clone().unwrap());
                    let ends = |line: &String| line.trim().is_empty() || line.starts_with("PING");
                    let lines = reader.lines().map_while(Result::ok).filter(ends);
                    for _ in lines.take(each) {
                        stream.write_all(answer.as_bytes()).unwrap();
                    }
                });
            }
        });
        port
    }

    #[test]
    fn a_client_asks_again_where_the_server_closes() {
        let load: Load = "tcp:6379/PING".parse().unwrap();
        let mut client =
            Client::meet(&load, server("+PONG\r\n", 3), ANSWER, &Arc::default()).unwrap();
        assert_eq!(client.answer_bytes, 7);
        let mut other = client.another();
        for _ in 0..10 {
            client.ask().unwrap();
            other.ask().unwrap();
        }
    }

    #[test]
    fn an_answer_that_is_an_error_is_said() {
        let load: Load = "http:80/a".parse().unwrap();
        let meet = |answer| Client::meet(&load, server(answer, 9), ANSWER, &Arc::default());
        let ok = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        meet(ok).unwrap().ask().unwrap();
        let refused = "HTTP/1.1 404 Not Found\r\n\r\n";
        assert_eq!(meet(refused).unwrap_err(), "it answered 404");
        assert_eq!(meet("SSH-2.0\r\n").unwrap_err(), "the answer is not HTTP");
    }
}
