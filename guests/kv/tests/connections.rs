//! Whole connections: pieces, pipelines, garbage, limits.

mod support;

use std::time::Duration;

use support::{ask, server, talk};
use tare_guest_kv::connection;
use tare_guest_kv::host::HostClock;
use tare_guest_kv::server::{Server, Settings};
use tare_guest_kv::store::Counts;
use tare_libos::serve::script::{Act, Script};

const MIXED: &[u8] = b"set a 1 0 3\r\nabc\r\nget a b\r\nappend a 0 0 2 noreply\r\nde\r\n\
    gets a\r\nincr a 1\r\nset n 0 0 1\r\n9\r\nincr n 2\r\nset a 0 0 2\r\ntoolong\r\n\
    delete a\r\nnonsense\r\nset b 0 0 4\r\n\r\n\r\n\r\nget b\r\nversion\r\n";

#[test]
fn however_a_pipeline_is_cut_the_answers_are_the_same() {
    let whole = ask(MIXED);
    assert!(whole.text().ends_with("tare-0.1.0\r\n"), "{}", whole.text());
    for cut in 1..MIXED.len() {
        let (one, two) = MIXED.split_at(cut);
        let answers = talk(&server(), [one.to_vec(), two.to_vec()]);
        assert_eq!(answers.bytes, whole.bytes, "cut at {cut}");
    }
    let single = talk(&server(), MIXED.iter().map(|byte| vec![*byte]));
    assert_eq!(single.bytes, whole.bytes);
}

#[test]
fn a_request_that_ends_in_the_middle_stores_nothing() {
    let server = server();
    talk(&server, [b"set a 0 0 10\r\nabc".to_vec()]);
    let answers = talk(&server, [b"get a\r\n".to_vec()]);
    assert_eq!(answers.bytes, b"END\r\n");
}

#[test]
fn oversized_data_passes_and_the_connection_goes_on() {
    let mut request = b"set a 0 0 1\r\nx\r\nset a 0 0 1048577\r\n".to_vec();
    request.resize(request.len() + 1_048_577, b'y');
    request.extend_from_slice(b"\r\nget a\r\nadd c 0 0 2000000 noreply\r\n");
    request.resize(request.len() + 2_000_000, b'z');
    request.extend_from_slice(b"\r\nget c\r\n");
    let expected = "STORED\r\nSERVER_ERROR object too large for cache\r\nEND\r\nEND\r\n";
    assert_eq!(ask(request).text(), expected);
}

#[test]
fn the_largest_value_comes_back_whole() {
    let value: Vec<u8> = (0..1 << 20).map(|at| (at % 251) as u8).collect();
    let request = [b"set big 7 0 1048576\r\n", &value[..], b"\r\nget big\r\n"].concat();
    let expected = [
        b"STORED\r\nVALUE big 7 1048576\r\n",
        &value[..],
        b"\r\nEND\r\n",
    ]
    .concat();
    assert_eq!(ask(request).bytes, expected);
}

#[test]
fn a_get_of_many_large_items_is_sent_as_it_grows() {
    let value = vec![b'v'; 300_000];
    let mut request = [b"set k 0 0 300000\r\n", &value[..], b"\r\nget"].concat();
    request.extend_from_slice(&b" k".repeat(100));
    request.extend_from_slice(b"\r\n");
    let answers = ask(request);
    assert_eq!(answers.bytes.len(), 8 + 100 * (18 + 300_000 + 2) + 5);
}

#[test]
fn a_line_without_end_closes_the_connection() {
    assert!(ask(vec![b'x'; 5000]).closed);
    assert!(talk(&server(), vec![vec![b'x'; 700]; 4]).closed);
    assert!(!ask(vec![b'x'; 2000]).closed);
    let keys = [b"get ".to_vec(), b"key ".repeat(200_000), b"\r\n".to_vec()].concat();
    let answers = ask(keys);
    assert!(!answers.closed);
    assert_eq!(answers.bytes, b"END\r\n");
    assert!(ask([b"get ".to_vec(), b"key ".repeat(400_000)].concat()).closed);
}

