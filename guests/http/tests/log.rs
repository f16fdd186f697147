//! The access log of whole connections.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;
use std::time::Duration;

use support::{Act, Run as _, Script, server};
use tare_guest_http::access_log::{AccessLog, Format};
use tare_guest_http::host::MemoryFiles;
use tare_guest_http::server::{Metrics, Server};

fn logged() -> (Server<MemoryFiles>, Arc<AccessLog>) {
    let log = Arc::new(AccessLog::new(Format::Combined));
    (server().with_log(Arc::clone(&log)), log)
}

/// The lines that wait, without client and time.
fn lines(log: &AccessLog) -> Vec<String> {
    let mut written = Vec::new();
    log.wait(&mut written);
    let text = String::from_utf8(written).unwrap();
    let behind_time = |line: &str| line.split_once("] ").unwrap().1.to_owned();
    text.lines().map(behind_time).collect()
}

fn send(bytes: &str) -> Act {
    Act::Send(bytes.into())
}

#[test]
fn every_answer_has_a_line_with_what_its_request_said() {
    let (server, log) = logged();
    let bytes = "GET /ten.txt?q HTTP/1.1\r\nHost: a\r\nUser-Agent: test\r\n\r\n\
        POST / HTTP/1.1\r\nHost: a\r\nReferer: r\r\nContent-Length: 3\r\n\r\nabc\
        HEAD /ten.txt HTTP/1.1\r\nHost: a\r\n\r\n\
        GET /ten.txt HTTP/1.1\r\nHost: a\r\nRange: bytes=2-4\r\n\r\n\
        GET / HTTP/1.1\r\nHost: a\nb\x1bc\r\n\r\n";
    Script::new([send(bytes)]).run(&server);
    let expected = [
        "\"GET /ten.txt?q HTTP/1.1\" 200 10 \"-\" \"test\"",
        "\"POST / HTTP/1.1\" 405 23 \"r\" \"-\"",
        "\"HEAD /ten.txt HTTP/1.1\" 200 0 \"-\" \"-\"",
        "\"GET /ten.txt HTTP/1.1\" 206 3 \"-\" \"-\"",
        "\"GET / HTTP/1.1\" 400 16 \"-\" \"-\"",
    ];
    assert_eq!(lines(&log), expected);
    assert_eq!(server.counters.logged.get(), 5);
}

#[test]
fn a_client_that_goes_away_or_says_nothing_sensible_has_its_line() {
    let (server, log) = logged();
    let get = "GET /big.bin HTTP/1.1\r\nHost: a\r\n\r\n";
    // Each send takes longer than is waited for it.
    let stalled = Script::new([send(get)]).slow(1000, Duration::from_secs(60));
    stalled.run(&server);
    let late = Act::Wait(Duration::from_secs(60));
    Script::new([send("GET /\x07 "), late]).run(&server);
    let expected = [
        "\"GET /big.bin HTTP/1.1\" 200 0 \"-\" \"-\"",
        "\"GET /\\x07 \" 400 16 \"-\" \"-\"",
    ];
    assert_eq!(lines(&log), expected);
}

#[test]
fn a_log_that_is_not_written_drops_lines_and_stops_no_request() {
    let (server, log) = logged();
    let server = server.with_metrics(Metrics::On);
    let get = "GET /ten.txt HTTP/1.1\r\nHost: a\r\n\r\n";
    let script = Script::new([send(&get.repeat(1000))]).run(&server);
    assert_eq!(support::responses(&script.sent, &[]).len(), 1000);
    let (kept, dropped) = (
        server.counters.logged.get(),
        server.counters.log_dropped.get(),
    );
    assert_eq!(kept + dropped, 1000);
    assert!(dropped > 0);
    let metrics = support::get(&server, "/metrics", "");
    let text = String::from_utf8(metrics.body).unwrap();
    let line = format!("http_access_log_dropped_total {dropped}\n");
    assert!(text.contains(&line), "{text}");
    assert_eq!(lines(&log).len() as u64, kept);
}
