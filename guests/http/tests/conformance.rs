//! What RFC 9110, 9112 and 3986 ask of a server, by section: the status of a request
//! and whether the connection outlives it. The cases are in `conformance.txt`. Each is
//! followed by a second request on the same connection, so that a body taken for a
//! request would show.

mod support;

use support::cases::cases;
use support::{Act, Run as _, Script, ask, responses, server};

const NEXT: &str = "GET /ten.txt HTTP/1.1\r\nHost: next\r\n\r\n";

fn check(group: &str) {
    for case in cases(group) {
        let bytes = [&case.bytes, NEXT.as_bytes()].concat();
        let script = Script::new([Act::Send(bytes)]).run(&server());
        let answers = responses(&script.sent, &[]);
        let name = case.name;
        assert_eq!(answers[0].status, case.status, "{name}");
        assert_eq!(answers.len(), if case.is_kept { 2 } else { 1 }, "{name}");
        if case.is_kept {
            assert_eq!(answers[1].body, b"0123456789", "{name}");
        } else {
            assert_eq!(answers[0].field("Connection"), Some("close"), "{name}");
        }
    }
}

#[test]
fn request_lines() {
    check("request_lines");
}

#[test]
fn targets() {
    check("targets");
}

#[test]
fn hosts() {
    check("hosts");
}

#[test]
fn fields() {
    check("fields");
}

#[test]
fn lengths() {
    check("lengths");
}

#[test]
fn codings() {
    check("codings");
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
    check("options");
}
