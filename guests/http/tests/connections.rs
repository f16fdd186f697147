//! How connections live and end: pipelining, bodies, slow and broken clients.

mod support;

use std::time::Duration;

use proptest::prelude::*;
use support::{Act, Run as _, Script, ask, big, responses, server};
use tare_guest_http::connection;

const GET: &str = "GET /ten.txt HTTP/1.1\r\nHost: a\r\n\r\n";

const fn seconds(n: u64) -> Act {
    Act::Wait(Duration::from_secs(n))
}

fn send(bytes: &str) -> Act {
    Act::Send(bytes.into())
}

fn statuses(script: &Script) -> Vec<u16> {
    responses(&script.sent, &[])
        .iter()
        .map(|answer| answer.status)
        .collect()
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = server();
    let bytes = format!(
        "{GET}GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n\r\n{}",
        GET.repeat(100)
    );
    let answers = ask(&server, &bytes);
    assert_eq!(answers.len(), 102);
    assert_eq!(
        (answers[0].status, answers[1].status, answers[101].status),
        (200, 404, 200)
    );
}

#[test]
fn a_small_answer_is_one_send() {
    let script = Script::new([send(GET)]).run(&server());
    assert_eq!(script.sends, 1);
}

#[test]
fn close_is_honoured_at_once() {
    let bytes = format!("GET /ten.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n{GET}");
    let answers = ask(&server(), &bytes);
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0].field("Connection"), Some("close"));
}

#[test]
fn bodies_are_read_away() {
    let server = server();
    for body in [
        "Content-Length: 5\r\n\r\nabcde",
        "Transfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n",
    ] {
        for method in ["GET", "POST"] {
            let bytes = format!("{method} /ten.txt HTTP/1.1\r\nHost: a\r\n{body}{GET}");
            let answers = ask(&server, &bytes);
            assert_eq!(answers.len(), 2, "{bytes:?}");
            assert_eq!(answers[0].status, if method == "GET" { 200 } else { 405 });
            assert_eq!(answers[1].status, 200);
        }
    }
}

