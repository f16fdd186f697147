//! Finding the end of a request's body, which is thrown away.

use crate::limits::{MAX_BODY, MAX_HEAD};
use crate::request::Body;
use crate::status::Status;

/// A body on its way past; feed it bytes until it is [`Progress::Done`].
#[derive(Debug)]
pub(crate) struct Discard {
    state: State,
    /// Bytes of content that may still come.
    allowance: u64,
    /// Bytes of chunk extensions and trailers that may still come.
    overhead: usize,
}

/// How far a body has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
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
    /// In a chunk's extension, until the end of its line.
    Extension(u64),
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

impl Discard {
    /// Refuses a body that says that it is too long.
    pub(crate) fn new(body: Body) -> Result<Self, Status> {
        let state = match body {
            Body::Length(0) => State::Ended,
            Body::Length(len) if len > MAX_BODY => return Err(Status::ContentTooLarge),
            Body::Length(len) => State::Counted(len),
            Body::Chunked => State::Size {
                value: 0,
                digits: 0,
            },
        };
        Ok(Self {
            state,
            allowance: MAX_BODY,
            overhead: MAX_HEAD,
        })
    }

    /// Takes what belongs to the body from the start of `bytes`.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<Progress, Status> {
        let mut at = 0;
        while self.state != State::Ended {
            let Some(&byte) = bytes.get(at) else {
                return Ok(Progress::More);
            };
            at += match self.state {
                State::Counted(left) => {
                    let taken = left.min((bytes.len() - at) as u64);
                    self.state = match left - taken {
                        0 => State::Ended,
                        left => State::Counted(left),
                    };
                    taken as usize
                }
                State::Data(left) => {
                    let taken = left.min((bytes.len() - at) as u64);
                    self.state = match left - taken {
                        0 => State::DataEnd,
                        left => State::Data(left),
                    };
                    taken as usize
                }
                _ => {
                    self.step(byte)?;
                    1
                }
            };
        }
        Ok(Progress::Done(at))
    }

    /// One byte of chunk framing (RFC 9112, 7.1). Lines end in CR LF, no less:
    /// other endings are where two readers come to differ.
    fn step(&mut self, byte: u8) -> Result<(), Status> {
        self.state = match (self.state, byte) {
            (State::Size { value, digits }, _) if byte.is_ascii_hexdigit() => {
                let digit = char::from(byte).to_digit(16).unwrap_or(0);
                self.more_size(value, digits, digit)?
            }
            (State::Size { value, digits: 1.. }, b'\r') => State::SizeEnd(value),
            (State::Size { value, digits: 1.. }, b';' | b' ' | b'\t') => State::Extension(value),
            (State::Extension(value), b'\r') => State::SizeEnd(value),
            (State::Extension(_) | State::Trailer | State::TrailerStart, _)
                if is_control(byte) && byte != b'\r' =>
            {
                return Err(Status::BadRequest);
            }
            (State::Extension(_), _) => self.spend(self.state)?,
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
            _ => return Err(Status::BadRequest),
        };
        Ok(())
    }

    fn more_size(&self, value: u64, digits: u8, digit: u32) -> Result<State, Status> {
        // Sixteen digits fill the value; more could only be zeros in front.
        if digits == 16 {
            return Err(Status::BadRequest);
        }
        Ok(State::Size {
            value: value << 4 | u64::from(digit),
            digits: digits + 1,
        })
    }

    fn begin_chunk(&mut self, len: u64) -> Result<State, Status> {
        self.allowance = self
            .allowance
            .checked_sub(len)
            .ok_or(Status::ContentTooLarge)?;
        Ok(State::Data(len))
    }

    fn spend(&mut self, next: State) -> Result<State, Status> {
        self.overhead = self
            .overhead
            .checked_sub(1)
            .ok_or(Status::HeaderFieldsTooLarge)?;
        Ok(next)
    }
}

/// Control characters other than the tab.
fn is_control(byte: u8) -> bool {
    byte.is_ascii_control() && byte != b'\t'
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn chunked(bytes: &[u8]) -> Result<Progress, Status> {
        Discard::new(Body::Chunked).unwrap().feed(bytes)
    }

    #[test]
    fn a_counted_body_ends_after_its_bytes() {
        let mut body = Discard::new(Body::Length(5)).unwrap();
        assert_eq!(body.feed(b"abc"), Ok(Progress::More));
        assert_eq!(body.feed(b"deGET"), Ok(Progress::Done(2)));
        let mut none = Discard::new(Body::Length(0)).unwrap();
        assert_eq!(none.feed(b"GET"), Ok(Progress::Done(0)));
    }

    #[test]
    fn chunks_end_after_their_trailer() {
        assert_eq!(chunked(b"0\r\n\r\nGET"), Ok(Progress::Done(5)));
        let body = b"4;ext=\"v\"\r\nWiki\r\n0A \r\n0123456789\r\n000\r\nA: b\r\nC: d\r\n\r\n";
        assert_eq!(chunked(body), Ok(Progress::Done(body.len())));
        assert_eq!(chunked(b"4\r\nWi"), Ok(Progress::More));
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
                Err(Status::BadRequest),
                "{}",
                bad.escape_ascii()
            );
        }
    }

    #[test]
    fn long_bodies_are_refused() {
        let refused = Discard::new(Body::Length(MAX_BODY + 1)).unwrap_err();
        assert_eq!(refused, Status::ContentTooLarge);
        assert_eq!(chunked(b"10001\r\n"), Err(Status::ContentTooLarge));
        assert_eq!(
            chunked(b"ffffffffffffffff\r\n"),
            Err(Status::ContentTooLarge)
        );
        let trailer = [&b"0\r\n"[..], &[b'a'; MAX_HEAD + 1]].concat();
        assert_eq!(chunked(&trailer), Err(Status::HeaderFieldsTooLarge));
        let extension = [&b"1;"[..], &[b'a'; MAX_HEAD + 1]].concat();
        assert_eq!(chunked(&extension), Err(Status::HeaderFieldsTooLarge));
    }

    proptest! {
        #[test]
        fn cuts_make_no_difference(sizes in prop::collection::vec(1..40usize, 0..6), cut in 0..300usize) {
            let mut bytes = Vec::new();
            for size in sizes {
                bytes.extend_from_slice(format!("{size:x}\r\n").as_bytes());
                bytes.resize(bytes.len() + size, b'\n');
                bytes.extend_from_slice(b"\r\n");
            }
            bytes.extend_from_slice(b"0\r\n\r\n");
            let (head, tail) = bytes.split_at(cut.min(bytes.len() - 1));
            let mut body = Discard::new(Body::Chunked).unwrap();
            prop_assert_eq!(body.feed(head), Ok(Progress::More));
            prop_assert_eq!(body.feed(tail), Ok(Progress::Done(tail.len())));
        }

        #[test]
        fn no_bytes_crash_it(bytes in prop::collection::vec(prop::sample::select(&b"0fF1;\r\n x"[..]), 0..60)) {
            let _ = chunked(&bytes);
        }
    }
}
