use alloc::vec::Vec;

use proptest::prelude::*;
use tare_web::framing::Framing;

use super::*;

fn complete(head: &str) -> Request<'_> {
    match parse(head.as_bytes()) {
        Ok(Parsed::Complete(request, len)) => {
            assert_eq!(len, head.len());
            request
        }
        other => panic!("{head:?}: {other:?}"),
    }
}

fn refused(head: &str) -> Status {
    match parse(head.as_bytes()) {
        Err(status) => status,
        other => panic!("{head:?}: {other:?}"),
    }
}

/// A GET over 1.1 with these fields besides Host.
fn with(fields: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
}

#[test]
fn a_plain_request_is_understood() {
    let request = complete("GET /a?b HTTP/1.1\r\nHost: a.example:80\r\n\r\n");
    assert_eq!(request.method, Method::Get);
    assert_eq!(request.target, "/a?b");
    assert_eq!(request.version, Version::Http11);
    assert_eq!(request.persistence, Persistence::Keep);
    assert_eq!(request.body, Framing::Length(0));
    assert!(request.conditions.if_match.is_empty());
}

#[test]
fn the_head_ends_where_the_next_request_begins() {
    let bytes = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /second";
    let Ok(Parsed::Complete(_, len)) = parse(bytes) else {
        panic!("not complete");
    };
    assert_eq!(&bytes[len..], b"GET /second");
}

#[test]
fn methods_are_known_not_allowed_or_unknown() {
    assert_eq!(complete("HEAD / HTTP/1.0\r\n\r\n").method, Method::Head);
    assert_eq!(
        complete("OPTIONS * HTTP/1.0\r\n\r\n").method,
        Method::Options
    );
    for method in ["POST", "PUT", "DELETE", "PATCH", "TRACE"] {
        let head = format!("{method} / HTTP/1.0\r\n\r\n");
        assert_eq!(complete(&head).method, Method::NotAllowed);
    }
    assert_eq!(refused("BREW / HTTP/1.0\r\n\r\n"), Status::NotImplemented);
    assert_eq!(refused("get / HTTP/1.0\r\n\r\n"), Status::NotImplemented);
}

#[test]
fn persistence_follows_version_and_field() {
    for (version, field, expected) in [
        ("1.1", "", Persistence::Keep),
        ("1.1", "Connection: close\r\n", Persistence::Close),
        ("1.1", "connection: Upgrade, CLOSE\r\n", Persistence::Close),
        (
            "1.1",
            "Connection: a\r\nConnection: close\r\n",
            Persistence::Close,
        ),
        ("1.1", "Connection: closed\r\n", Persistence::Keep),
        ("1.0", "", Persistence::Close),
        (
            "1.0",
            "Connection: Keep-Alive\r\n",
            Persistence::KeepByRequest,
        ),
        (
            "1.0",
            "Connection: keep-alive, close\r\n",
            Persistence::Close,
        ),
    ] {
        let head = format!("GET / HTTP/{version}\r\nHost: a\r\n{field}\r\n");
        assert_eq!(complete(&head).persistence, expected, "{head:?}");
    }
}

#[test]
fn a_host_is_needed_once_and_well_formed() {
    assert_eq!(refused("GET / HTTP/1.1\r\n\r\n"), Status::BadRequest);
    assert_eq!(refused(&with("Host: b\r\n")), Status::BadRequest);
    assert_eq!(
        refused("GET / HTTP/1.1\r\nHost: a b\r\n\r\n"),
        Status::BadRequest
    );
    assert_eq!(
        refused("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"),
        Status::BadRequest
    );
    assert_eq!(
        refused("GET / HTTP/1.1\r\nHost:\r\n\r\n"),
        Status::BadRequest
    );
    complete("GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n");
    complete("GET / HTTP/1.0\r\n\r\n");
}

#[test]
fn bodies_are_framed_in_one_way_only() {
    assert_eq!(
        complete(&with("Content-Length: 5\r\n")).body,
        Framing::Length(5)
    );
    let same_twice = "Content-Length: 5\r\nContent-Length: 5\r\n";
    assert_eq!(complete(&with(same_twice)).body, Framing::Length(5));
    let chunked = "Transfer-Encoding: Chunked\r\n";
    assert_eq!(complete(&with(chunked)).body, Framing::Chunked);
    for (fields, status) in [
        (
            "Content-Length: 5\r\nContent-Length: 6\r\n",
            Status::BadRequest,
        ),
        ("Content-Length: 5, 5\r\n", Status::BadRequest),
        ("Content-Length: +5\r\n", Status::BadRequest),
        ("Content-Length: -5\r\n", Status::BadRequest),
        ("Content-Length: 0x5\r\n", Status::BadRequest),
        ("Content-Length:\r\n", Status::BadRequest),
        (
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            Status::BadRequest,
        ),
        (
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
            Status::BadRequest,
        ),
        (
            "Transfer-Encoding: identity\r\nContent-Length: 5\r\n",
            Status::BadRequest,
        ),
        ("Transfer-Encoding: gzip\r\n", Status::BadRequest),
        ("Transfer-Encoding: chunked, gzip\r\n", Status::BadRequest),
        ("Transfer-Encoding:\r\n", Status::BadRequest),
        (
            "Transfer-Encoding: gzip, chunked\r\n",
            Status::NotImplemented,
        ),
        (
            "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
            Status::NotImplemented,
        ),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            Status::BadRequest,
        ),
        ("Transfer-Encoding: xchunked\r\n", Status::BadRequest),
    ] {
        assert_eq!(refused(&with(fields)), status, "{fields:?}");
    }
    let old = "GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(refused(old), Status::BadRequest);
}

