//! What RFC 9110, 9112 and 3986 ask of a server, by section: the status of a request
//! and whether the connection outlives it. Each case is followed by a second request
//! on the same connection, so that a body taken for a request would show.

#![allow(clippy::unwrap_used)]

mod support;

use support::{ask, server};

/// What a case comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// The next request is answered.
    Kept,
    /// The connection ends.
    Closed,
}
use Then::{Closed, Kept};

/// Section, bytes, status, and what becomes of the connection.
type Case = (&'static str, &'static str, u16, Then);

const NEXT: &str = "GET /ten.txt HTTP/1.1\r\nHost: next\r\n\r\n";

fn check(cases: &[Case]) {
    for &(section, bytes, status, then) in cases {
        let answers = ask(&server(), &format!("{bytes}{NEXT}"));
        let expected = if then == Kept { 2 } else { 1 };
        assert_eq!(answers[0].status, status, "{section}: {bytes:?}");
        assert_eq!(answers.len(), expected, "{section}: {bytes:?}");
        if then == Closed {
            let field = answers[0].field("Connection");
            assert_eq!(field, Some("close"), "{section}: {bytes:?}");
        } else {
            assert_eq!(answers[1].body, b"0123456789", "{section}: {bytes:?}");
        }
    }
}

#[test]
fn request_lines() {
    check(&[
        (
            "9112 2.2 empty lines first",
            "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
            200,
            Kept,
        ),
        (
            "9112 2.2 bare CR",
            "GET / HTTP/1.1\rHost: a\r\n\r\n",
            400,
            Closed,
        ),
        (
            "9112 3 space in target",
            "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
            400,
            Closed,
        ),
        (
            "9112 3 two spaces",
            "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
            400,
            Closed,
        ),
        (
            "9112 3 no target",
            "GET HTTP/1.1\r\nHost: a\r\n\r\n",
            400,
            Closed,
        ),
        (
            "9112 3 tab",
            "GET\t/\tHTTP/1.1\r\nHost: a\r\n\r\n",
            400,
            Closed,
        ),
        (
            "9112 2.3 lower case",
            "GET / http/1.1\r\nHost: a\r\n\r\n",
            400,
            Closed,
        ),
        (
            "9110 2.5 later minor",
            "GET / HTTP/1.2\r\nHost: a\r\n\r\n",
            200,
            Kept,
        ),
        (
            "9110 2.5 other major",
            "GET / HTTP/3.0\r\nHost: a\r\n\r\n",
            505,
            Closed,
        ),
        (
            "9110 9.1 unknown",
            "FOO / HTTP/1.1\r\nHost: a\r\n\r\n",
            501,
            Closed,
        ),
        (
            "9110 9.1 case",
            "get / HTTP/1.1\r\nHost: a\r\n\r\n",
            501,
            Closed,
        ),
        (
            "9110 15.5.6 known",
            "POST / HTTP/1.1\r\nHost: a\r\n\r\n",
            405,
            Kept,
        ),
        (
            "9112 2.1 line feed alone",
            "GET / HTTP/1.1\nHost: a\n\n",
            200,
            Kept,
        ),
        (
            "9112 3 leading space",
            " GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            400,
            Closed,
        ),
        (
            "9112 3 trailing space",
            "GET / HTTP/1.1 \r\nHost: a\r\n\r\n",
            400,
            Closed,
        ),
        (
            "9112 2.3 no minor",
            "GET / HTTP/1\r\nHost: a\r\n\r\n",
            400,
            Closed,
        ),
        (
            "9112 2.3 two digits",
            "GET / HTTP/1.10\r\nHost: a\r\n\r\n",
            400,
            Closed,
        ),
        ("9112 2.3 no version", "GET /\r\n\r\n", 400, Closed),
        (
            "9110 9.3.6 CONNECT",
            "CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n",
            405,
            Kept,
        ),
    ]);
}

#[test]
fn targets() {
    check(&[
        (
            "9112 3.2.2 absolute",
            "GET http://a/ten.txt HTTP/1.1\r\nHost: b\r\n\r\n",
            200,
            Kept,
        ),
        (
            "9110 4.2.1 no host",
            "GET http:///ten.txt HTTP/1.1\r\nHost: a\r\n\r\n",
            400,
            Kept,
        ),
        (
            "9110 4.2.4 user",
            "GET http://u:p@a/ HTTP/1.1\r\nHost: a\r\n\r\n",
            400,
            Kept,
        ),
        (
            "9112 3.2.4 asterisk",
            "GET * HTTP/1.1\r\nHost: a\r\n\r\n",
            400,
            Kept,
        ),
        (
            "9112 3.2 fragment",
            "GET /#a HTTP/1.1\r\nHost: a\r\n\r\n",
            400,
            Kept,
        ),
        (
            "3986 2.1 escape",
            "GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n",
            400,
            Kept,
        ),
        (
            "3986 2.1 cut escape",
            "GET /%1 HTTP/1.1\r\nHost: a\r\n\r\n",
            400,
            Kept,
        ),
        (
            "3986 6.2.2.3 dots",
            "GET /docs/../ten.txt HTTP/1.1\r\nHost: a\r\n\r\n",
            200,
            Kept,
        ),
        (
            "root",
            "GET /../../etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n",
            400,
            Kept,
        ),
        (
            "9110 4.1 control",
            "GET /a\u{1}b HTTP/1.1\r\nHost: a\r\n\r\n",
            400,
            Closed,
        ),
        (
            "9112 3.2.3 authority",
            "GET a:80 HTTP/1.1\r\nHost: a\r\n\r\n",
            400,
            Kept,
        ),
        (
            "3986 2.1 NUL",
            "GET /a%00b HTTP/1.1\r\nHost: a\r\n\r\n",
            400,
            Kept,
        ),
    ]);
}

