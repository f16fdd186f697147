//! Connections over a scripted client with its own clock: no test waits.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use tare_libos::serve::script::Script;
use tare_web::connection::converse;
use tare_web::{Request, Response, limits};

/// A client, and what it is answered.
trait Talk {
    /// Says what was answered, dates left out.
    fn talk(&mut self) -> String;
}

impl Talk for Script {
    fn talk(&mut self) -> String {
        converse(&mut *self, &answer);
        assert!(!self.unbounded);
        let text = String::from_utf8(self.sent.clone()).unwrap();
        let undated: Vec<&str> = text
            .split_inclusive('\n')
            .filter(|line| !line.starts_with("Date: "))
            .collect();
        undated.concat()
    }
}

/// Repeats method, path and body.
fn answer(request: &Request) -> Response {
    let body = String::from_utf8_lossy(request.body());
    Response::text(format!("{} {} {body}", request.method(), request.path()))
}

fn ok(body: &str, closes: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n{closes}\r\n{body}",
        body.len()
    )
}

const CLOSE: &str = "Connection: close\r\n";

#[test]
fn pipelined_requests_are_answered_in_order() {
    let text = "\r\nGET /1 HTTP/1.1\r\nHost: a\r\n\r\n\
                POST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc\
                GET /3 HTTP/1.1\r\nHost: a\r\n\r\n";
    let expected = ["GET /1 ", "POST /2 abc", "GET /3 "].map(|body| ok(body, ""));
    assert_eq!(Script::sending([text]).talk(), expected.concat());
    // However the bytes come.
    let bytes = text.as_bytes().chunks(1);
    assert_eq!(Script::sending(bytes).talk(), expected.concat());
}

#[test]
fn a_connection_ends_where_the_client_says_so() {
    for text in [
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET /2 HTTP/1.1\r\n",
        "GET / HTTP/1.0\r\n\r\nmore",
    ] {
        let mut client = Script::sending([text]);
        assert_eq!(client.talk(), ok("GET / ", CLOSE));
        assert!(client.finished);
    }
}

#[test]
fn head_gets_the_length_and_no_body() {
    let answers = Script::sending(["HEAD /a HTTP/1.1\r\nHost: a\r\n\r\n"]).talk();
    assert!(answers.contains("Content-Length: 8\r\n"), "{answers}");
    assert!(answers.ends_with("\r\n\r\n"), "{answers}");
}

#[test]
fn a_client_that_waits_to_send_its_body_may_send_it() {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n";
    let answers = Script::sending([head, "hi"]).talk();
    let expected = format!("HTTP/1.1 100 Continue\r\n\r\n{}", ok("POST / hi", ""));
    assert_eq!(answers, expected);
}

#[test]
fn the_largest_body_arrives_and_a_larger_one_is_refused() {
    let head = |len| format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n");
    let body = "x".repeat(limits::MAX_BODY);
    let answers = Script::sending([head(body.len()), body.clone()]).talk();
    assert_eq!(answers, ok(&format!("POST / {body}"), ""));
    let answers = Script::sending([head(limits::MAX_BODY + 1)]).talk();
    assert!(answers.starts_with("HTTP/1.1 413 "), "{answers}");
}

const CHUNKED: &str = "POST /1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

#[test]
fn chunks_make_one_body() {
    let text = format!(
        "{CHUNKED}4;name=\"v\"\r\nWiki\r\n5\r\npedia\r\n0\r\nExpires: never\r\n\r\n\
         {CHUNKED}0\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n"
    );
    let expected = ["POST /1 Wikipedia", "POST /1 ", "GET /2 "].map(|body| ok(body, ""));
    assert_eq!(Script::sending([&text]).talk(), expected.concat());
    assert_eq!(
        Script::sending(text.as_bytes().chunks(1)).talk(),
        expected.concat()
    );
}

#[test]
fn chunks_have_the_same_limit_as_a_counted_body() {
    let chunk = format!("8000\r\n{}\r\n", "x".repeat(0x8000));
    let most = chunk.repeat(limits::MAX_BODY / 0x8000);
    let answers = Script::sending([format!("{CHUNKED}{most}0\r\n\r\n")]).talk();
    assert_eq!(
        answers,
        ok(&format!("POST /1 {}", "x".repeat(limits::MAX_BODY)), "")
    );
    let answers = Script::sending([format!("{CHUNKED}{most}1\r\n")]).talk();
    assert!(answers.starts_with("HTTP/1.1 413 "), "{answers}");
    // Before the bytes come that it announces.
    let answers = Script::sending([format!("{CHUNKED}100001\r\n")]).talk();
    assert!(answers.starts_with("HTTP/1.1 413 "), "{answers}");
}

