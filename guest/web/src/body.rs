//! Reading a request's body from the bytes of its connection, for whoever keeps it or
//! throws it away. Trailers are read past: no server here has a use for one.

use crate::framing::{BodyError, Framing};

/// What a body may have at most, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyLimits {
    /// Its content.
    pub content: u64,
    /// Its chunk extensions and trailers.
    pub framing: usize,
}

/// A body that arrives; feed it bytes until it is [`Progress::Done`].
#[derive(Debug)]
pub struct BodyReader {
    state: State,
    /// What may still come.
    left: BodyLimits,
}

/// How far a body has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All bytes belonged to the body, and more are to come.
    More,
    /// The body has ended after that many of the bytes.
    Done(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Bytes left of a body of known length.
    Counted(u64),
    /// In a chunk's size, with the digits read so far.
    Size {
        value: u64,
        digits: u8,
    },
    /// Behind a chunk's size, until the end of its line.
    Extension(u64, Extension),
    /// After the carriage return of a size line.
    SizeEnd(u64),
    /// Bytes left of a chunk.
    Data(u64),
    /// Before the carriage return after a chunk.
    DataEnd,
    /// Before the line feed after a chunk.
    DataLineFeed,
    /// At the start of a trailer line.
    TrailerStart,
    /// In a trailer line.
    Trailer,
    /// Before the line feed of a trailer line.
    TrailerLineFeed,
    /// After the carriage return of the last, empty line.
    Last,
    Ended,
}

impl BodyReader {
    /// Refuses a body that says that it is too long.
    pub fn new(framing: Framing, limits: BodyLimits) -> Result<Self, BodyError> {
        let state = match framing {
            Framing::Length(0) => State::Ended,
            Framing::Length(len) if len > limits.content => return Err(BodyError::TooLarge),
            Framing::Length(len) => State::Counted(len),
            Framing::Chunked => State::Size {
                value: 0,
                digits: 0,
            },
        };
        Ok(Self {
            state,
            left: limits,
        })
    }

    /// Reads what belongs to the body from the start of `bytes`; its content goes to
    /// `take`, piece by piece, without the framing.
    pub fn feed<E: From<BodyError>>(
        &mut self,
        bytes: &[u8],
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<Progress, E> {
        let mut at = 0;
        while self.state != State::Ended {
            let Some(&byte) = bytes.get(at) else {
                return Ok(Progress::More);
            };
            let (State::Counted(left) | State::Data(left)) = self.state else {
                self.step(byte)?;
                at += 1;
                continue;
            };
            let taken = left.min((bytes.len() - at) as u64);
            let end = at + taken as usize;
            take(&bytes[at..end])?;
            at = end;
            self.state = match (self.state, left - taken) {
                (State::Counted(_), 0) => State::Ended,
                (State::Counted(_), left) => State::Counted(left),
                (_, 0) => State::DataEnd,
                (_, left) => State::Data(left),
            };
        }
        Ok(Progress::Done(at))
    }

    /// One byte of chunk framing (RFC 9112, 7.1). Lines end in CR LF, no less:
    /// other endings are where two readers come to differ.
    fn step(&mut self, byte: u8) -> Result<(), BodyError> {
        self.state = match (self.state, byte) {
            (State::Size { value, digits }, _) if byte.is_ascii_hexdigit() => {
                let digit = char::from(byte).to_digit(16).unwrap_or(0);
                self.more_size(value, digits, digit)?
            }
            (State::Size { value, digits: 1.. }, b'\r') => State::SizeEnd(value),
            (State::Size { value, digits: 1.. }, _) => {
                let next = Extension::Before.next(byte).ok_or(BodyError::Malformed)?;
                self.spend(State::Extension(value, next))?
            }
            (State::Extension(value, at), b'\r') if at.may_end() => State::SizeEnd(value),
            (State::Extension(value, at), _) => {
                let next = at.next(byte).ok_or(BodyError::Malformed)?;
                self.spend(State::Extension(value, next))?
            }
            (State::Trailer | State::TrailerStart, _) if is_control(byte) && byte != b'\r' => {
                return Err(BodyError::Malformed);
            }
            (State::SizeEnd(0), b'\n') => State::TrailerStart,
            (State::SizeEnd(len), b'\n') => self.begin_chunk(len)?,
            (State::DataEnd, b'\r') => State::DataLineFeed,
            (State::DataLineFeed, b'\n') => State::Size {
                value: 0,
                digits: 0,
            },
            (State::TrailerStart, b'\r') => State::Last,
            (State::Trailer, b'\r') => State::TrailerLineFeed,
            (State::TrailerStart | State::Trailer, _) => self.spend(State::Trailer)?,
            (State::TrailerLineFeed, b'\n') => State::TrailerStart,
            (State::Last, b'\n') => State::Ended,
            _ => return Err(BodyError::Malformed),
        };
        Ok(())
    }

    fn more_size(&self, value: u64, digits: u8, digit: u32) -> Result<State, BodyError> {
        // Sixteen digits fill the value; more could only be zeros in front.
        if digits == 16 {
            return Err(BodyError::Malformed);
        }
        Ok(State::Size {
            value: value << 4 | u64::from(digit),
            digits: digits + 1,
        })
    }

    fn begin_chunk(&mut self, len: u64) -> Result<State, BodyError> {
        let left = self.left.content.checked_sub(len);
        self.left.content = left.ok_or(BodyError::TooLarge)?;
        Ok(State::Data(len))
    }

    fn spend(&mut self, next: State) -> Result<State, BodyError> {
        let left = self.left.framing.checked_sub(1);
        self.left.framing = left.ok_or(BodyError::FramingTooLarge)?;
        Ok(next)
    }
}

/// Where in a chunk's extensions (RFC 9112, 7.1.1): `;name=value`, with blanks around the
/// signs. This server does not use them, but what two readers could end in two ways must
/// not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extension {
    /// Before a semicolon.
    Before,
    /// Before a name.
    Semicolon,
    Name,
    /// Behind a name and a blank.
    Named,
    /// Before a value.
    Equals,
    Value,
    Quoted,
    /// Behind a backslash.
    Escape,
    /// Behind the second quote.
    Unquoted,
}