#[test]
fn a_request_line_may_have_8000_octets() {
    let line = "GET /ten.txt? HTTP/1.1".len();
    for (octets, status) in [(5_000, 200), (8_000, 200), (9_000, 414)] {
        let query = "q".repeat(octets - line);
        let bytes = format!("GET /ten.txt?{query} HTTP/1.1\r\nHost: a\r\n\r\n{NEXT}");
        let answers = ask(&server(), &bytes);
        assert_eq!(answers[0].status, status, "9112 3: {octets}");
    }
}

#[test]
fn hosts() {
    check(&[
        ("9112 3.2 missing", "GET / HTTP/1.1\r\n\r\n", 400, Closed),
        (
            "9112 3.2 twice",
            "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
            400,
            Closed,
        ),
        (
            "9112 3.2 empty",
            "GET / HTTP/1.1\r\nHost:\r\n\r\n",
            400,
            Closed,
        ),
        (
            "9112 3.2 dots",
            "GET / HTTP/1.1\r\nHost: ..\r\n\r\n",
            400,
            Closed,
        ),
        (
            "9112 3.2 user",
            "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n",
            400,
            Closed,
        ),
        (
            "9112 3.2 path",
            "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
            400,
            Closed,
        ),
        (
            "9112 3.2 list",
            "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n",
            400,
            Closed,
        ),
        (
            "9110 7.2 port",
            "GET / HTTP/1.1\r\nHost: a:http\r\n\r\n",
            400,
            Closed,
        ),
        (
            "3986 3.2.2 IPv6",
            "GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n",
            200,
            Kept,
        ),
    ]);
}

#[test]
fn fields() {
    check(&[
        (
            "9112 5.1 space",
            "GET / HTTP/1.1\r\nHost: a\r\nA : b\r\n\r\n",
            400,
            Closed,
        ),
        (
            "9112 5.2 folded",
            "GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n c\r\n\r\n",
            400,
            Closed,
        ),
        (
            "9112 2.2 indented",
            "GET / HTTP/1.1\r\n Host: a\r\n\r\n",
            400,
            Closed,
        ),
        (
            "9110 5.1 no name",
            "GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n",
            400,
            Closed,
        ),
        (
            "9110 5.1 no colon",
            "GET / HTTP/1.1\r\nHost: a\r\nA\r\n\r\n",
            400,
            Closed,
        ),
        (
            "9110 5.5 NUL",
            "GET / HTTP/1.1\r\nHost: a\r\nA: \0\r\n\r\n",
            400,
            Closed,
        ),
        (
            "9110 5.5 control",
            "GET / HTTP/1.1\r\nHost: a\r\nA: \u{1}\r\n\r\n",
            400,
            Closed,
        ),
        (
            "9110 5.5 empty",
            "GET / HTTP/1.1\r\nHost: a\r\nA:\r\n\r\n",
            200,
            Kept,
        ),
        (
            "9110 10.1.1",
            "GET / HTTP/1.1\r\nHost: a\r\nExpect: tea\r\n\r\n",
            417,
            Closed,
        ),
        (
            "9112 9.6 close",
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
            200,
            Closed,
        ),
    ]);
}

#[test]
fn lengths() {
    check(&[
        (
            "9112 6.3 same",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
            405,
            Kept,
        ),
        (
            "9112 6.3 differ",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
            400,
            Closed,
        ),
        (
            "9110 8.6 list",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\nx",
            400,
            Closed,
        ),
        (
            "9110 8.6 sign",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\nx",
            400,
            Closed,
        ),
        (
            "9110 8.6 negative",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\nx",
            400,
            Closed,
        ),
        (
            "9110 8.6 hex",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x1\r\n\r\nx",
            400,
            Closed,
        ),
        (
            "9110 8.6 space",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1 1\r\n\r\nx",
            400,
            Closed,
        ),
        (
            "9110 8.6 empty",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n",
            400,
            Closed,
        ),
        (
            "9110 8.6 zeros",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 001\r\n\r\nx",
            405,
            Kept,
        ),
        (
            "9110 15.5.14",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999\r\n\r\n",
            413,
            Closed,
        ),
        (
            "9112 6.1 both",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
            Closed,
        ),
        (
            "9110 8.6 overflow",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n",
            400,
            Closed,
        ),
        (
            "9110 8.6 underscore",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1_0\r\n\r\n",
            400,
            Closed,
        ),
        (
            "9112 6.1 1.0",
            "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
            Closed,
        ),
    ]);
}

