//! What RFC 9110, 9112 and 3986 ask of a server, by section: the status of a request
//! and whether the connection outlives it. The cases are in `conformance.txt`. Each is
//! followed by a second request on the same connection, so that a body taken for a
//! request would show.

#![allow(clippy::unwrap_used)]

mod support;

use support::{Act, Run as _, Script, ask, responses, server};

/// A line of the file.
struct Case {
    /// Section and what, for messages.
    name: &'static str,
    bytes: Vec<u8>,
    status: u16,
    /// Whether the next request is answered.
    is_kept: bool,
}

const NEXT: &str = "GET /ten.txt HTTP/1.1\r\nHost: next\r\n\r\n";

/// The cases of a group; of which all begin with `head`.
fn cases(group: &str, head: &str) -> Vec<Case> {
    let title = format!("[{group}]");
    let lines = include_str!("conformance.txt").lines();
    let lines = lines.skip_while(|line| *line != title).skip(1);
    let lines = lines.take_while(|line| !line.starts_with('['));
    let cases = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let cases: Vec<Case> = cases.map(|line| case(line, head)).collect();
    assert!(!cases.is_empty(), "no group {group}");
    cases
}

fn case(line: &'static str, head: &str) -> Case {
    let (rest, bytes) = line.rsplit_once(" | ").unwrap();
    let (name, outcome) = rest.rsplit_once(" | ").unwrap();
    let (status, connection) = outcome.split_once(' ').unwrap();
    assert!(matches!(connection, "kept" | "closed"), "{line}");
    Case {
        name,
        bytes: [head.as_bytes(), &unescape(bytes)].concat(),
        status: status.parse().unwrap(),
        is_kept: connection == "kept",
    }
}

/// The bytes that a text of the file stands for.
fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        match rest.next().unwrap() {
            b'r' => bytes.push(b'\r'),
            b'n' => bytes.push(b'\n'),
            b't' => bytes.push(b'\t'),
            b'0' => bytes.push(0),
            b'\\' => bytes.push(b'\\'),
            b'x' => {
                let digits = [rest.next().unwrap(), rest.next().unwrap()];
                let digits = str::from_utf8(&digits).unwrap();
                bytes.push(u8::from_str_radix(digits, 16).unwrap());
            }
            b'(' => {
                let count: Vec<u8> = rest.by_ref().take_while(|byte| *byte != b' ').collect();
                let count: usize = str::from_utf8(&count).unwrap().parse().unwrap();
                let repeated = rest.next().unwrap();
                bytes.resize(bytes.len() + count, repeated);
                assert_eq!(rest.next(), Some(b')'), "{text}");
            }
            other => panic!("unknown escape {:?} in {text}", char::from(other)),
        }
    }
    bytes
}

fn check(group: &str) {
    check_with(group, "");
}

fn check_with(group: &str, head: &str) {
    for case in cases(group, head) {
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
    check_with(
        "codings",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: ",
    );
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
