//! A request head, parsed and judged (RFC 9110 and 9112).
//!
//! `httparse` finds the parts; [`parse`] decides what they mean for a server of
//! files, and refuses whatever two readers could understand in two ways: both
//! of Content-Length and Transfer-Encoding, lengths that differ, folded lines,
//! a second Host. A refused request ends its connection.

pub(crate) mod authority;
mod fields;
mod head;
mod newer;
#[cfg(test)]
mod tests;

use core::mem::MaybeUninit;

use crate::limits::{MAX_FIELDS, MAX_TARGET};
use crate::status::Status;
use fields::Fields;
use head::Line;
pub use head::{Conditions, Lines, Method, Persistence, Request, Version};
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
    let fields = Fields::read(headers)?;
    if version == Version::Http11 && fields.host.is_none() {
        return Err(Status::BadRequest);
    }
    Ok(Request {
        method: method_of(method)?,
        target,
        version,
        host: fields.host,
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
