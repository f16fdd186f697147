//! A request, and what becomes of the bytes that do not make one (RFC 9110 and 9112).

use alloc::borrow::ToOwned;
use alloc::collections::TryReserveError;
use alloc::string::String;
use alloc::vec::Vec;

use tare_libos::heap;

use crate::framing::{BodyError, Framing, FramingFields, list};
use crate::limits::MAX_FIELDS;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    method: String,
    target: String,
    fields: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
}

impl Request {
    /// A GET request, for tests.
    pub fn get(target: &str) -> Self {
        Self::new("GET", target, b"")
    }

    /// A POST request with a body, for tests.
    pub fn post(target: &str, body: impl AsRef<[u8]>) -> Self {
        Self::new("POST", target, body.as_ref())
    }

    fn new(method: &str, target: &str, body: &[u8]) -> Self {
        Self {
            method: method.to_owned(),
            target: target.to_owned(),
            fields: Vec::new(),
            body: body.to_owned(),
        }
    }

    /// Its method, in capitals as clients send it. To HEAD the server sends the head
    /// alone, so that it can be answered like GET.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// The path, from its first slash to the question mark, as sent: `%20` is not decoded.
    pub fn path(&self) -> &str {
        self.target
            .split_once('?')
            .map_or(&self.target, |(path, _)| path)
    }

    /// What follows the question mark.
    pub fn query(&self) -> Option<&str> {
        self.target.split_once('?').map(|(_, query)| query)
    }

    /// The first header field of that name, in any case, if its value is UTF-8.
    pub fn header(&self, name: &str) -> Option<&str> {
        let (_, value) = self
            .fields
            .iter()
            .find(|(have, _)| have.eq_ignore_ascii_case(name))?;
        core::str::from_utf8(value).ok()
    }

    /// The body; empty without one.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    pub(crate) fn with_body(mut self, body: Vec<u8>) -> Self {
        self.body = body;
        self
    }
}

/// A request head, and what it says about the bytes behind it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) request: Request,
    /// Its length in bytes, with the empty line.
    pub(crate) len: usize,
    /// How the body's end is found.
    pub(crate) body: Framing,
    /// Whether the connection stays.
    pub(crate) keeps: bool,
    /// The client waits before it sends the body.
    pub(crate) expects_continue: bool,
}

/// Why a request is not answered by the program. The connection closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Malformed,
    Timeout,
    BodyTooLarge,
    Expectation,
    HeadTooLarge,
    TransferCoding,
    Memory,
    Connections,
    Version,
}

impl Refusal {
    #[cfg(test)]
    pub(crate) const ALL: &'static [Self] = &[
        Self::Malformed,
        Self::Timeout,
        Self::BodyTooLarge,
        Self::Expectation,
        Self::HeadTooLarge,
        Self::TransferCoding,
        Self::Memory,
        Self::Connections,
        Self::Version,
    ];

    pub(crate) fn status(self) -> u16 {
        match self {
            Self::Malformed => 400,
            Self::Timeout => 408,
            Self::BodyTooLarge => 413,
            Self::Expectation => 417,
            Self::HeadTooLarge => 431,
            Self::TransferCoding => 501,
            Self::Memory | Self::Connections => 503,
            Self::Version => 505,
        }
    }

    /// What the client gets as text.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Malformed => "malformed request",
            Self::Timeout => "request took too long",
            Self::BodyTooLarge => "request body too large",
            Self::Expectation => "unknown expectation",
            Self::HeadTooLarge => "request head too large",
            Self::TransferCoding => "transfer coding not supported: send chunked or Content-Length",
            Self::Memory => "server is out of memory",
            Self::Connections => "too many connections",
            Self::Version => "HTTP version not supported",
        }
    }
}

impl From<BodyError> for Refusal {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::Malformed => Self::Malformed,
            BodyError::TooLarge => Self::BodyTooLarge,
            BodyError::FramingTooLarge => Self::HeadTooLarge,
            BodyError::UnknownCoding => Self::TransferCoding,
        }
    }
}

/// There is no memory for a copy.
impl From<TryReserveError> for Refusal {
    fn from(_: TryReserveError) -> Self {
        Self::Memory
    }
}