#[test]
fn chunk_framing_that_is_wrong_or_endless_is_refused() {
    let long = "y".repeat(limits::MAX_FRAMING + 1);
    for (chunks, status) in [
        ("x\r\n", 400),
        ("1\r\nab\r\n", 400),
        ("1\nab\r\n", 400),
        ("00000000000000001\r\n", 400),
        ("0\r\nA: b\n", 400),
        (&format!("1;{long}"), 431),
        (&format!("0\r\nA: {long}"), 431),
    ] {
        let mut client = Script::sending([format!("{CHUNKED}{chunks}")]);
        let answers = client.talk();
        let expected = format!("HTTP/1.1 {status} ");
        assert!(answers.starts_with(&expected), "{answers}");
        assert!(answers.contains(CLOSE) && client.finished, "{answers}");
    }
}

#[test]
fn a_client_may_not_hold_on_by_dripping_chunks() {
    let mut client = Script::sending(
        [CHUNKED.to_owned()]
            .into_iter()
            .chain(std::iter::repeat_n("1\r\nx\r\n".to_owned(), 1000)),
    )
    .pausing(Duration::from_secs(1));
    let answers = client.talk();
    assert!(answers.starts_with("HTTP/1.1 408 "), "{answers}");
    let longest = limits::BODY + limits::LINGER + Duration::from_secs(3);
    assert!(client.elapsed() < longest, "{:?}", client.elapsed());
}

#[test]
fn a_head_without_end_is_refused() {
    let line = format!("A: {}\r\n", "b".repeat(1000));
    let mut client = Script::sending(["GET / HTTP/1.1\r\nHost: a\r\n".to_owned(), line.repeat(17)]);
    let answers = client.talk();
    assert!(answers.starts_with("HTTP/1.1 431 "), "{answers}");
    assert!(answers.contains(CLOSE) && client.finished);
    // Also one whose end arrives with what is too much.
    let long = format!("A: {}\r\n", "b".repeat(limits::MAX_HEAD));
    let answers = Script::sending([format!("GET / HTTP/1.1\r\nHost: a\r\n{long}\r\n")]).talk();
    assert!(answers.starts_with("HTTP/1.1 431 "), "{answers}");
}

#[test]
fn a_head_is_judged_line_by_line_however_its_bytes_come() {
    let fill = format!("A: {}\r\n", "b".repeat(limits::MAX_HEAD));
    for (text, status) in [
        ("GET / HTTP/1.1\r\nHo\u{1}".to_owned(), None),
        ("GET / HTTP/1.1\r\nHo\u{1}\r\n".to_owned(), Some("400")),
        (format!("GET / HTTP/1.1\r\n{fill}Ho\u{1}\r\n"), Some("431")),
        (format!("GET / HTTP/1.1\r\n{fill}\r\n"), Some("431")),
    ] {
        for piece in [1, 3, usize::MAX] {
            let answer = Script::sending([&text]).in_pieces(piece).talk();
            assert_eq!(answer.split(' ').nth(1), status, "{piece} bytes each");
        }
    }
}

#[test]
fn a_client_may_not_hold_on_by_dripping() {
    let mut client = Script::sending(
        "GET / HTTP/1.1\r\nHost: a\r\nX: yyyyyyy"
            .as_bytes()
            .chunks(1),
    )
    .pausing(Duration::from_secs(1));
    let answers = client.talk();
    assert!(answers.starts_with("HTTP/1.1 408 "), "{answers}");
    assert!(client.elapsed() < limits::HEAD + limits::LINGER + Duration::from_secs(2));

    let mut silent = Script::sending(["GET"]).pausing(limits::IDLE + Duration::from_secs(1));
    assert_eq!(silent.talk(), "");
}

#[test]
fn a_client_may_not_hold_on_by_reading_slowly() {
    let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut client = Script::sending([request]).slow(1, Duration::from_secs(5));
    client.talk();
    assert!(client.elapsed() < limits::WRITE + Duration::from_secs(6));
    assert!(client.sent.len() < 10);
}

#[test]
fn refused_requests_say_why_and_close() {
    for (text, status) in [
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("hello\r\n", 400),
        ("GET / HTTP/3.0\r\nHost: a\r\n\r\n", 505),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            501,
        ),
        ("POST / HTTP/1.1\r\nHost: a\r\nExpect: cake\r\n\r\n", 417),
    ] {
        let mut client = Script::sending([text]);
        let answers = client.talk();
        assert!(
            answers.starts_with(&format!("HTTP/1.1 {status} ")),
            "{answers}"
        );
        assert!(answers.contains(CLOSE) && client.finished, "{answers}");
    }
}