impl Extension {
    /// Where `byte` leads; `None` if it cannot stand here.
    fn next(self, byte: u8) -> Option<Self> {
        let is_blank = matches!(byte, b' ' | b'\t');
        Some(match (self, byte) {
            (Self::Quoted, b'"') => Self::Unquoted,
            (Self::Quoted, b'\\') => Self::Escape,
            (Self::Quoted | Self::Escape, _) if !is_control(byte) => Self::Quoted,
            (Self::Quoted | Self::Escape, _) => return None,
            (Self::Name, _) if is_blank => Self::Named,
            (Self::Value | Self::Unquoted, _) if is_blank => Self::Before,
            (_, _) if is_blank => self,
            (Self::Equals, b'"') => Self::Quoted,
            (Self::Semicolon | Self::Name, _) if is_token(byte) => Self::Name,
            (Self::Equals | Self::Value, _) if is_token(byte) => Self::Value,
            (Self::Name | Self::Named, b'=') => Self::Equals,
            (Self::Before | Self::Name | Self::Named | Self::Value | Self::Unquoted, b';') => {
                Self::Semicolon
            }
            _ => return None,
        })
    }

    /// Whether the line may end here.
    fn may_end(self) -> bool {
        matches!(self, Self::Name | Self::Value | Self::Unquoted)
    }
}

