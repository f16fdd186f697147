//! What a head says about where its body ends (RFC 9112, 6).
//!
//! Two readers of one connection that understand this in two ways let a client smuggle
//! requests past one of them. So there is one reading for all servers, and what is
//! ambiguous is refused.

/// How the body's end is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// That many bytes; 0 for no body.
    Length(u64),
    /// Chunks.
    Chunked,
}

/// Why a body is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// Its length or its chunks are not what the RFC says: 400.
    Malformed,
    /// It is longer than it may be: 413.
    TooLarge,
    /// Its chunk extensions or its trailer are: 431.
    FramingTooLarge,
    /// It has a transfer coding besides `chunked`: 501.
    UnknownCoding,
}

/// The fields that say it, gathered from a head.
#[derive(Clone, Copy, Debug, Default)]
pub struct FramingFields {
    length: Option<u64>,
    coding: Option<Coding>,
    has_chunked: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coding {
    /// `chunked` alone.
    Chunked,
    /// Others, and `chunked` last.
    Unknown,
    /// `chunked` is not last, or there twice: the body has no certain end.
    Endless,
}

impl FramingFields {
    /// Takes the value of a `Content-Length`. Two that differ are refused, and one beyond
    /// what can be counted (RFC 9110, 8.6): two of these would look the same.
    pub fn take_length(&mut self, value: &[u8]) -> Result<(), BodyError> {
        let length = digits(value)
            .filter(|length| *length != u64::MAX)
            .ok_or(BodyError::Malformed)?;
        match self.length.replace(length) {
            Some(known) if known != length => Err(BodyError::Malformed),
            _ => Ok(()),
        }
    }

    /// Takes the value of a `Transfer-Encoding`.
    pub fn take_coding(&mut self, value: &[u8]) {
        for member in list(value) {
            let chunked = member.eq_ignore_ascii_case(b"chunked");
            self.coding = Some(match self.coding {
                None if chunked => Coding::Chunked,
                Some(Coding::Endless) if chunked && !self.has_chunked => Coding::Unknown,
                _ => Coding::Endless,
            });
            self.has_chunked |= chunked;
        }
        // The field is there even if it names nothing.
        self.coding.get_or_insert(Coding::Endless);
    }

    /// What they mean in HTTP/1.`minor`. A coding together with a length, or in HTTP/1.0,
    /// may be an attempt at smuggling (RFC 9112, 6.1 and 6.3).
    pub fn framing(&self, minor: u8) -> Result<Framing, BodyError> {
        match (self.coding, self.length) {
            (None, length) => Ok(Framing::Length(length.unwrap_or(0))),
            (Some(_), Some(_)) => Err(BodyError::Malformed),
            (Some(_), None) if minor == 0 => Err(BodyError::Malformed),
            (Some(Coding::Chunked), None) => Ok(Framing::Chunked),
            (Some(Coding::Unknown), None) => Err(BodyError::UnknownCoding),
            (Some(Coding::Endless), None) => Err(BodyError::Malformed),
        }
    }
}

/// The members of a comma-separated list, without blanks; empty ones left out
/// (RFC 9110, 5.6.1).
pub fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let members = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    members.filter(|member| !member.is_empty())
}

/// Reads digits; `None` for none or for another byte. Saturates.
pub fn digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |value, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        Some(value.saturating_mul(10).saturating_add(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framing(lengths: &[&str], codings: &[&str], minor: u8) -> Result<Framing, BodyError> {
        let mut fields = FramingFields::default();
        for length in lengths {
            fields.take_length(length.as_bytes())?;
        }
        for coding in codings {
            fields.take_coding(coding.as_bytes());
        }
        fields.framing(minor)
    }

    #[test]
    fn only_digits_are_numbers() {
        assert_eq!(digits(b""), None);
        assert_eq!(digits(b"-1"), None);
        assert_eq!(digits(b"+1"), None);
        assert_eq!(digits(b"1 "), None);
        assert_eq!(digits(b"007"), Some(7));
        assert_eq!(digits(&[b'9'; 40]), Some(u64::MAX));
    }

    #[test]
    fn a_body_has_a_length_or_chunks_or_is_empty() {
        assert_eq!(framing(&[], &[], 1), Ok(Framing::Length(0)));
        assert_eq!(framing(&["5", "5"], &[], 0), Ok(Framing::Length(5)));
        let huge = framing(&["99999999999999999999999"], &[], 1);
        assert_eq!(huge, Err(BodyError::Malformed));
        for coding in ["chunked", "Chunked", " ,chunked, "] {
            assert_eq!(framing(&[], &[coding], 1), Ok(Framing::Chunked), "{coding}");
        }
    }

    #[test]
    fn what_two_readers_could_read_in_two_ways_is_refused() {
        for (lengths, codings, minor) in [
            (&["1", "2"][..], &[][..], 1),
            (&["1, 1"], &[], 1),
            (&["+1"], &[], 1),
            (&[""], &[], 1),
            (&["1"], &["chunked"], 1),
            (&[], &["chunked"], 0),
            (&[], &["chunked, chunked"], 1),
            (&[], &["chunked", "chunked"], 1),
            (&[], &["chunked, gzip"], 1),
            (&[], &["gzip"], 1),
            (&[], &[""], 1),
            (&[], &["chunked;a=b"], 1),
        ] {
            let refused = framing(lengths, codings, minor);
            assert_eq!(
                refused,
                Err(BodyError::Malformed),
                "{lengths:?} {codings:?}"
            );
        }
        let zipped = framing(&[], &["gzip, chunked"], 1);
        assert_eq!(zipped, Err(BodyError::UnknownCoding));
    }
}
