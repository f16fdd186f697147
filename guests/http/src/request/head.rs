//! What a request head says.

use tare_web::framing::Framing;

/// A request that this server understands; the bytes stay where they were read.
#[derive(Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The method.
    pub method: Method,
    /// The target as sent.
    pub target: &'a str,
    /// The version spoken.
    pub version: Version,
    /// `Host`
    pub host: Option<&'a [u8]>,
    /// What becomes of the connection afterwards.
    pub persistence: Persistence,
    /// The body that follows the head.
    pub body: Framing,
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

/// A request line's parts.
pub(super) struct Line<'a> {
    pub(super) method: &'a str,
    pub(super) target: &'a str,
    pub(super) version: Version,
}
