//! The header fields that matter here, gathered in one pass.

use httparse::Header;

use super::authority;
use super::head::{Body, Conditions, Lines, Persistence, Version};
use crate::decimal;
use crate::status::Status;

#[derive(Default)]
pub(super) struct Fields<'a> {
    pub(super) host: Option<&'a [u8]>,
    pub(super) conditions: Conditions<'a>,
    pub(super) range: Option<&'a [u8]>,
    pub(super) if_range: Option<&'a [u8]>,
    pub(super) accept_encoding: Lines<'a>,
    pub(super) expects_continue: bool,
    range_repeated: bool,
    close: bool,
    keep_alive: bool,
    length: Option<u64>,
    coding: Option<Coding>,
    chunked: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Coding {
    /// `chunked` alone.
    Chunked,
    /// Others, and `chunked` last.
    Unknown,
    /// `chunked` is not last, or there twice: the body has no certain end.
    Endless,
}

impl<'a> Fields<'a> {
    pub(super) fn read(headers: &[Header<'a>]) -> Result<Self, Status> {
        let mut fields = Self::default();
        for header in headers {
            fields.take(header.name.as_bytes(), header.value)?;
        }
        if fields.range_repeated {
            fields.range = None;
        }
        Ok(fields)
    }

    /// The length tells most names apart; the compare decides.
    fn take(&mut self, name: &[u8], value: &'a [u8]) -> Result<(), Status> {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        match name.len() {
            4 if is("host") => self.take_host(value)?,
            5 if is("range") => self.range_repeated |= self.range.replace(value).is_some(),
            6 if is("expect") => self.take_expectation(value)?,
            8 if is("if-match") => self.conditions.if_match.push(value),
            8 if is("if-range") => self.if_range = Some(value),
            10 if is("connection") => self.take_connection(value),
            13 if is("if-none-match") => self.conditions.if_none_match.push(value),
            14 if is("content-length") => self.take_length(value)?,
            15 if is("accept-encoding") => self.accept_encoding.push(value),
            17 if is("if-modified-since") => self.conditions.if_modified_since = Some(value),
            17 if is("transfer-encoding") => self.take_coding(value),
            19 if is("if-unmodified-since") => self.conditions.if_unmodified_since = Some(value),
            _ => {}
        }
        Ok(())
    }

    fn take_host(&mut self, value: &'a [u8]) -> Result<(), Status> {
        if self.host.replace(value).is_some() || !authority::is_valid(value) {
            return Err(Status::BadRequest);
        }
        Ok(())
    }

    fn take_expectation(&mut self, value: &[u8]) -> Result<(), Status> {
        if !value.eq_ignore_ascii_case(b"100-continue") {
            return Err(Status::ExpectationFailed);
        }
        self.expects_continue = true;
        Ok(())
    }

    fn take_connection(&mut self, value: &[u8]) {
        for option in list(value) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    fn take_length(&mut self, value: &[u8]) -> Result<(), Status> {
        let length = decimal::parse(value).ok_or(Status::BadRequest)?;
        if self.length.is_some_and(|known| known != length) {
            return Err(Status::BadRequest);
        }
        self.length = Some(length);
        Ok(())
    }

    fn take_coding(&mut self, value: &[u8]) {
        for member in list(value) {
            let chunked = member.eq_ignore_ascii_case(b"chunked");
            self.coding = Some(match self.coding {
                None if chunked => Coding::Chunked,
                Some(Coding::Endless) if chunked && !self.chunked => Coding::Unknown,
                _ => Coding::Endless,
            });
            self.chunked |= chunked;
        }
        // The field is there even if it names nothing.
        self.coding.get_or_insert(Coding::Endless);
    }

    pub(super) fn persistence(&self, version: Version) -> Persistence {
        match version {
            _ if self.close => Persistence::Close,
            Version::Http11 => Persistence::Keep,
            Version::Http10 if self.keep_alive => Persistence::KeepByRequest,
            Version::Http10 => Persistence::Close,
        }
    }

    /// RFC 9112, 6.1 and 6.3: a coding together with a length, or in HTTP/1.0,
    /// may be an attempt at smuggling.
    pub(super) fn body(&self, version: Version) -> Result<Body, Status> {
        match (self.coding, self.length) {
            (None, length) => Ok(Body::Length(length.unwrap_or(0))),
            (Some(_), Some(_)) => Err(Status::BadRequest),
            (Some(_), None) if version == Version::Http10 => Err(Status::BadRequest),
            (Some(Coding::Chunked), None) => Ok(Body::Chunked),
            (Some(Coding::Unknown), None) => Err(Status::NotImplemented),
            (Some(Coding::Endless), None) => Err(Status::BadRequest),
        }
    }
}

/// The members of a comma-separated list, without blanks; empty ones left out.
fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let members = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    members.filter(|member| !member.is_empty())
}