/// The characters of names (RFC 9110, 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Control characters other than the tab.
fn is_control(byte: u8) -> bool {
    byte.is_ascii_control() && byte != b'\t'
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    const LIMITS: BodyLimits = BodyLimits {
        content: 64 * 1024,
        framing: 16 * 1024,
    };

    fn reader(framing: Framing) -> BodyReader {
        BodyReader::new(framing, LIMITS).unwrap()
    }

    /// Its progress, and content that it gave.
    fn fed(body: &mut BodyReader, bytes: &[u8]) -> (Result<Progress, BodyError>, Vec<u8>) {
        let mut content = Vec::new();
        let progress = body.feed(bytes, |piece| {
            content.extend_from_slice(piece);
            Ok(())
        });
        (progress, content)
    }

    fn chunked(bytes: &[u8]) -> Result<Progress, BodyError> {
        fed(&mut reader(Framing::Chunked), bytes).0
    }

    #[test]
    fn a_counted_body_ends_after_its_bytes() {
        let mut body = reader(Framing::Length(5));
        assert_eq!(
            fed(&mut body, b"abc"),
            (Ok(Progress::More), b"abc".to_vec())
        );
        assert_eq!(
            fed(&mut body, b"deGET"),
            (Ok(Progress::Done(2)), b"de".to_vec())
        );
        let mut none = reader(Framing::Length(0));
        assert_eq!(fed(&mut none, b"GET"), (Ok(Progress::Done(0)), Vec::new()));
    }

    #[test]
    fn chunks_end_after_their_trailer() {
        assert_eq!(chunked(b"0\r\n\r\nGET"), Ok(Progress::Done(5)));
        let body = b"4;ext=\"v\"\r\nWiki\r\n0A ;a\r\n0123456789\r\n000\r\nA: b\r\nC: d\r\n\r\n";
        let (progress, content) = fed(&mut reader(Framing::Chunked), body);
        assert_eq!(progress, Ok(Progress::Done(body.len())));
        assert_eq!(content, b"Wiki0123456789");
        assert_eq!(chunked(b"4\r\nWi"), Ok(Progress::More));
    }

    #[test]
    fn what_is_taken_may_be_refused() {
        let mut body = reader(Framing::Chunked);
        let refused = body.feed(b"3\r\nabc", |_| Err(BodyError::TooLarge));
        assert_eq!(refused, Err(BodyError::TooLarge));
    }

    #[test]
    fn broken_framing_is_refused() {
        for bad in [
            &b"\r\n"[..],
            b"x\r\n",
            b"-1\r\n",
            b";\r\n",
            b"1\n",
            b"1\rx",
            b"1;a\n",
            b"1;a\0\r\n",
            b"1;a=\x08\r\n",
            b"1;a=\x7f\r\n",
            b"1 \r\n",
            b"1;\r\n",
            b"1;a \r\n",
            b"1;a=\r\n",
            b"1;=b\r\n",
            b"1;a b\r\n",
            b"1;a=b c\r\n",
            b"1;a=\"b\r\n",
            b"1;a=\"b\"c\r\n",
            b"1;a[\r\n",
            b"1\r\nab",
            b"1\r\na\n",
            b"1\r\na\rx",
            b"0\r\n\n",
            b"0\r\nA: b\n",
            b"0\r\nA: \0\r\n\r\n",
            b"0\r\nA: b\rx",
            b"0\r\n\rx",
            b"00000000000000001\r\n",
        ] {
            assert_eq!(
                chunked(bad),
                Err(BodyError::Malformed),
                "{}",
                bad.escape_ascii()
            );
        }
    }

    #[test]
    fn long_bodies_are_refused() {
        let long = Framing::Length(LIMITS.content + 1);
        let refused = BodyReader::new(long, LIMITS).unwrap_err();
        assert_eq!(refused, BodyError::TooLarge);
        // Chunks that are each within the limit, and not together.
        let chunk = [&b"8000\r\n"[..], &[b'a'; 0x8000], b"\r\n"].concat();
        let most = chunk.repeat(2);
        assert_eq!(chunked(&most), Ok(Progress::More));
        let more = [&most[..], b"1\r\n"].concat();
        assert_eq!(chunked(&more), Err(BodyError::TooLarge));
        assert_eq!(chunked(b"10001\r\n"), Err(BodyError::TooLarge));
        assert_eq!(chunked(b"ffffffffffffffff\r\n"), Err(BodyError::TooLarge));
        let trailer = [&b"0\r\n"[..], &[b'a'; LIMITS.framing + 1]].concat();
        assert_eq!(chunked(&trailer), Err(BodyError::FramingTooLarge));
        let extension = [&b"1;"[..], &[b'a'; LIMITS.framing + 1]].concat();
        assert_eq!(chunked(&extension), Err(BodyError::FramingTooLarge));
    }

    proptest! {
        #[test]
        fn cuts_make_no_difference(sizes in prop::collection::vec(1..40usize, 0..6), cut in 0..300usize) {
            let (mut bytes, mut sent) = (Vec::new(), Vec::new());
            for size in sizes {
                bytes.extend_from_slice(format!("{size:x}\r\n").as_bytes());
                let chunk: Vec<u8> = (0..size).map(|it| (it + sent.len()) as u8).collect();
                bytes.extend_from_slice(&chunk);
                sent.extend_from_slice(&chunk);
                bytes.extend_from_slice(b"\r\n");
            }
            bytes.extend_from_slice(b"0\r\n\r\n");
            let (head, tail) = bytes.split_at(cut.min(bytes.len() - 1));
            let mut body = reader(Framing::Chunked);
            let (progress, mut content) = fed(&mut body, head);
            prop_assert_eq!(progress, Ok(Progress::More));
            let (progress, rest) = fed(&mut body, tail);
            prop_assert_eq!(progress, Ok(Progress::Done(tail.len())));
            content.extend_from_slice(&rest);
            prop_assert_eq!(content, sent);
        }

        #[test]
        fn no_bytes_crash_it(bytes in prop::collection::vec(prop::sample::select(&b"0fF1;\r\n x"[..]), 0..60)) {
            let _ = chunked(&bytes);
        }
    }
}
