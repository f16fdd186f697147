//! The status codes that this server gives.

use tare_web::framing::BodyError;

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $code:literal $reason:literal,)*) => {
        /// A response's status (RFC 9110, 15).
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Status { $($(#[$doc])* $name,)* }

        impl Status {
            /// Every status, in the order of [`Status::index`].
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The three digits.
            pub const fn code(self) -> u16 {
                match self { $(Self::$name => $code,)* }
            }

            /// Version, code and reason, with the line's end.
            pub const fn line(self) -> &'static [u8] {
                match self {
                    $(Self::$name => concat!("HTTP/1.1 ", $code, " ", $reason, "\r\n").as_bytes(),)*
                }
            }

            /// Code and reason as a line of text, the body of plain answers.
            pub const fn text(self) -> &'static [u8] {
                match self { $(Self::$name => concat!($code, " ", $reason, "\n").as_bytes(),)* }
            }
        }
    };
}

impl From<BodyError> for Status {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::Malformed => Self::BadRequest,
            BodyError::TooLarge => Self::ContentTooLarge,
            BodyError::FramingTooLarge => Self::HeaderFieldsTooLarge,
            BodyError::UnknownCoding => Self::NotImplemented,
        }
    }
}

statuses! {
    /// The file as a whole.
    Ok = 200 "OK",
    /// One range of it.
    PartialContent = 206 "Partial Content",
    /// A directory lacks its slash, or the site redirects the path.
    MovedPermanently = 301 "Moved Permanently",
    /// The site redirects the path.
    Found = 302 "Found",
    /// The client's copy is current.
    NotModified = 304 "Not Modified",
    /// The site redirects the path.
    TemporaryRedirect = 307 "Temporary Redirect",
    /// The site redirects the path.
    PermanentRedirect = 308 "Permanent Redirect",
    /// The request breaks the protocol.
    BadRequest = 400 "Bad Request",
    /// No such file.
    NotFound = 404 "Not Found",
    /// Neither GET nor HEAD nor OPTIONS.
    MethodNotAllowed = 405 "Method Not Allowed",
    /// The request did not arrive in time.
    RequestTimeout = 408 "Request Timeout",
    /// `If-Match` or `If-Unmodified-Since` does not hold.
    PreconditionFailed = 412 "Precondition Failed",
    /// The body is longer than is thrown away.
    ContentTooLarge = 413 "Content Too Large",
    /// The target is too long.
    UriTooLong = 414 "URI Too Long",
    /// The range begins behind the end.
    RangeNotSatisfiable = 416 "Range Not Satisfiable",
    /// An expectation other than `100-continue`.
    ExpectationFailed = 417 "Expectation Failed",
    /// The head is too long or has too many fields.
    HeaderFieldsTooLarge = 431 "Request Header Fields Too Large",
    /// A file cannot be read.
    InternalServerError = 500 "Internal Server Error",
    /// An unknown method or transfer coding.
    NotImplemented = 501 "Not Implemented",
    /// Too many connections, or no memory for a file.
    ServiceUnavailable = 503 "Service Unavailable",
    /// Neither HTTP/1.0 nor HTTP/1.1.
    VersionNotSupported = 505 "HTTP Version Not Supported",
}

impl Status {
    /// Position in [`Status::ALL`], for counters.
    pub const fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_positions_agree() {
        for (index, status) in Status::ALL.iter().enumerate() {
            assert_eq!(status.index(), index);
            assert!(status.line().starts_with(b"HTTP/1.1 "));
            assert_eq!(
                status.line()[9..status.line().len() - 2],
                *status.text().trim_ascii_end()
            );
        }
        assert_eq!(Status::NotFound.line(), b"HTTP/1.1 404 Not Found\r\n");
        assert_eq!(Status::ContentTooLarge.code(), 413);
    }
}
