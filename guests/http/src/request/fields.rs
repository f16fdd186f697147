//! The header fields that matter here, gathered in one pass.

use httparse::Header;
use tare_web::framing::{Framing, FramingFields, list};

use super::authority;
use super::head::{Conditions, Lines, Persistence, Version};
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
    framing: FramingFields,
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
            14 if is("content-length") => self.framing.take_length(value)?,
            15 if is("accept-encoding") => self.accept_encoding.push(value),
            17 if is("if-modified-since") => self.conditions.if_modified_since = Some(value),
            17 if is("transfer-encoding") => self.framing.take_coding(value),
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

    pub(super) fn persistence(&self, version: Version) -> Persistence {
        match version {
            _ if self.close => Persistence::Close,
            Version::Http11 => Persistence::Keep,
            Version::Http10 if self.keep_alive => Persistence::KeepByRequest,
            Version::Http10 => Persistence::Close,
        }
    }

    pub(super) fn body(&self, version: Version) -> Result<Framing, Status> {
        let minor = match version {
            Version::Http10 => 0,
            Version::Http11 => 1,
        };
        Ok(self.framing.framing(minor)?)
    }
}
