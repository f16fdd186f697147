//! A scripted client with a clock of its own: no test here waits.

#![allow(dead_code, clippy::unwrap_used)]

use std::collections::VecDeque;
use std::sync::LazyLock;
use std::time::Duration;

use tare_guest_http::connection;
use tare_guest_http::host::MemoryFiles;
use tare_guest_http::server::{Platform, Server};
use tare_libos::serve::{Transport, TransportError};

/// What a client does next.
pub(crate) enum Act {
    Send(Vec<u8>),
    Wait(Duration),
    Break,
}

/// The client's side of a connection; at the script's end it ends the stream.
pub(crate) struct Script {
    acts: VecDeque<Act>,
    now: Duration,
    /// Bytes that one send takes, and how long that lasts.
    window: usize,
    pace: Duration,
    pub sent: Vec<u8>,
    pub sends: usize,
    pub finished: bool,
}

impl Script {
    pub(crate) fn new(acts: impl IntoIterator<Item = Act>) -> Self {
        Self {
            acts: acts.into_iter().collect(),
            now: Duration::ZERO,
            window: usize::MAX,
            pace: Duration::ZERO,
            sent: Vec::new(),
            sends: 0,
            finished: false,
        }
    }

    pub(crate) fn slow(mut self, window: usize, pace: Duration) -> Self {
        (self.window, self.pace) = (window, pace);
        self
    }

    /// Serves the script to its end.
    pub(crate) fn run<P: Platform>(mut self, server: &Server<P>) -> Self {
        connection::serve(Borrowed(&mut self), server);
        self
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.now
    }
}

struct Borrowed<'a>(&'a mut Script);

impl Transport for Borrowed<'_> {
    fn receive(
        &mut self,
        into: &mut [u8],
        within: Option<Duration>,
    ) -> Result<usize, TransportError> {
        let script = &mut *self.0;
        let mut left = within.expect("a bounded wait");
        loop {
            match script.acts.pop_front() {
                None => return Ok(0),
                Some(Act::Break) => return Err(TransportError::Broken),
                Some(Act::Wait(time)) if time < left => {
                    script.now += time;
                    left -= time;
                }
                Some(Act::Wait(time)) => {
                    script.now += left;
                    script.acts.push_front(Act::Wait(time - left));
                    return Err(TransportError::TimedOut);
                }
                Some(Act::Send(mut bytes)) => {
                    let n = bytes.len().min(into.len());
                    into[..n].copy_from_slice(&bytes[..n]);
                    let rest = bytes.split_off(n);
                    if !rest.is_empty() {
                        script.acts.push_front(Act::Send(rest));
                    }
                    return Ok(n);
                }
            }
        }
    }

    fn send<const N: usize>(
        &mut self,
        parts: &[&[u8]; N],
        within: Duration,
    ) -> Result<usize, TransportError> {
        let script = &mut *self.0;
        if script.pace > within {
            script.now += within;
            return Err(TransportError::TimedOut);
        }
        script.now += script.pace;
        let all = parts.concat();
        let n = all.len().min(script.window);
        script.sent.extend_from_slice(&all[..n]);
        script.sends += 1;
        Ok(n)
    }

    fn finish(&mut self) {
        self.0.finished = true;
    }

    fn now(&self) -> Duration {
        self.0.now
    }
}

/// A response taken apart.
#[derive(Debug)]
pub(crate) struct Response {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Response {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(": ")?;
            key.eq_ignore_ascii_case(name).then_some(value)
        })
    }
}

/// The responses in `bytes`, by their lengths; `to_head` says which of them
/// answer HEAD. Nothing may be left over.
pub(crate) fn responses(mut bytes: &[u8], to_head: &[usize]) -> Vec<Response> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let end = bytes
            .windows(4)
            .position(|w| w == b"\r\n\r\n")
            .expect("a complete head")
            + 4;
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let status = head[9..12].parse().unwrap();
        let mut response = Response {
            status,
            head,
            body: Vec::new(),
        };
        let bodiless = status == 304 || status == 100 || to_head.contains(&all.len());
        let len = response
            .field("Content-Length")
            .map_or(0, |len| len.parse().unwrap());
        let len = if bodiless { 0 } else { len };
        response.body = bytes[end..end + len].to_vec();
        bytes = &bytes[end + len..];
        all.push(response);
    }
    all
}

pub(crate) const MODIFIED: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
pub(crate) const MODIFIED_S: u64 = 784_111_777;

/// The content of `big.bin`.
pub(crate) fn big() -> &'static [u8] {
    static BIG: LazyLock<Vec<u8>> =
        LazyLock::new(|| (0..3_000_000u32).map(|i| (i % 251) as u8).collect());
    &BIG
}

/// The site of the tests.
pub(crate) fn server() -> Server<MemoryFiles> {
    let files = MemoryFiles::new()
        .with("index.html", b"<p>root</p>".as_slice(), MODIFIED_S)
        .with("ten.txt", b"0123456789".as_slice(), MODIFIED_S)
        .with("empty", b"", MODIFIED_S)
        .with("big.bin", big(), MODIFIED_S)
        .with("sub dir/index.html", b"sub".as_slice(), MODIFIED_S)
        .with("docs/a.txt", b"a".as_slice(), MODIFIED_S)
        .with_directory("bare");
    Server::new(files)
}

/// The answers to these bytes, sent at once.
pub(crate) fn ask(server: &Server<MemoryFiles>, bytes: &str) -> Vec<Response> {
    let script = Script::new([Act::Send(bytes.into())]).run(server);
    responses(&script.sent, &[])
}

/// The only answer to a GET over 1.1 with these fields.
pub(crate) fn get(server: &Server<MemoryFiles>, target: &str, fields: &str) -> Response {
    let head = format!("GET {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    let mut all = ask(server, &head);
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}