#[test]
fn what_smugglers_send_is_refused() {
    for fields in [
        "A: b\r\n c\r\n",
        "A: b\r\n\tc\r\n",
        "Content-Length : 5\r\n",
        " Content-Length: 5\r\n",
        "Transfer-Encoding\u{b}: chunked\r\n",
        "A: b\rContent-Length: 5\r\n",
        "A\0: b\r\n",
        "A: \0\r\n",
        ": b\r\n",
        "no colon\r\n",
    ] {
        assert_eq!(refused(&with(fields)), Status::BadRequest, "{fields:?}");
    }
}

#[test]
fn other_versions_get_505_and_other_protocols_400() {
    for (head, status) in [
        ("GET / HTTP/2.0\r\n\r\n", Status::VersionNotSupported),
        (
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            Status::VersionNotSupported,
        ),
        ("GET / HTTP/0.9\r\n\r\n", Status::VersionNotSupported),
        ("GET / HTTPS/1.1\r\n\r\n", Status::BadRequest),
        ("GET / http/1.1\r\n\r\n", Status::BadRequest),
        ("GET /\r\n\r\n", Status::BadRequest),
        ("GET  / HTTP/1.1\r\n\r\n", Status::BadRequest),
        ("GET /pa th HTTP/1.1\r\n\r\n", Status::BadRequest),
        ("GET /pa th HTTP/1.2\r\n\r\n", Status::BadRequest),
        ("GET  / HTTP/1.2\r\n\r\n", Status::BadRequest),
        ("GET / HTTP/1.2\r\n\r\n", Status::BadRequest),
        ("GET / HTTP/1.10\r\n\r\n", Status::BadRequest),
        ("\u{16}\u{3}\u{1}\r\n\r\n", Status::BadRequest),
    ] {
        assert_eq!(refused(head), status, "{head:?}");
    }
}

#[test]
fn a_later_minor_version_means_what_1_1_would() {
    let head = "GET /a HTTP/1.2\r\nHost: a\r\nConnection: close\r\n\r\n";
    let request = complete(head);
    assert_eq!(request.target, "/a");
    assert_eq!(request.version, Version::Http11);
    assert_eq!(request.persistence, Persistence::Close);
    for cut in 0..head.len() {
        let partial = parse(&head.as_bytes()[..cut]);
        assert_eq!(partial, Ok(Parsed::Partial), "{cut} bytes");
    }
    let fields = "A: b\r\n".repeat(MAX_FIELDS);
    let head = format!("GET / HTTP/1.9\r\nHost: a\r\n{fields}\r\n");
    assert_eq!(refused(&head), Status::HeaderFieldsTooLarge);
    let head = "GET / HTTP/1.3\r\nHost: a\r\nA b\r\n\r\n";
    assert_eq!(refused(head), Status::BadRequest);
}

#[test]
fn too_many_fields_and_too_long_targets_are_refused() {
    complete(&with(&"A: b\r\n".repeat(MAX_FIELDS - 1)));
    let fields = with(&"A: b\r\n".repeat(MAX_FIELDS));
    assert_eq!(refused(&fields), Status::HeaderFieldsTooLarge);
    let target = format!("GET /{} HTTP/1.0\r\n\r\n", "a".repeat(MAX_TARGET));
    assert_eq!(refused(&target), Status::UriTooLong);
}

#[test]
fn only_one_expectation_is_known() {
    assert!(complete(&with("Expect: 100-Continue\r\n")).expects_continue);
    assert_eq!(
        refused(&with("Expect: 200-ok\r\n")),
        Status::ExpectationFailed
    );
    let old = "GET / HTTP/1.0\r\nExpect: 100-continue\r\n\r\n";
    assert!(
        !complete(old).expects_continue,
        "1.0 clients must not get 100"
    );
}

#[test]
fn conditions_and_ranges_are_gathered() {
    let head = with(
        "IF-NONE-MATCH: \"a\"\r\nIf-None-Match: \"b\"\r\nIf-Match: *\r\n\
         If-Modified-Since: x\r\nIf-Unmodified-Since: y\r\nIf-Range: z\r\nRange: bytes=0-1\r\n",
    );
    let request = complete(&head);
    let tags: Vec<_> = request.conditions.if_none_match.iter().collect();
    assert_eq!(tags, [b"\"a\"", b"\"b\""]);
    assert_eq!(request.conditions.if_match.iter().count(), 1);
    assert_eq!(request.conditions.if_modified_since, Some(&b"x"[..]));
    assert_eq!(request.conditions.if_unmodified_since, Some(&b"y"[..]));
    assert_eq!(request.if_range, Some(&b"z"[..]));
    assert_eq!(request.range, Some(&b"bytes=0-1"[..]));
    let twice = with("Range: bytes=0-1\r\nRange: bytes=2-3\r\n");
    assert_eq!(complete(&twice).range, None);
    let thrice = with("Range: a\r\nRange: b\r\nRange: c\r\n");
    assert_eq!(complete(&thrice).range, None);
}

proptest! {
    #[test]
    fn no_bytes_crash_it(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&bytes);
    }

    #[test]
    fn no_damage_crashes_it(at in 0..80usize, byte in any::<u8>()) {
        let mut head = with("Content-Length: 5\r\nRange: bytes=1-2\r\nExpect: 100-continue\r\n").into_bytes();
        if let Some(slot) = head.get_mut(at) {
            *slot = byte;
        }
        let _ = parse(&head);
    }

    #[test]
    fn a_prefix_is_partial(cut in 0..48usize) {
        let head = "GET /file HTTP/1.1\r\nHost: a\r\nAccept: text/*\r\n\r\n";
        prop_assert_eq!(head.len(), 47);
        let cut = cut.min(46);
        prop_assert_eq!(parse(&head.as_bytes()[..cut]), Ok(Parsed::Partial));
    }
}