/// The head at the start of `bytes`; none if it is not complete.
pub(crate) fn parse(bytes: &[u8]) -> Result<Option<Head>, Refusal> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut head = httparse::Request::new(&mut fields);
    let len = match head.parse(bytes) {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(Refusal::HeadTooLarge),
        Err(httparse::Error::Version) => return Err(Refusal::Version),
        Err(_) => return Err(Refusal::Malformed),
    };
    let (Some(method), Some(target), Some(minor)) = (head.method, head.path, head.version) else {
        return Err(Refusal::Malformed);
    };
    let known = Known::read(head.headers)?;
    if minor == 1 && !known.has_host {
        return Err(Refusal::Malformed);
    }
    let target = origin_form(method, target).ok_or(Refusal::Malformed)?;
    let body = known.framing.framing(minor)?;
    Ok(Some(Head {
        request: copy(method, target, head.headers, len)?,
        len,
        body,
        // An HTTP/1.0 client sees the end of an answer by the end of the connection.
        keeps: minor == 1 && !known.closes,
        expects_continue: minor == 1 && known.expects_continue,
    }))
}

/// The request whose head has `len` bytes. Whatever a client can make large is copied only
/// if there is memory for it.
fn copy(
    method: &str,
    target: &str,
    headers: &[httparse::Header<'_>],
    len: usize,
) -> Result<Request, Refusal> {
    let mut fields = Vec::new();
    let list_bytes = headers.len() * size_of::<(String, Vec<u8>)>();
    if !heap::has_room(len + list_bytes) {
        return Err(Refusal::Memory);
    }
    fields.try_reserve_exact(headers.len())?;
    for header in headers {
        fields.push((text(header.name)?, bytes(header.value)?));
    }
    Ok(Request {
        method: text(method)?,
        target: text(target)?,
        fields,
        body: Vec::new(),
    })
}

fn text(text: &str) -> Result<String, TryReserveError> {
    let mut copy = String::new();
    copy.try_reserve_exact(text.len())?;
    copy.push_str(text);
    Ok(copy)
}

fn bytes(bytes: &[u8]) -> Result<Vec<u8>, TryReserveError> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len())?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

/// The target as a path with its query: of an absolute one what follows the authority
/// (RFC 9112, 3.2).
fn origin_form<'a>(method: &str, target: &'a str) -> Option<&'a str> {
    if target.starts_with('/') || (method == "OPTIONS" && target == "*") {
        return Some(target);
    }
    let (scheme, rest) = target.split_once("://")?;
    if !scheme.eq_ignore_ascii_case("http") {
        return None;
    }
    match rest.find(['/', '?']) {
        Some(0) => None,
        Some(at) if rest[at..].starts_with('/') => Some(&rest[at..]),
        Some(_) => None,
        None if rest.is_empty() => None,
        None => Some("/"),
    }
}

/// The header fields that decide where a request ends.
#[derive(Default)]
struct Known {
    has_host: bool,
    framing: FramingFields,
    closes: bool,
    expects_continue: bool,
}

