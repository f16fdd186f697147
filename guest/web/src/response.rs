//! A response, and its bytes.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::request::Refusal;

const PLAIN_TEXT: &str = "text/plain; charset=utf-8";

/// A response. `Content-Length`, `Date` and `Connection` are the server's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    status: u16,
    fields: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Response {
    /// A status and nothing else.
    pub fn new(status: u16) -> Self {
        Self {
            status: valid_status(status),
            fields: Vec::new(),
            body: Vec::new(),
        }
    }

    /// 200 with a text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::of_type(PLAIN_TEXT, text.into().into_bytes())
    }

    /// 200 with a page.
    pub fn html(page: impl Into<String>) -> Self {
        Self::of_type("text/html; charset=utf-8", page.into().into_bytes())
    }

    /// 200 with JSON, which the caller has written.
    pub fn json(json: impl Into<String>) -> Self {
        Self::of_type("application/json", json.into().into_bytes())
    }

    /// 404.
    pub fn not_found() -> Self {
        Self::text("not found\n").with_status(404)
    }

    /// 200 with bytes of that media type.
    pub fn of_type(media_type: &str, body: Vec<u8>) -> Self {
        Self {
            body,
            ..Self::new(200).with_header("Content-Type", media_type)
        }
    }

    /// The same with another status. One outside of 200 to 599 becomes 500.
    pub fn with_status(self, status: u16) -> Self {
        Self {
            status: valid_status(status),
            ..self
        }
    }

    /// The same with one more header field. A name or a value that would end its line, or
    /// a field of the server's own, makes it a 500 without other fields and body: such
    /// text often comes from a client.
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        if !is_name(name) || !is_value(value) || is_the_servers(name) {
            return Self::new(500);
        }
        self.fields.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Its status.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The first header field of that name, in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.iter();
        let (_, value) = fields.find(|(have, _)| have.eq_ignore_ascii_case(name))?;
        Some(value)
    }

    /// Its body.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Writes its head, with the empty line.
    pub(crate) fn write_head(
        &self,
        out: &mut impl fmt::Write,
        date: &str,
        keeps: bool,
    ) -> fmt::Result {
        status_line(out, self.status)?;
        for (name, value) in &self.fields {
            write!(out, "{name}: {value}\r\n")?;
        }
        // RFC 9110, 8.6: no length where there can be no body.
        if !matches!(self.status, 204 | 304) {
            write!(out, "Content-Length: {}\r\n", self.body.len())?;
        }
        end(out, date, keeps)
    }

    /// The body to send for a request of that method.
    pub(crate) fn body_for(&self, method: &str) -> &[u8] {
        match self.status {
            204 | 304 => b"",
            _ if method == "HEAD" => b"",
            _ => &self.body,
        }
    }
}

/// Writes what a refused client gets, head and body.
pub(crate) fn write_refusal(
    out: &mut impl fmt::Write,
    refusal: Refusal,
    date: &str,
) -> fmt::Result {
    status_line(out, refusal.status())?;
    if refusal == Refusal::Connections {
        out.write_str("Retry-After: 1\r\n")?;
    }
    let reason = refusal.reason();
    let length = reason.len() + 1;
    write!(
        out,
        "Content-Type: {PLAIN_TEXT}\r\nContent-Length: {length}\r\n"
    )?;
    end(out, date, false)?;
    writeln!(out, "{reason}")
}

fn status_line(out: &mut impl fmt::Write, status: u16) -> fmt::Result {
    write!(out, "HTTP/1.1 {status} {}\r\n", reason(status))
}

fn end(out: &mut impl fmt::Write, date: &str, keeps: bool) -> fmt::Result {
    if !keeps {
        out.write_str("Connection: close\r\n")?;
    }
    write!(out, "Date: {date}\r\n\r\n")
}

fn valid_status(status: u16) -> u16 {
    if (200..600).contains(&status) {
        status
    } else {
        500
    }
}

/// A token (RFC 9110, 5.6.2).
fn is_name(name: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(is_token)
}

fn is_value(value: &str) -> bool {
    value
        .bytes()
        .all(|byte| byte == b'\t' || !byte.is_ascii_control())
}

fn is_the_servers(name: &str) -> bool {
    ["Connection", "Content-Length", "Date", "Transfer-Encoding"]
        .iter()
        .any(|its| its.eq_ignore_ascii_case(name))
}

/// The phrase behind a status, which clients ignore.
fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        417 => "Expectation Failed",
        422 => "Unprocessable Content",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(response: &Response) -> String {
        let mut text = String::new();
        response.write_head(&mut text, "now", true).unwrap();
        text
    }

    #[test]
    fn a_head_has_status_fields_and_length() {
        let response = Response::json("{}")
            .with_status(201)
            .with_header("X-A", "b");
        assert_eq!(
            text(&response),
            "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nX-A: b\r\n\
             Content-Length: 2\r\nDate: now\r\n\r\n"
        );
        assert_eq!(response.header("x-a"), Some("b"));
    }

    #[test]
    fn answers_without_a_body_have_no_length() {
        for status in [204, 304] {
            let response = Response::text("lost").with_status(status);
            assert!(!text(&response).contains("Length"), "{status}");
            assert_eq!(response.body_for("GET"), b"");
        }
        assert_eq!(Response::text("kept").body_for("HEAD"), b"");
        assert!(text(&Response::text("kept")).contains("Length: 4"));
    }

    #[test]
    fn a_field_that_would_split_the_answer_makes_it_500() {
        for (name, value) in [
            ("Location", "/a\r\nSet-Cookie: b"),
            ("Location", "/a\nb"),
            ("X", "\0"),
            ("X: y\r\nZ", "b"),
            ("", "b"),
            ("a b", "c"),
            ("content-length", "7"),
            ("Transfer-Encoding", "chunked"),
        ] {
            let response = Response::text("secret").with_header(name, value);
            assert_eq!(response, Response::new(500), "{name:?}: {value:?}");
        }
    }

    #[test]
    fn every_refusal_fits_without_the_heap() {
        use crate::connection::MAX_REFUSAL;
        use crate::output::Short;

        for refusal in Refusal::ALL {
            let mut out = Short::<MAX_REFUSAL>::new();
            let date = core::str::from_utf8(&[b'x'; crate::date::LEN]).unwrap();
            write_refusal(&mut out, *refusal, date).unwrap();
            let text = core::str::from_utf8(out.bytes()).unwrap();
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            assert!(
                head.contains(&format!("Content-Length: {}\r\n", body.len())),
                "{text}"
            );
            assert!(!head.contains(" \r\n"), "a status without a phrase: {text}");
        }
    }

    #[test]
    fn a_status_that_is_no_answer_becomes_500() {
        for status in [0, 100, 199, 600, u16::MAX] {
            assert_eq!(Response::new(status).status(), 500);
        }
    }
}
