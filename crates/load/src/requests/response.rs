//! An answer as it comes in.

use httparse::Status;

use super::exchange::Expected;
use super::request::Failure;

/// Largest head that is taken, bytes.
const HEAD_MAX: usize = 16 << 10;

/// Collects an answer that is known.
#[derive(Debug, Default)]
pub(crate) struct Response {
    received: Vec<u8>,
}

/// What follows from what came so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// More must come.
    Partial,
    /// The expected answer; whether the connection may be used again.
    Right(Reuse),
}

/// Whether a connection may be used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reuse {
    /// The server keeps it.
    Keep,
    /// The server closes it.
    Close,
}

impl Response {
    /// Takes further bytes and says what the answer is.
    pub(crate) fn push(&mut self, bytes: &[u8], expected: &Expected) -> Result<Answer, Failure> {
        self.received.extend_from_slice(bytes);
        match expected {
            Expected::Http(body) => self.http(body),
            Expected::Exactly(answer) => self.exactly(answer),
        }
    }

    fn exactly(&self, expected: &[u8]) -> Result<Answer, Failure> {
        match expected.strip_prefix(self.received.as_slice()) {
            Some([]) => Ok(Answer::Right(Reuse::Keep)),
            Some(_) => Ok(Answer::Partial),
            None => Err(Failure::WrongBody),
        }
    }

    fn http(&self, expected: &[u8]) -> Result<Answer, Failure> {
        let mut headers = [httparse::EMPTY_HEADER; 32];
        let mut response = httparse::Response::new(&mut headers);
        let head = match response.parse(&self.received) {
            Ok(Status::Complete(head)) => head,
            Ok(Status::Partial) if self.received.len() <= HEAD_MAX => return Ok(Answer::Partial),
            _ => return Err(Failure::Malformed),
        };
        let status = response.code.unwrap_or(0);
        if status != 200 {
            return Err(Failure::Status(status));
        }
        let length: usize = header(&response, "content-length")
            .and_then(|v| v.parse().ok())
            .ok_or(Failure::Malformed)?;
        if length != expected.len() {
            return Err(Failure::WrongBody);
        }
        let reuse = reuse(&response);
        let body = &self.received[head..];
        if body.len() < length {
            return Ok(Answer::Partial);
        }
        if body != expected {
            return Err(Failure::WrongBody);
        }
        Ok(Answer::Right(reuse))
    }

    /// Nothing has come.
    pub(crate) fn is_empty(&self) -> bool {
        self.received.is_empty()
    }

    /// Ready for the next answer.
    pub(crate) fn clear(&mut self) {
        self.received.clear();
    }
}

fn reuse(response: &httparse::Response<'_, '_>) -> Reuse {
    let says = |word: &str| {
        header(response, "connection").is_some_and(|value| value.eq_ignore_ascii_case(word))
    };
    let keep = match response.version {
        Some(1) => !says("close"),
        _ => says("keep-alive"),
    };
    if keep { Reuse::Keep } else { Reuse::Close }
}

fn header<'a>(response: &httparse::Response<'_, 'a>, name: &str) -> Option<&'a str> {
    let found = response
        .headers
        .iter()
        .find(|h| h.name.eq_ignore_ascii_case(name))?;
    std::str::from_utf8(found.value).ok().map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn http(body: &[u8]) -> Expected {
        Expected::Http(body.into())
    }

    #[test]
    fn an_exact_answer_is_these_bytes_and_no_others() {
        let expected = Expected::Exactly(b"STORED\r\n".as_slice().into());
        let mut response = Response::default();
        assert_eq!(response.push(b"STOR", &expected), Ok(Answer::Partial));
        let whole = response.push(b"ED\r\n", &expected);
        assert_eq!(whole, Ok(Answer::Right(Reuse::Keep)));
        assert_eq!(response.push(b"X", &expected), Err(Failure::WrongBody));
    }

    fn answer(text: &str) -> Result<Answer, Failure> {
        Response::default().push(text.as_bytes(), &http(b"body"))
    }

    #[test]
    fn an_answer_may_come_byte_by_byte() {
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody";
        let mut response = Response::default();
        for byte in &text[..text.len() - 1] {
            assert_eq!(response.push(&[*byte], &http(b"body")), Ok(Answer::Partial));
        }
        assert_eq!(
            response.push(b"y", &http(b"body")),
            Ok(Answer::Right(Reuse::Keep))
        );
    }

    #[test]
    fn what_is_not_the_file_is_a_failure() {
        for (text, failure) in [
            (
                "HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n",
                Failure::Status(404),
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
                Failure::WrongBody,
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbodY",
                Failure::WrongBody,
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody+",
                Failure::WrongBody,
            ),
            ("HTTP/1.1 200 OK\r\n\r\nbody", Failure::Malformed),
            ("SSH-2.0-x\r\n", Failure::Malformed),
        ] {
            assert_eq!(answer(text), Err(failure), "{text}");
        }
    }

    #[test]
    fn the_server_says_whether_it_keeps_the_connection() {
        for (text, reuse) in [
            (
                "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbody",
                Reuse::Close,
            ),
            (
                "HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nbody",
                Reuse::Close,
            ),
            (
                "HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 4\r\n\r\nbody",
                Reuse::Keep,
            ),
        ] {
            assert_eq!(answer(text), Ok(Answer::Right(reuse)), "{text}");
        }
    }

    #[test]
    fn an_endless_head_ends() {
        let mut response = Response::default();
        let line = "X: y\r\n".repeat(20);
        let head = format!("HTTP/1.1 200 OK\r\n{line}");
        let _ = response.push(head.as_bytes(), &http(b""));
        let long = format!("Z: {}", "a".repeat(HEAD_MAX));
        assert_eq!(
            response.push(long.as_bytes(), &http(b"")),
            Err(Failure::Malformed)
        );
    }
}