impl Known {
    fn read(fields: &[httparse::Header<'_>]) -> Result<Self, Refusal> {
        let mut known = Self::default();
        for field in fields {
            known.take(field.name, field.value)?;
        }
        Ok(known)
    }

    fn take(&mut self, name: &str, value: &[u8]) -> Result<(), Refusal> {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        if is("host") {
            if core::mem::replace(&mut self.has_host, true) {
                return Err(Refusal::Malformed);
            }
        } else if is("content-length") {
            self.framing.take_length(value)?;
        } else if is("transfer-encoding") {
            self.framing.take_coding(value);
        } else if is("connection") {
            self.closes |= list(value).any(|option| option.eq_ignore_ascii_case(b"close"));
        } else if is("expect") {
            if !value.eq_ignore_ascii_case(b"100-continue") {
                return Err(Refusal::Expectation);
            }
            self.expects_continue = true;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn head(text: &str) -> Head {
        parse(text.as_bytes()).unwrap().unwrap()
    }

    #[test]
    fn a_head_says_method_path_query_and_fields() {
        let text =
            "PUT /a%20b?c=d?e HTTP/1.1\r\nHost: x\r\nX-Word: one\r\nContent-Length: 3\r\n\r\nabc";
        let head = head(text);
        assert_eq!(head.len, text.len() - 3);
        assert_eq!((head.body, head.keeps), (Framing::Length(3), true));
        let request = head.request;
        assert_eq!(request.method(), "PUT");
        assert_eq!(request.path(), "/a%20b");
        assert_eq!(request.query(), Some("c=d?e"));
        assert_eq!(request.header("x-word"), Some("one"));
        assert_eq!(request.header("x-other"), None);
    }

    #[test]
    fn an_absolute_target_becomes_its_path() {
        for (target, path) in [
            ("/", "/"),
            ("http://a.example", "/"),
            ("HTTP://a.example:80/b/c", "/b/c"),
        ] {
            let head = head(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
            assert_eq!(head.request.path(), path, "{target}");
        }
        let options = head("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(options.request.path(), "*");
    }

    #[test]
    fn connections_stay_unless_the_client_says_otherwise() {
        assert!(head("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\n\r\n").keeps);
        assert!(!head("GET / HTTP/1.1\r\nHost: a\r\nConnection: x, Close\r\n\r\n").keeps);
        assert!(!head("GET / HTTP/1.0\r\n\r\n").keeps);
    }

    #[test]
    fn what_can_be_understood_in_two_ways_is_refused() {
        for (text, refusal) in [
            ("GET / HTTP/1.1\r\n\r\n", Refusal::Malformed),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
                Refusal::Malformed,
            ),
            ("GET a HTTP/1.1\r\nHost: a\r\n\r\n", Refusal::Malformed),
            ("GET * HTTP/1.1\r\nHost: a\r\n\r\n", Refusal::Malformed),
            (
                "GET http:///b HTTP/1.1\r\nHost: a\r\n\r\n",
                Refusal::Malformed,
            ),
            (
                "GET ftp://a/b HTTP/1.1\r\nHost: a\r\n\r\n",
                Refusal::Malformed,
            ),
            ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", Refusal::Malformed),
            (
                "GET / HTTP/1.1\r\nHost: a\r\n b: c\r\n\r\n",
                Refusal::Malformed,
            ),
            ("\u{16}\u{3}\u{1}", Refusal::Malformed),
            ("GET / HTTP/2.0\r\n\r\n", Refusal::Version),
        ] {
            assert_eq!(parse(text.as_bytes()), Err(refusal), "{text:?}");
        }
    }

    #[test]
    fn bodies_without_one_certain_length_are_refused() {
        for (fields, refusal) in [
            ("Content-Length: -1", Refusal::Malformed),
            ("Content-Length: +1", Refusal::Malformed),
            ("Content-Length:", Refusal::Malformed),
            ("Content-Length: 1, 1", Refusal::Malformed),
            ("Content-Length: 1\r\nContent-Length: 2", Refusal::Malformed),
            ("Transfer-Encoding: gzip, chunked", Refusal::TransferCoding),
            ("Transfer-Encoding: x", Refusal::Malformed),
            (
                "Content-Length: 1\r\nTransfer-Encoding: chunked",
                Refusal::Malformed,
            ),
            ("Expect: more", Refusal::Expectation),
        ] {
            let text = format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n");
            assert_eq!(parse(text.as_bytes()), Err(refusal), "{fields:?}");
        }
    }

    #[test]
    fn chunks_are_for_http_1_1() {
        let text = |version| {
            format!("POST / HTTP/1.{version}\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        };
        assert_eq!(head(&text(1)).body, Framing::Chunked);
        assert_eq!(parse(text(0).as_bytes()), Err(Refusal::Malformed));
    }

    #[test]
    fn too_many_fields_are_refused() {
        let fields = "A: b\r\n".repeat(MAX_FIELDS);
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        assert_eq!(parse(text.as_bytes()), Err(Refusal::HeadTooLarge));
    }

    proptest! {
        #[test]
        fn no_bytes_crash_it(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn a_head_is_complete_only_at_its_end(cut in 0..60usize) {
            let text = b"GET /a HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\n\r\n";
            let cut = cut.min(text.len() - 1);
            prop_assert_eq!(parse(&text[..cut]), Ok(None));
        }

        #[test]
        fn no_damage_crashes_it(at in 0..56usize, byte in any::<u8>()) {
            let mut text = *b"GET http://a/ HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\n";
            let at = at.min(text.len() - 1);
            text[at] = byte;
            if let Ok(Some(head)) = parse(&text) {
                prop_assert!(head.len <= text.len());
            }
        }
    }
}
