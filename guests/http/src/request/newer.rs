//! Requests of a later minor version, such as HTTP/1.2, which the library that parses
//! heads refuses. They mean what an HTTP/1.1 request would (RFC 9110, 2.5).

use alloc::vec::Vec;

use httparse::Header;

use super::head::{Line, Version};
use crate::status::Status;

/// The parts of a head whose first line ends in a later version of HTTP/1; `None`
/// if it ends otherwise. Method and target are checked like those of any request.
#[cold]
pub(super) fn parse<'h, 'a>(
    bytes: &'a [u8],
    headers: &'h mut [Header<'a>],
) -> Option<Result<Parts<'h, 'a>, Status>> {
    let begin = bytes
        .iter()
        .position(|byte| !matches!(byte, b'\r' | b'\n'))?;
    let rest = &bytes[begin..];
    let end = rest.iter().position(|byte| *byte == b'\n');
    let line = rest[..end.unwrap_or(rest.len())].trim_ascii_end();
    let (version, [b'2'..=b'9']) = line.split_at_checked(line.len().checked_sub(1)?)? else {
        return None;
    };
    if !version.ends_with(b" HTTP/1.") {
        return None;
    }
    let Some(end) = end.map(|end| begin + end) else {
        return Some(Ok(Parts::Partial));
    };
    Some(parse_line(line).and_then(|line| {
        let rest = &bytes[end + 1..];
        match httparse::parse_headers(rest, headers) {
            Ok(httparse::Status::Complete((len, headers))) => {
                Ok(Parts::Complete(line, headers, end + 1 + len))
            }
            Ok(httparse::Status::Partial) => Ok(Parts::Partial),
            Err(httparse::Error::TooManyHeaders) => Err(Status::HeaderFieldsTooLarge),
            Err(_) => Err(Status::BadRequest),
        }
    }))
}

/// What [`parse`] found.
pub(super) enum Parts<'h, 'a> {
    Partial,
    Complete(Line<'a>, &'h [Header<'a>], usize),
}

fn parse_line(line: &[u8]) -> Result<Line<'_>, Status> {
    let mut as_known = Vec::from(&line[..line.len() - 1]);
    as_known.extend_from_slice(b"1\r\n\r\n");
    let mut known = httparse::Request::new(&mut []);
    let checked = known.parse(&as_known);
    if !matches!(checked, Ok(httparse::Status::Complete(_))) {
        return Err(Status::BadRequest);
    }
    let text = core::str::from_utf8(line).map_err(|_| Status::BadRequest)?;
    let mut parts = text.split(' ');
    let (Some(method), Some(target)) = (parts.next(), parts.next()) else {
        return Err(Status::BadRequest);
    };
    Ok(Line {
        method,
        target,
        version: Version::Http11,
    })
}
