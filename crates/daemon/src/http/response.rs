//! Answers.

use tare_control::api::ErrorBody;

use super::request::Rejected;

/// An answer before it is put on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    status: u16,
    content_type: &'static str,
    allow: Option<&'static str>,
    body: Vec<u8>,
}

impl Response {
    /// 200 with a body.
    pub fn ok(content_type: &'static str, body: Vec<u8>) -> Self {
        Self::new(200, content_type, body)
    }

    /// 202 with a JSON body.
    pub fn accepted(body: Vec<u8>) -> Self {
        Self::new(202, "application/json", body)
    }

    /// An error with one sentence.
    pub fn error(status: u16, sentence: &str) -> Self {
        let error = sentence.to_owned();
        let body = serde_json::to_vec(&ErrorBody { error }).unwrap_or_default();
        Self::new(status, "application/json", body)
    }

    /// 405 with the methods that the path takes.
    pub(crate) fn method_not_allowed(allow: &'static str) -> Self {
        Self {
            allow: Some(allow),
            ..Self::error(405, "this path does not take this method")
        }
    }

    fn new(status: u16, content_type: &'static str, mut body: Vec<u8>) -> Self {
        if content_type == "application/json" {
            body.push(b'\n');
        }
        Self {
            status,
            content_type,
            allow: None,
            body,
        }
    }

    /// Status.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Head and, unless a HEAD request asked, body.
    pub(super) fn bytes(&self, part: Part, connection: Connection) -> Vec<u8> {
        let (status, length) = (self.status, self.body.len());
        let (reason, kind) = (reason(status), self.content_type);
        let mut text = format!(
            "HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n"
        );
        if let Some(allow) = self.allow {
            text.push_str(&format!("Allow: {allow}\r\n"));
        }
        if connection == Connection::Close {
            text.push_str("Connection: close\r\n");
        }
        text.push_str("\r\n");
        let mut bytes = text.into_bytes();
        if part == Part::Whole {
            bytes.extend_from_slice(&self.body);
        }
        bytes
    }
}

/// How much of an answer goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Whole,
    Head,
}

/// What becomes of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Connection {
    Keep,
    Close,
}

impl From<Rejected> for Response {
    fn from(rejected: Rejected) -> Self {
        match rejected {
            Rejected::Malformed => Self::error(400, "the request is malformed"),
            Rejected::NoLength => Self::error(411, "a body needs a Content-Length"),
            Rejected::BodyTooLarge => Self::error(413, "the body is longer than 4,096 bytes"),
            Rejected::HeadTooLarge => Self::error(431, "the head is longer than 4,096 bytes"),
            Rejected::Version => Self::error(505, "only HTTP/1.0 and HTTP/1.1 are spoken"),
        }
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        202 => "Accepted",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        411 => "Length Required",
        413 => "Content Too Large",
        431 => "Request Header Fields Too Large",
        505 => "HTTP Version Not Supported",
        _ => "Internal Server Error",
    }
}
