//! Clients with their own clock, so that no test here waits, and the site that they ask.

#![allow(dead_code, clippy::unwrap_used)]

pub(crate) mod cases;

use std::sync::LazyLock;

use tare_guest_http::connection;
use tare_guest_http::host::MemoryFiles;
use tare_guest_http::server::{Platform, Server};
pub(crate) use tare_libos::serve::script::{Act, Script};

/// Serves a script to its end.
pub(crate) trait Run {
    fn run<P: Platform>(self, server: &Server<P>) -> Self;
}

impl Run for Script {
    fn run<P: Platform>(mut self, server: &Server<P>) -> Self {
        connection::serve(&mut self, server);
        assert!(!self.unbounded);
        self
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
