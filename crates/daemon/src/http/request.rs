//! Requests: httparse and this module turn bytes into a valid request or an error status.

/// Longest head, and longest body, in bytes.
pub(super) const MAX_HEAD: usize = 4096;
pub(super) const MAX_BODY: usize = 4096;
const MAX_HEADERS: usize = 32;

/// Methods that some route knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// GET.
    Get,
    /// HEAD.
    Head,
    /// PUT.
    Put,
    /// POST.
    Post,
    /// Any other.
    Other,
}

/// A complete request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Method.
    pub method: Method,
    /// Path without query.
    pub path: &'a str,
    /// Body.
    pub body: &'a [u8],
    /// Whether the connection stays open.
    pub keep_alive: bool,
    /// Bytes of head and body.
    pub(super) length: usize,
}

/// Why bytes are not a request, as a status to answer with. The connection
/// closes then, since the start of the next request is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rejected {
    /// 400.
    Malformed,
    /// 411: a body without a length.
    NoLength,
    /// 413.
    BodyTooLarge,
    /// 431.
    HeadTooLarge,
    /// 505.
    Version,
}

/// The first request in `bytes`; `None` while it is incomplete.
pub(super) fn parse(bytes: &[u8]) -> Result<Option<Request<'_>>, Rejected> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    let head = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(head)) if head <= MAX_HEAD => head,
        Ok(httparse::Status::Partial) if bytes.len() < MAX_HEAD => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(Rejected::HeadTooLarge),
        Err(httparse::Error::Version) => return Err(Rejected::Version),
        Err(_) => return Err(Rejected::Malformed),
    };
    let (Some(method), Some(target)) = (parsed.method, parsed.path) else {
        return Err(Rejected::Malformed);
    };
    let body = body_length(parsed.headers)?;
    if bytes.len() < head + body {
        return Ok(None);
    }
    Ok(Some(Request {
        method: Method::of(method),
        path: target.split_once('?').map_or(target, |(path, _)| path),
        body: &bytes[head..head + body],
        keep_alive: keeps_alive(parsed.headers, parsed.version),
        length: head + body,
    }))
}

impl Method {
    fn of(name: &str) -> Self {
        match name {
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            "PUT" => Self::Put,
            "POST" => Self::Post,
            _ => Self::Other,
        }
    }
}

/// The body's length; two different ones are an attack (RFC 9112, 6.3).
fn body_length(headers: &[httparse::Header<'_>]) -> Result<usize, Rejected> {
    if values(headers, "transfer-encoding").next().is_some() {
        return Err(Rejected::NoLength);
    }
    let mut length = None;
    for value in values(headers, "content-length") {
        let digits = value.bytes().all(|byte| byte.is_ascii_digit());
        if value.is_empty() || !digits || length.is_some() {
            return Err(Rejected::Malformed);
        }
        // A length that does not fit into a usize is too long as well.
        length = Some(value.parse().unwrap_or(usize::MAX));
    }
    match length.unwrap_or(0) {
        length if length > MAX_BODY => Err(Rejected::BodyTooLarge),
        length => Ok(length),
    }
}

fn keeps_alive(headers: &[httparse::Header<'_>], version: Option<u8>) -> bool {
    let says = |word: &str| {
        values(headers, "connection")
            .flat_map(|value| value.split(','))
            .any(|part| part.trim().eq_ignore_ascii_case(word))
    };
    match version {
        Some(0) => says("keep-alive"),
        _ => !says("close"),
    }
}

fn values<'a>(headers: &'a [httparse::Header<'_>], name: &'a str) -> impl Iterator<Item = &'a str> {
    headers
        .iter()
        .filter(move |header| header.name.eq_ignore_ascii_case(name))
        // A value that is not UTF-8 is neither a number nor a known word.
        .map(|header| std::str::from_utf8(header.value).unwrap_or("?").trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_complete_with_its_body() {
        let bytes = b"PUT /v1/stop?x HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}GET";
        let request = parse(bytes).unwrap().unwrap();
        assert_eq!(request.method, Method::Put);
        assert_eq!(request.path, "/v1/stop");
        assert_eq!(request.body, b"{}");
        assert!(request.keep_alive);
        assert_eq!(request.length, bytes.len() - 3);
        for end in 0..bytes.len() - 3 {
            assert_eq!(parse(&bytes[..end]).unwrap(), None, "{end}");
        }
    }

    #[test]
    fn connections_close_when_asked_to() {
        let keeps = |text: &str| parse(text.as_bytes()).unwrap().unwrap().keep_alive;
        assert!(!keeps("GET / HTTP/1.1\r\nConnection: x, Close\r\n\r\n"));
        assert!(!keeps("GET / HTTP/1.0\r\n\r\n"));
        assert!(keeps("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
    }

    #[test]
    fn what_is_too_long_or_ambiguous_is_rejected() {
        let rejected = |text: &str| parse(text.as_bytes()).unwrap_err();
        let put = |headers: &str| rejected(&format!("PUT / HTTP/1.1\r\n{headers}\r\n\r\n"));
        assert_eq!(put("Content-Length: 4097"), Rejected::BodyTooLarge);
        let huge = "Content-Length: 99999999999999999999999";
        assert_eq!(put(huge), Rejected::BodyTooLarge);
        assert_eq!(put("Content-Length: -1"), Rejected::Malformed);
        assert_eq!(put("Content-Length: +1"), Rejected::Malformed);
        let twice = "Content-Length: 1\r\nContent-Length: 2";
        assert_eq!(put(twice), Rejected::Malformed);
        assert_eq!(put("Transfer-Encoding: chunked"), Rejected::NoLength);
        assert_eq!(rejected("GET / HTTP/9.9\r\n\r\n"), Rejected::Version);
        assert_eq!(rejected("\0\0\0\0"), Rejected::Malformed);
        let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(MAX_HEAD));
        assert_eq!(rejected(&long), Rejected::HeadTooLarge);
        assert_eq!(put(&"a: b\r\n".repeat(40)), Rejected::HeadTooLarge);
    }
}
