//! Header fields that a site adds (RFC 9110, 5).

const MOST_NAME: usize = 64;
const MOST_VALUE: usize = 4096;

/// A field of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    name: &'a str,
    value: &'a str,
}

/// Why a field cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// Not a token (RFC 9110, 5.6.2).
    #[error("a header's name has letters, digits and !#$%&'*+-.^_`|~ only")]
    Name,
    /// The name is too long.
    #[error("the name is too long: the limit is {MOST_NAME} bytes")]
    LongName,
    /// A field that describes the answer or the connection.
    #[error("the server sets this header itself")]
    Own,
    /// Another byte than those of a field value (RFC 9110, 5.5).
    #[error("a header's value has printable ASCII, blanks and tabs only, not {0:?}")]
    Value(char),
    /// Nothing, or blanks around the value.
    #[error("a header's value is not empty and has no blanks around it")]
    Blank,
    /// The value is too long.
    #[error("the value is too long: the limit is {MOST_VALUE} bytes")]
    LongValue,
}

/// Fields that the server makes, or that would change how a message is framed.
const OWN: [&str; 19] = [
    "Accept-Ranges",
    "Allow",
    "Connection",
    "Content-Encoding",
    "Content-Length",
    "Content-Range",
    "Content-Type",
    "Date",
    "ETag",
    "Keep-Alive",
    "Last-Modified",
    "Location",
    "Proxy-Connection",
    "Retry-After",
    "TE",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
    "Vary",
];

impl<'a> Field<'a> {
    /// Checks name and value.
    pub fn new(name: &'a str, value: &'a str) -> Result<Self, FieldError> {
        check_name(name)?;
        check_value(value)?;
        Ok(Self { name, value })
    }

    /// Its name.
    pub fn name(self) -> &'a str {
        self.name
    }

    /// Its value.
    pub fn value(self) -> &'a str {
        self.value
    }

    /// Whether this is the field of that name.
    pub fn is_named(self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }
}

pub(crate) fn check_name(name: &str) -> Result<(), FieldError> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.len() > MOST_NAME {
        Err(FieldError::LongName)
    } else if name.is_empty() || !name.bytes().all(is_token) {
        Err(FieldError::Name)
    } else if OWN.iter().any(|own| own.eq_ignore_ascii_case(name)) {
        Err(FieldError::Own)
    } else {
        Ok(())
    }
}

pub(crate) fn check_value(value: &str) -> Result<(), FieldError> {
    if value.len() > MOST_VALUE {
        return Err(FieldError::LongValue);
    }
    if let Some(odd) = value.chars().find(|c| !matches!(c, '\t' | ' '..='~')) {
        return Err(FieldError::Value(odd));
    }
    let is_trimmed = value.trim_ascii().len() == value.len();
    let is_sent_as_it_is = is_trimmed && !value.is_empty();
    is_sent_as_it_is.then_some(()).ok_or(FieldError::Blank)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fields_that_cannot_break_an_answer_are_taken() {
        let field = Field::new("X-Frame-Options", "DENY; a=\"b\"\tc").unwrap();
        assert!(field.is_named("x-frame-options"));
        for (name, value, error) in [
            ("", "a", FieldError::Name),
            ("A B", "a", FieldError::Name),
            ("A:", "a", FieldError::Name),
            ("Ä", "a", FieldError::Name),
            ("content-length", "1", FieldError::Own),
            ("Transfer-encoding", "chunked", FieldError::Own),
            ("A", "a\r\nSet-Cookie: b", FieldError::Value('\r')),
            ("A", "a\0", FieldError::Value('\0')),
            ("A", "ä", FieldError::Value('ä')),
            ("A", "", FieldError::Blank),
            ("A", " a", FieldError::Blank),
            ("A", "a\t", FieldError::Blank),
        ] {
            assert_eq!(Field::new(name, value), Err(error), "{name:?}: {value:?}");
        }
        let long = "a".repeat(MOST_VALUE + 1);
        assert_eq!(Field::new("A", &long), Err(FieldError::LongValue));
        assert_eq!(Field::new(&long, "a"), Err(FieldError::LongName));
    }
}