#[test]
fn codings() {
    const HEAD: &str = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: ";
    for (section, rest, status, then) in [
        ("9112 7.1 case", "CHUNKED\r\n\r\n0\r\n\r\n", 405, Kept),
        (
            "9112 6.3 not last",
            "chunked, gzip\r\n\r\n0\r\n\r\n",
            400,
            Closed,
        ),
        ("9112 6.1 prefix", "xchunked\r\n\r\n0\r\n\r\n", 400, Closed),
        (
            "9112 7.1 underscore",
            "chunked\r\n\r\n1_0\r\nabc\r\n",
            400,
            Closed,
        ),
        (
            "9112 7.1 leading space",
            "chunked\r\n\r\n 3\r\nabc\r\n",
            400,
            Closed,
        ),
        (
            "9112 7.1 no size",
            "chunked\r\n\r\n;a\r\nabc\r\n",
            400,
            Closed,
        ),
        (
            "9112 7.1 too short",
            "chunked\r\n\r\n4\r\nabc\r\n0\r\n\r\n",
            400,
            Closed,
        ),
        ("9112 6.3 none", "gzip\r\n\r\n0\r\n\r\n", 400, Closed),
        (
            "9112 6.3 identity",
            "identity\r\n\r\n0\r\n\r\n",
            400,
            Closed,
        ),
        (
            "9112 6.1 twice",
            "chunked, chunked\r\n\r\n0\r\n\r\n",
            400,
            Closed,
        ),
        (
            "9112 6.1 unknown",
            "gzip, chunked\r\n\r\n0\r\n\r\n",
            501,
            Closed,
        ),
        (
            "9112 6.1 quoted",
            "\"chunked\"\r\n\r\n0\r\n\r\n",
            400,
            Closed,
        ),
        ("9112 6.1 empty", "\r\n\r\n0\r\n\r\n", 400, Closed),
        (
            "9112 7.1",
            "chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            405,
            Kept,
        ),
        (
            "9112 7.1 size",
            "chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n",
            400,
            Closed,
        ),
        (
            "9112 7.1 sign",
            "chunked\r\n\r\n+3\r\nabc\r\n0\r\n\r\n",
            400,
            Closed,
        ),
        (
            "9112 7.1 too long",
            "chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n",
            400,
            Closed,
        ),
        (
            "9112 7.1 line feed",
            "chunked\r\n\r\n3\nabc\r\n0\r\n\r\n",
            400,
            Closed,
        ),
        (
            "9112 7.1 overflow",
            "chunked\r\n\r\n11111111111111111\r\n",
            400,
            Closed,
        ),
        (
            "9112 7.1.1 extension",
            "chunked\r\n\r\n3;a=\"b\"\r\nabc\r\n0\r\n\r\n",
            405,
            Kept,
        ),
        (
            "9112 7.1.1 control",
            "chunked\r\n\r\n3;a\u{1}\r\nabc\r\n0\r\n\r\n",
            400,
            Closed,
        ),
        (
            "9112 7.1.1 NUL",
            "chunked\r\n\r\n3;\0\r\nabc\r\n0\r\n\r\n",
            400,
            Closed,
        ),
        (
            "9112 7.1.2 trailer",
            "chunked\r\n\r\n0\r\nA: b\r\n\r\n",
            405,
            Kept,
        ),
        (
            "9112 7.1.2 control",
            "chunked\r\n\r\n0\r\nA: \u{1}\r\n\r\n",
            400,
            Closed,
        ),
    ] {
        let bytes: &'static str = format!("{HEAD}{rest}").leak();
        check(&[(section, bytes, status, then)]);
    }
}

#[test]
fn options() {
    let server = server();
    for target in ["*", "/ten.txt", "/nothing"] {
        let answers = ask(
            &server,
            &format!("OPTIONS {target} HTTP/1.1\r\nHost: a\r\n\r\n{NEXT}"),
        );
        assert_eq!(answers[0].status, 200, "9110 9.3.7: {target}");
        assert_eq!(answers[0].field("Allow"), Some("GET, HEAD, OPTIONS"));
        assert_eq!(answers[0].field("Content-Length"), Some("0"));
        assert_eq!(answers.len(), 2, "{target}");
    }
    check(&[
        (
            "9110 9.3.7 root",
            "OPTIONS /.. HTTP/1.1\r\nHost: a\r\n\r\n",
            400,
            Kept,
        ),
        (
            "9110 9.3.7 body",
            "OPTIONS * HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
            200,
            Kept,
        ),
    ]);
}
