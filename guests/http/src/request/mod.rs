//! A request head, parsed and judged (RFC 9110 and 9112).
//!
//! `httparse` finds the parts; [`parse`] decides what they mean for a server of
//! files, and refuses whatever two readers could understand in two ways: both
//! of Content-Length and Transfer-Encoding, lengths that differ, folded lines,
//! a second Host. A refused request ends its connection.

pub(crate) mod authority;
mod fields;
mod newer;
#[cfg(test)]
mod tests;

use core::mem::MaybeUninit;

use crate::limits::{MAX_FIELDS, MAX_TARGET};
use crate::status::Status;
use newer::Parts;

/// What the start of a connection's bytes is.
#[derive(Debug, PartialEq, Eq)]
// Lives on the stack for one request; a box would be an allocation each.
#[allow(clippy::large_enum_variant)]
pub enum Parsed<'a> {
    /// The head is not complete.
    Partial,
    /// A request, and the length of its head with the empty line.
    Complete(Request<'a>, usize),
}

/// A request that this server understands; the bytes stay where they were read.
#[derive(Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The method.
    pub method: Method,
    /// The target as sent.
    pub target: &'a str,
    /// The version spoken.
    pub version: Version,
    /// What becomes of the connection afterwards.
    pub persistence: Persistence,
    /// The body that follows the head.
    pub body: Body,
    /// `Expect: 100-continue`: the client waits before it sends the body.
    pub expects_continue: bool,
    /// The preconditions.
    pub conditions: Conditions<'a>,
    /// `Range`, unless sent twice.
    pub range: Option<&'a [u8]>,
    /// `If-Range`.
    pub if_range: Option<&'a [u8]>,
    /// `Accept-Encoding`
    pub accept_encoding: Lines<'a>,
}

/// A request's method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// A representation.
    Get,
    /// The head of one.
    Head,
    /// What may be done with a resource.
    Options,
    /// A method of RFC 9110 or 5789 that no file supports.
    NotAllowed,
}

/// The protocol's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    Http11,
}

/// Whether the connection outlives the response (RFC 9112, 9.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// It closes.
    Close,
    /// It stays, as HTTP/1.1 says by default.
    Keep,
    /// It stays since an HTTP/1.0 client requested it; the answer confirms it.
    KeepByRequest,
}

/// How the body's end is found (RFC 9112, 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// That many bytes; 0 for no body.
    Length(u64),
    /// Chunks.
    Chunked,
}

/// The fields that make a request conditional (RFC 9110, 13.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conditions<'a> {
    /// `If-Match`
    pub if_match: Lines<'a>,
    /// `If-None-Match`
    pub if_none_match: Lines<'a>,
    /// `If-Modified-Since`
    pub if_modified_since: Option<&'a [u8]>,
    /// `If-Unmodified-Since`
    pub if_unmodified_since: Option<&'a [u8]>,
}

/// A list-valued field, possibly on more than one line. Lines beyond the fourth
/// do not count: for tags that errs towards sending nothing stale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lines<'a>([Option<&'a [u8]>; 4]);

impl<'a> Lines<'a> {
    pub(crate) fn push(&mut self, line: &'a [u8]) {
        if let Some(free) = self.0.iter_mut().find(|slot| slot.is_none()) {
            *free = Some(line);
        }
    }

    /// Whether the field was not sent.
    pub fn is_empty(&self) -> bool {
        self.0[0].is_none()
    }

    /// The lines in order.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> {
        self.0.iter().map_while(|line| *line)
    }
}

impl<'a> FromIterator<&'a [u8]> for Lines<'a> {
    fn from_iter<I: IntoIterator<Item = &'a [u8]>>(lines: I) -> Self {
        let mut all = Self::default();
        lines.into_iter().for_each(|line| all.push(line));
        all
    }
}

/// Parses the head at the start of `bytes`. The error is the status to answer
/// with before the connection closes.
pub fn parse(bytes: &[u8]) -> Result<Parsed<'_>, Status> {
    let mut headers = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut head = httparse::Request::new(&mut []);
    let len = match head.parse_with_uninit_headers(bytes, &mut headers) {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) => return Ok(Parsed::Partial),
        Err(error) => return refused(error, bytes),
    };
    let (Some(method), Some(target), Some(minor)) = (head.method, head.path, head.version) else {
        return Err(Status::BadRequest);
    };
    let version = if minor == 0 {
        Version::Http10
    } else {
        Version::Http11
    };
    let line = Line {
        method,
        target,
        version,
    };
    judge(&line, head.headers).map(|request| Parsed::Complete(request, len))
}

/// A request line's parts.
struct Line<'a> {
    method: &'a str,
    target: &'a str,
    version: Version,
}

#[inline]
fn judge<'a>(line: &Line<'a>, headers: &[httparse::Header<'a>]) -> Result<Request<'a>, Status> {
    let Line {
        method,
        target,
        version,
    } = *line;
    if target.len() > MAX_TARGET {
        return Err(Status::UriTooLong);
    }
    let fields = fields::Fields::read(headers)?;
    if version == Version::Http11 && fields.host.is_none() {
        return Err(Status::BadRequest);
    }
    Ok(Request {
        method: method_of(method)?,
        target,
        version,
        persistence: fields.persistence(version),
        body: fields.body(version)?,
        expects_continue: fields.expects_continue && version == Version::Http11,
        conditions: fields.conditions,
        range: fields.range,
        if_range: fields.if_range,
        accept_encoding: fields.accept_encoding,
    })
}

fn method_of(name: &str) -> Result<Method, Status> {
    match name {
        "GET" => Ok(Method::Get),
        "HEAD" => Ok(Method::Head),
        "OPTIONS" => Ok(Method::Options),
        "POST" | "PUT" | "DELETE" | "PATCH" | "TRACE" | "CONNECT" => Ok(Method::NotAllowed),
        _ => Err(Status::NotImplemented),
    }
}

/// What a head that the library refuses comes to.
#[cold]
fn refused(error: httparse::Error, bytes: &[u8]) -> Result<Parsed<'_>, Status> {
    match error {
        httparse::Error::TooManyHeaders => Err(Status::HeaderFieldsTooLarge),
        httparse::Error::Version => of_another_version(bytes),
        _ => Err(Status::BadRequest),
    }
}

fn of_another_version(bytes: &[u8]) -> Result<Parsed<'_>, Status> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_FIELDS];
    match newer::parse(bytes, &mut headers) {
        Some(Ok(Parts::Partial)) => Ok(Parsed::Partial),
        Some(Ok(Parts::Complete(line, headers, len))) => {
            judge(&line, headers).map(|request| Parsed::Complete(request, len))
        }
        Some(Err(status)) => Err(status),
        None if names_a_version(bytes) => Err(Status::VersionNotSupported),
        None => Err(Status::BadRequest),
    }
}

/// Whether the first line has three parts, the last one `HTTP/` and two numbers.
fn names_a_version(bytes: &[u8]) -> bool {
    let start = bytes.trim_ascii_start();
    let line = start.split(|byte| *byte == b'\n').next().unwrap_or(start);
    let mut parts = line.trim_ascii_end().split(|byte| *byte == b' ');
    let version = parts.by_ref().nth(2);
    let names = matches!(
        version.and_then(|version| version.strip_prefix(b"HTTP/")),
        Some([major, b'.', minor]) if major.is_ascii_digit() && minor.is_ascii_digit()
    );
    names && parts.next().is_none()
}