#[test]
fn garbage_is_an_error_and_the_binary_protocol_an_end() {
    let answers = ask(b"\xff\xfe\x00\x01\r\n\0\r\nget \x7f\x01\r\n");
    assert_eq!(answers.text(), "ERROR\r\nERROR\r\nEND\r\n");
    assert!(ask(b"\x80\x0b\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0").closed);
    assert!(ask(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").closed);
}

const SCRAPE: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: a:11211\r\nAccept: */*\r\n\r\n";

fn with_metrics() -> Server<HostClock> {
    let settings = Settings {
        metrics: Some(|out| out.extend_from_slice(b"machine 7\n")),
        ..Settings::default()
    };
    Server::new(settings, HostClock)
}

#[test]
fn figures_are_served_over_http_where_that_is_on() {
    let off = ask(SCRAPE);
    assert!(off.closed && off.bytes.is_empty());
    let server = with_metrics();
    talk(&server, [b"set a 0 0 1\r\n1\r\nget a b\r\n".to_vec()]);
    let answers = talk(&server, [SCRAPE.to_vec()]);
    assert!(answers.closed);
    let text = answers.text();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    let length = format!("Content-Length: {}", body.len());
    assert!(head.lines().any(|line| line == length), "{head}");
    for line in [
        "kv_cmd_get_total 2",
        "kv_get_hits_total 1",
        "kv_get_misses_total 1",
        "kv_curr_items 1",
        "kv_curr_connections 1",
        "kv_limit_maxbytes 67108864",
        "machine 7",
    ] {
        assert!(body.lines().any(|it| it == line), "{line} in {body}");
    }
    for (name, _) in Counts::default().named() {
        let counter = format!("# TYPE kv_{name}_total counter");
        assert!(body.lines().any(|it| it == counter), "{counter}");
    }
    for line in body.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["#", "HELP", _, _] | ["#", "TYPE", _, "counter" | "gauge"] => {}
            [_, value] => assert!(value.parse::<u64>().is_ok(), "{line}"),
            _ => panic!("{line}"),
        }
    }
}

#[test]
fn a_scrape_ends_the_connection_however_it_comes() {
    let server = with_metrics();
    for cut in 1..SCRAPE.len() {
        let (one, two) = SCRAPE.split_at(cut);
        let answers = talk(&server, [one.to_vec(), two.to_vec()]);
        let text = answers.text();
        assert!(
            answers.closed && text.starts_with("HTTP/1.1 200 "),
            "cut at {cut}"
        );
        assert!(text.ends_with("machine 7\n"), "cut at {cut}");
    }
    let bare = talk(&server, [b"GET /metrics HTTP/1.0\n\n".to_vec()]);
    assert!(bare.closed && bare.text().starts_with("HTTP/1.1 200 "));
    let endless = [
        b"GET /metrics HTTP/1.1\r\n".to_vec(),
        b"a: b\r\n".repeat(1000),
    ]
    .concat();
    for other in [
        endless,
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        b"POST /metrics HTTP/1.1\r\n\r\n".to_vec(),
    ] {
        let answers = talk(&server, [other]);
        assert!(answers.closed && answers.bytes.is_empty());
    }
    let plain = talk(&server, [b"GET /metrics\r\nget a\r\n".to_vec()]);
    assert_eq!(plain.text(), "ERROR\r\nEND\r\n");
}

/// `idle_s=`; without it nothing but probes of the peer ends a quiet connection.
#[test]
fn a_quiet_connection_ends_where_that_is_limited() {
    const GET: &[u8] = b"get a\r\n";
    for (limit_s, answers, elapsed_s) in [(Some(60), 2, 119), (None, 3, 120)] {
        let settings = Settings {
            idle: limit_s.map(Duration::from_secs),
            ..Settings::default()
        };
        let server = Server::new(settings, HostClock);
        let quiet = |seconds| Act::Wait(Duration::from_secs(seconds));
        let get = || Act::Send(GET.to_vec());
        let mut script = Script::new([get(), quiet(59), get(), quiet(61), get()]);
        connection::serve(&mut script, &server);
        assert_eq!(script.sent, b"END\r\n".repeat(answers), "{limit_s:?}");
        assert_eq!(script.elapsed(), Duration::from_secs(elapsed_s));
    }
}

#[test]
fn a_key_may_have_250_bytes_and_not_one_more() {
    let (longest, longer) = ("k".repeat(250), "k".repeat(251));
    let answers = ask(format!("set {longest} 0 0 1\r\nx\r\nget {longest}\r\n"));
    assert_eq!(
        answers.text(),
        format!("STORED\r\nVALUE {longest} 0 1\r\nx\r\nEND\r\n")
    );
    for command in [
        format!("get {longer}\r\n"),
        format!("gat 0 a {longer}\r\n"),
        format!("delete {longer}\r\n"),
        format!("incr {longer} 1\r\n"),
        format!("touch {longer} 1\r\n"),
    ] {
        let bad = "CLIENT_ERROR bad command line format\r\n";
        assert_eq!(ask(command).text(), bad);
    }
}

#[test]
fn memory_stays_bounded_and_evictions_are_counted() {
    let settings = Settings {
        memory_bytes: 1 << 20,
        ..Settings::default()
    };
    let server = Server::new(settings, HostClock);
    let value = "v".repeat(1000);
    let sets = (0..3000).map(|n| format!("set key{n} 0 0 1000 noreply\r\n{value}\r\n"));
    talk(&server, sets.map(String::into_bytes));
    let text = talk(&server, [b"stats\r\nget key0 key2999\r\n".to_vec()]).text();
    let figure = |name: &str| {
        let prefix = format!("STAT {name} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&prefix));
        line.unwrap().parse::<u64>().unwrap()
    };
    assert!(figure("bytes") <= 1 << 20 && figure("bytes") > 1_000_000);
    assert_eq!(figure("evictions") + figure("curr_items"), 3000);
    assert!(text.contains("VALUE key2999") && !text.contains("VALUE key0"));
}

#[test]
fn a_value_above_the_memory_is_out_of_memory() {
    let settings = Settings {
        memory_bytes: 10_000,
        ..Settings::default()
    };
    let server = Server::new(settings, HostClock);
    let request = format!(
        "set a 0 0 20000 noreply\r\n{}\r\nversion\r\n",
        "v".repeat(20_000)
    );
    let text = talk(&server, [request.into_bytes()]).text();
    assert!(
        text.starts_with("SERVER_ERROR out of memory storing object\r\nVERSION"),
        "{text}"
    );
}

#[test]
fn statistics_count_what_was_asked() {
    let text = ask(
        b"set a 0 0 1\r\n1\r\nget a b\r\nincr a 1\r\ntouch a 0\r\ncas a 0 0 1 99\r\n2\r\n\
        delete b\r\nflush_all\r\nget a\r\nstats\r\nstats items\r\nstats slabs\r\nstats settings\r\n\
        stats reset\r\nstats x\r\n",
    )
    .text();
    for line in [
        "cmd_get 3",
        "cmd_set 2",
        "cmd_flush 1",
        "get_hits 1",
        "get_misses 2",
        "get_flushed 1",
        "incr_hits 1",
        "touch_hits 1",
        "cas_badval 1",
        "delete_misses 1",
        "curr_items 0",
        "curr_connections 1",
        "active_slabs 0",
        "maxbytes 67108864",
        "cas_enabled yes",
    ] {
        assert!(
            text.contains(&format!("STAT {line}\r\n")),
            "{line} in {text}"
        );
    }
    assert!(text.ends_with("RESET\r\nERROR\r\n"));
}