#[test]
fn a_long_body_over_many_reads_is_read_away() {
    let body = "x".repeat(60_000);
    let head = format!(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let script = Script::new([send(&head), send(&body), send(GET)]).run(&server());
    assert_eq!(statuses(&script), [405, 200]);
}

#[test]
fn a_body_beyond_the_limit_is_refused() {
    let server = server();
    let put = |len: u64| format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n");
    for len in [65_537, u64::MAX - 1] {
        let bytes = put(len) + &"x".repeat(65_536) + GET;
        let answers = ask(&server, &bytes);
        assert_eq!(answers.len(), 1);
        assert_eq!(
            (answers[0].status, answers[0].field("Connection")),
            (413, Some("close"))
        );
    }
    let longest = put(65_536) + &"x".repeat(65_536) + GET;
    assert_eq!(ask(&server, &longest).len(), 2);
    let chunks = "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n";
    assert_eq!(ask(&server, chunks)[0].status, 413);
    let broken = "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n";
    assert_eq!(ask(&server, broken)[0].status, 400);
}

/// A length is a promise: nothing is allocated for it, and the body has its ten seconds.
#[test]
fn a_long_body_that_does_not_come_is_awaited_like_a_short_one() {
    for len in [1, 999_999_999] {
        let server = server();
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n");
        let script = Script::new([send(&head), seconds(9), seconds(9)]).run(&server);
        assert_eq!(statuses(&script), [408], "{len}");
        assert_eq!(server.counters.request_timeouts.get(), 1);
    }
}

#[test]
fn expect_100_continue_is_answered_or_refused() {
    let head = |method: &str| {
        format!(
            "{method} /ten.txt HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"
        )
    };
    let script = Script::new([send(&head("GET")), send("abc"), send(GET)]).run(&server());
    assert_eq!(statuses(&script), [100, 200, 200]);
    let script = Script::new([send(&head("POST")), send("abc"), send(GET)]).run(&server());
    assert_eq!(statuses(&script), [405], "not read, so not kept");
    let long = head("GET").replace("Length: 3", "Length: 999999999");
    let script = Script::new([send(&long), send("abc")]).run(&server());
    assert_eq!(statuses(&script), [413], "no leave for what is too long");
    let at_once = format!("{}abc{GET}", head("GET"));
    assert_eq!(ask(&server(), &at_once).len(), 2, "no need to ask any more");
}

#[test]
fn quiet_clients_are_let_go_after_a_minute() {
    let server = server();
    let script =
        Script::new([send(GET), seconds(59), send(GET), seconds(61), send(GET)]).run(&server);
    assert_eq!(statuses(&script), [200, 200]);
    assert_eq!(script.elapsed(), Duration::from_secs(119));
    assert_eq!(server.counters.idle_timeouts.get(), 1);
    assert_eq!(server.counters.open(), 0);
}

#[test]
fn a_head_that_drips_in_has_ten_seconds_in_all() {
    let server = server();
    let drip = GET
        .bytes()
        .flat_map(|byte| [Act::Send(vec![byte]), Act::Wait(Duration::from_millis(200))]);
    assert_eq!(statuses(&Script::new(drip).run(&server)), [200]);
    let drip = GET
        .bytes()
        .flat_map(|byte| [Act::Send(vec![byte]), seconds(1)]);
    let script = Script::new(drip).run(&server);
    assert_eq!(statuses(&script), [408]);
    assert!(script.finished);
    assert!(
        script.elapsed() <= Duration::from_secs(12),
        "{:?}",
        script.elapsed()
    );
    assert_eq!(server.counters.request_timeouts.get(), 1);
}

#[test]
fn a_body_that_drips_in_has_ten_seconds_in_all() {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n";
    let drip = (0..100).flat_map(|_| [send("x"), seconds(1)]);
    let script = Script::new([send(head)].into_iter().chain(drip)).run(&server());
    assert_eq!(statuses(&script), [408]);
}

#[test]
fn a_client_that_breaks_off_is_only_counted() {
    let server = server();
    let script = Script::new([send("GET / HT"), Act::Break]).run(&server);
    assert!(script.sent.is_empty());
    let script = Script::new([send("GET / HT")]).run(&server);
    assert!(script.sent.is_empty());
    assert_eq!(server.counters.resets.get(), 1);
    assert_eq!(server.counters.open(), 0);
}

#[test]
fn a_reader_may_be_slow_but_not_too_slow() {
    let server = server();
    let get = "GET /big.bin HTTP/1.1\r\nHost: a\r\n\r\n";
    let script = Script::new([send(get)])
        .slow(10_000, Duration::from_secs(1))
        .run(&server);
    let answer = responses(&script.sent, &[]).remove(0);
    assert!(answer.body == big());
    let script = Script::new([send(get)])
        .slow(100, Duration::from_secs(19))
        .run(&server);
    assert!(script.sent.len() < 10_000, "{}", script.sent.len());
    let script = Script::new([send(get)])
        .slow(10_000, Duration::from_secs(21))
        .run(&server);
    assert!(script.sent.is_empty());
    assert_eq!(server.counters.write_timeouts.get(), 2);
}

#[test]
fn one_connection_too_many_gets_503() {
    let server = server();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    connection::refuse(tare_libos::serve::host::Stream::new(accepted), &server);
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut client, &mut bytes).unwrap();
    let answer = responses(&bytes, &[]).remove(0);
    assert_eq!(
        (answer.status, answer.field("Retry-After")),
        (503, Some("1"))
    );
    assert_eq!(
        (server.counters.refused.get(), server.counters.open()),
        (1, 0)
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn cuts_in_the_stream_make_no_difference(cuts in prop::collection::vec(1..60usize, 1..40)) {
        let server = server();
        let bytes = format!(
            "{GET}POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n{GET}\
             GET /../x HTTP/1.1\r\nHost: a\r\n\r\nHEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        );
        let mut rest = bytes.as_bytes();
        let mut acts = Vec::new();
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (head, tail) = rest.split_at((*cut).min(rest.len()));
            acts.push(Act::Send(head.to_vec()));
            rest = tail;
        }
        let script = Script::new(acts).run(&server);
        let statuses: Vec<_> = responses(&script.sent, &[4]).iter().map(|a| a.status).collect();
        prop_assert_eq!(statuses, [200, 405, 200, 400, 200]);
    }

    #[test]
    fn no_bytes_crash_a_connection(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut acts = vec![Act::Send(bytes)];
        acts.push(send("\r\n\r\n"));
        let script = Script::new(acts).run(&server());
        for answer in responses(&script.sent, &[]) {
            prop_assert!((400..600).contains(&answer.status));
        }
    }
}
