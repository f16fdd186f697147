//! What each kind of request is answered with.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Mutex;
use std::time::Duration;

use tare_guest_http::host::MemoryFiles;
use tare_guest_http::listing::Entries;
use tare_guest_http::server::{Platform, Server};
use tare_guest_http::site::{Files, FindError, Node};
use tare_site::{Glob, Table};

use support::{Act, MODIFIED, Response, Run as _, Script, ask, get, responses, server};
use tare_guest_http::server::{Metrics, Missing, Precompressed};
use tare_guest_http::status::Status;

#[test]
fn a_file_comes_with_everything_that_describes_it() {
    let answer = get(&server(), "/ten.txt", "");
    assert_eq!(answer.status, 200);
    assert_eq!(answer.body, b"0123456789");
    assert_eq!(
        answer.field("Content-Type"),
        Some("text/plain; charset=utf-8")
    );
    assert_eq!(answer.field("Content-Length"), Some("10"));
    assert_eq!(answer.field("Last-Modified"), Some(MODIFIED));
    assert_eq!(answer.field("ETag"), Some("\"2ebc98a1-a\""));
    assert_eq!(answer.field("Accept-Ranges"), Some("bytes"));
    assert_eq!(answer.field("Connection"), None);
    let date = answer.field("Date").unwrap();
    assert!(date.ends_with(" GMT") && date.len() == 29);
    assert!(answer.head.len() < 300, "{}", answer.head.len());
}

#[test]
fn head_gets_the_same_head_and_no_body() {
    let server = server();
    let full = get(&server, "/ten.txt", "");
    let script = Script::new([Act::Send(
        b"HEAD /ten.txt HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
    )]);
    let head = responses(&script.run(&server).sent, &[0]).remove(0);
    let without_date = |head: &str| {
        head.lines()
            .filter(|l| !l.starts_with("Date"))
            .collect::<String>()
    };
    assert_eq!(without_date(&head.head), without_date(&full.head));
    for target in ["/nothing", "/docs", "/metrics"] {
        let bytes = format!("HEAD {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        let sent = Script::new([Act::Send(bytes.into())]).run(&server).sent;
        assert!(sent.ends_with(b"\r\n\r\n"), "{target}");
    }
}

#[test]
fn directories_serve_their_index_or_move_to_their_slash() {
    let server = server();
    assert_eq!(get(&server, "/", "").body, b"<p>root</p>");
    assert_eq!(
        get(&server, "/", "").field("Content-Type"),
        Some("text/html; charset=utf-8")
    );
    assert_eq!(get(&server, "/sub%20dir/", "").body, b"sub");
    let moved = get(&server, "/sub%20dir?a=b", "");
    assert_eq!(
        (moved.status, moved.field("Location")),
        (301, Some("/sub%20dir/?a=b"))
    );
    assert_eq!(get(&server, "/docs/", "").status, 404);
    assert_eq!(get(&server, "/bare", "").field("Location"), Some("/bare/"));
}

#[test]
fn a_redirect_never_names_another_host() {
    let moved = get(&server(), "//docs", "");
    assert_eq!(
        (moved.status, moved.field("Location")),
        (301, Some("/docs/"))
    );
}

#[test]
fn what_is_not_there_is_not_found() {
    let server = server();
    for target in [
        "/nothing",
        "/ten.txt/",
        "/ten.txt/x",
        "/docs/b",
        "/%ff",
        "/TEN.TXT",
    ] {
        assert_eq!(get(&server, target, "").status, 404, "{target}");
    }
}

#[test]
fn targets_are_normalised_and_stay_inside() {
    let server = server();
    for target in [
        "/docs/../ten.txt",
        "/./ten.txt?x",
        "/%74en.txt",
        "http://other/ten.txt",
    ] {
        assert_eq!(get(&server, target, "").body, b"0123456789", "{target}");
    }
    for target in [
        "/../ten.txt",
        "/%2e%2e/ten.txt",
        "/ten.txt%00",
        "/%zz",
        "ten.txt",
    ] {
        assert_eq!(get(&server, target, "").status, 400, "{target}");
    }
}

#[test]
fn other_methods_are_not_allowed_and_unknown_ones_not_implemented() {
    let server = server();
    let answers = ask(
        &server,
        "DELETE /ten.txt HTTP/1.1\r\nHost: a\r\n\r\nGET /ten.txt HTTP/1.1\r\nHost: a\r\n\r\n",
    );
    assert_eq!(
        (answers[0].status, answers[0].field("Allow")),
        (405, Some("GET, HEAD, OPTIONS"))
    );
    assert_eq!(answers[1].status, 200, "the connection goes on");
    assert_eq!(
        ask(&server, "CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n")[0].status,
        405
    );
    let unknown = ask(&server, "BREW / HTTP/1.1\r\nHost: a\r\n\r\n").remove(0);
    assert_eq!(
        (unknown.status, unknown.field("Connection")),
        (501, Some("close"))
    );
}

#[test]
fn single_ranges_are_cut_out() {
    let server = server();
    for (range, content_range, body) in [
        ("bytes=2-5", "bytes 2-5/10", &b"2345"[..]),
        ("bytes=7-", "bytes 7-9/10", b"789"),
        ("bytes=-2", "bytes 8-9/10", b"89"),
        ("bytes=0-99", "bytes 0-9/10", b"0123456789"),
    ] {
        let part = get(&server, "/ten.txt", &format!("Range: {range}\r\n"));
        assert_eq!(
            (part.status, part.field("Content-Range")),
            (206, Some(content_range))
        );
        assert_eq!(part.body, body);
        assert_eq!(part.field("ETag"), Some("\"2ebc98a1-a\""));
        assert_eq!(
            part.field("Content-Type"),
            Some("text/plain; charset=utf-8")
        );
        assert!(part.head.len() < 400);
    }
}

#[test]
fn unsatisfiable_and_ignored_ranges_differ() {
    let server = server();
    let none = get(&server, "/ten.txt", "Range: bytes=10-\r\n");
    assert_eq!(
        (none.status, none.field("Content-Range")),
        (416, Some("bytes */10"))
    );
    let overlapping = ["bytes=0-4,3-9", "bytes=-1,-2"];
    for range in overlapping.into_iter().chain(["lines=1-2", "bytes=x"]) {
        let whole = get(&server, "/ten.txt", &format!("Range: {range}\r\n"));
        assert_eq!((whole.status, whole.body.len()), (200, 10), "{range}");
    }
    assert_eq!(get(&server, "/empty", "Range: bytes=0-\r\n").status, 416);
    assert_eq!(get(&server, "/empty", "Range: bytes=-5\r\n").status, 200);
}

/// Content-Range and bytes of each part of a multipart answer.
fn parts_of(answer: &Response) -> Vec<(String, Vec<u8>)> {
    let kind = answer.field("Content-Type").unwrap();
    let boundary = kind
        .strip_prefix("multipart/byteranges; boundary=")
        .unwrap();
    let body = String::from_utf8(answer.body.clone()).unwrap();
    let mut parts: Vec<_> = body.split(&format!("\r\n--{boundary}")).collect();
    assert_eq!((parts.remove(0), parts.pop()), ("", Some("--\r\n")));
    let taken_apart = parts.into_iter().map(|part| {
        let (head, bytes) = part.split_once("\r\n\r\n").unwrap();
        let fields: Vec<_> = head.split("\r\n").collect();
        assert_eq!(fields[..2], ["", "Content-Type: text/plain; charset=utf-8"]);
        let range = fields[2].strip_prefix("Content-Range: ").unwrap();
        (range.to_owned(), bytes.into())
    });
    taken_apart.collect()
}

#[test]
fn several_ranges_are_sent_as_parts() {
    let server = server();
    let several = "Range: bytes=7-, 20-30, 0-1,4-4\r\n";
    let answer = get(&server, "/ten.txt", several);
    assert_eq!(answer.status, 206);
    assert_eq!(answer.field("Content-Range"), None);
    assert_eq!(answer.field("ETag"), Some("\"2ebc98a1-a\""));
    assert_eq!(answer.field("Accept-Ranges"), Some("bytes"));
    let expected = [
        ("bytes 7-9/10", &b"789"[..]),
        ("bytes 0-1/10", b"01"),
        ("bytes 4-4/10", b"4"),
    ]
    .map(|(range, bytes)| (range.to_owned(), bytes.to_vec()));
    assert_eq!(parts_of(&answer), expected);
    let again = get(&server, "/ten.txt", several);
    assert_ne!(answer.field("Content-Type"), again.field("Content-Type"));
    let one = get(&server, "/ten.txt", "Range: bytes=2-3,10-\r\n");
    assert_eq!(one.field("Content-Range"), Some("bytes 2-3/10"));
    let none = get(&server, "/ten.txt", "Range: bytes=10-,-0\r\n");
    assert_eq!(none.status, 416);
    let other = format!("{several}If-Range: \"other\"\r\n");
    assert_eq!(get(&server, "/ten.txt", &other).body.len(), 10);
    let head = format!("HEAD /ten.txt HTTP/1.1\r\nHost: a\r\n{several}\r\n");
    let head = Script::new([Act::Send(head.into())]).run(&server);
    let head = responses(&head.sent, &[0]).remove(0);
    assert_eq!(
        (head.status, head.field("Content-Length")),
        (200, Some("10"))
    );
}

#[test]
fn parts_of_a_large_file_come_in_small_sends_too() {
    let server = server();
    let head = "GET /big.bin HTTP/1.1\r\nHost: a\r\nRange: bytes=-5,0-99999,200000-200004\r\n\r\n";
    let script = Script::new([Act::Send(head.into())])
        .slow(777, Duration::ZERO)
        .run(&server);
    let answer = responses(&script.sent, &[]).remove(0);
    let big = support::big();
    let tail = big.len() - 5;
    for bytes in [&big[tail..], &big[..100_000], &big[200_000..200_005]] {
        let is_there = answer.body.windows(bytes.len()).any(|it| it == bytes);
        assert!(is_there, "{} bytes", bytes.len());
    }
    let between = answer.body.len() - 100_010;
    assert!((200..600).contains(&between), "{between}");
}

#[test]
fn if_range_sends_the_whole_of_another_version() {
    let server = server();
    for (if_range, status) in [
        ("\"2ebc98a1-a\"", 206),
        (MODIFIED, 206),
        ("W/\"2ebc98a1-a\"", 200),
        ("\"other\"", 200),
        ("Sun, 06 Nov 1994 08:49:38 GMT", 200),
    ] {
        let fields = format!("Range: bytes=0-1\r\nIf-Range: {if_range}\r\n");
        assert_eq!(
            get(&server, "/ten.txt", &fields).status,
            status,
            "{if_range}"
        );
    }
}

#[test]
fn a_current_copy_is_not_sent_again() {
    let server = server();
    for fields in [
        "If-None-Match: \"2ebc98a1-a\"\r\n",
        "If-None-Match: *\r\n",
        "If-None-Match: \"x\", W/\"2ebc98a1-a\"\r\n",
        "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
        "If-None-Match: \"2ebc98a1-a\"\r\nRange: bytes=0-1\r\n",
    ] {
        let answer = get(&server, "/ten.txt", fields);
        assert_eq!(answer.status, 304, "{fields}");
        assert_eq!(answer.field("ETag"), Some("\"2ebc98a1-a\""));
        assert!(answer.field("Date").is_some());
        assert_eq!(answer.field("Content-Length"), None);
    }
    let stale = "If-None-Match: \"x\"\r\nIf-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
    assert_eq!(
        get(&server, "/ten.txt", stale).status,
        200,
        "the tag decides"
    );
}

#[test]
fn failed_preconditions_get_412() {
    let server = server();
    for (fields, status) in [
        ("If-Match: \"x\"\r\n", 412),
        ("If-Match: \"2ebc98a1-a\"\r\n", 200),
        ("If-Match: *\r\n", 200),
        (
            "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:36 GMT\r\n",
            412,
        ),
        (
            "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
            200,
        ),
    ] {
        assert_eq!(get(&server, "/ten.txt", fields).status, status, "{fields}");
    }
}

#[test]
fn requests_that_break_the_protocol_end_the_connection() {
    let server = server();
    for (bytes, status) in [
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/2.0\r\n\r\n", 505),
        ("rubbish\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nExpect: x\r\n\r\n", 417),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n",
            400,
        ),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            501,
        ),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            400,
        ),
    ] {
        let follow = format!("{bytes}GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let answers = ask(&server, &follow);
        assert_eq!(answers.len(), 1, "{bytes:?}");
        assert_eq!(
            (answers[0].status, answers[0].field("Connection")),
            (status, Some("close"))
        );
    }
}

#[test]
fn long_heads_are_refused_by_what_is_long() {
    let server = server();
    let target = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(8_192));
    assert_eq!(ask(&server, &target)[0].status, 414);
    let endless = format!("GET /{}", "a".repeat(17_000));
    assert_eq!(ask(&server, &endless)[0].status, 414);
    let field = format!(
        "GET / HTTP/1.1\r\nHost: a\r\nA: {}\r\n\r\n",
        "a".repeat(17_000)
    );
    assert_eq!(ask(&server, &field)[0].status, 431);
    let many = format!(
        "GET / HTTP/1.1\r\nHost: a\r\n{}\r\n",
        "A: b\r\n".repeat(100)
    );
    assert_eq!(ask(&server, &many)[0].status, 431);
    let fits = format!(
        "GET /?{} HTTP/1.1\r\nHost: a\r\nA: {}\r\n\r\n",
        "a".repeat(8_000),
        "a".repeat(8_000)
    );
    assert_eq!(ask(&server, &fits)[0].status, 200);
}

#[test]
fn old_clients_get_what_they_ask_for() {
    let server = server();
    let answers = ask(
        &server,
        "GET /ten.txt HTTP/1.0\r\n\r\nGET /ten.txt HTTP/1.0\r\n\r\n",
    );
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0].field("Connection"), Some("close"));
    let keep = "GET /ten.txt HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
    let answers = ask(&server, &keep.repeat(2));
    assert_eq!(answers.len(), 2);
    assert_eq!(answers[0].field("Connection"), Some("keep-alive"));
}

#[test]
fn figures_are_served_only_where_that_is_switched_on() {
    let site = MemoryFiles::new().with("metrics", b"a file", 0);
    assert_eq!(get(&server(), "/metrics", "").status, 404);
    assert_eq!(get(&Server::new(site), "/metrics", "").body, b"a file");
}

/// Files that are there and cannot be given.
struct Failing(FindError);

impl Files for Failing {
    fn find(&self, path: &str) -> Result<Option<Node>, FindError> {
        match path {
            "" => Ok(Some(Node::Directory)),
            "listed" => Ok(Some(Node::Directory)),
            "listed/index.html" => Ok(None),
            _ => Err(self.0),
        }
    }

    fn list(&self, _path: &str) -> Result<Entries, FindError> {
        Err(self.0)
    }
}

impl Platform for Failing {
    fn unix_s(&self) -> u64 {
        0
    }

    fn expose(&self, _out: &mut Vec<u8>) {}
}

#[test]
fn a_file_that_cannot_be_read_is_not_missing() {
    for (error, status, retry) in [
        (FindError::NoMemory, 503, Some("1")),
        (FindError::Unreadable, 500, None),
    ] {
        let server = Server::new(Failing(error)).with_site(Table {
            listings: Glob::new("/**").into_iter().collect(),
            ..Table::default()
        });
        for target in ["/file", "/", "/listed/"] {
            let head = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
            let script = Script::new([Act::Send(head.into())]).run(&server);
            let answer = responses(&script.sent, &[]).remove(0);
            assert_eq!(answer.status, status, "{target}");
            assert_eq!(answer.field("Retry-After"), retry);
        }
    }
}

/// As [`Failing`], for the page of paths without a file.
struct FailingPage(FindError);

impl Files for FailingPage {
    fn find(&self, path: &str) -> Result<Option<Node>, FindError> {
        match path {
            "page.html" => Err(self.0),
            _ => Ok(None),
        }
    }

    fn list(&self, _path: &str) -> Result<Entries, FindError> {
        Err(self.0)
    }
}

impl Platform for FailingPage {
    fn unix_s(&self) -> u64 {
        0
    }

    fn expose(&self, _out: &mut Vec<u8>) {}
}

#[test]
fn a_page_that_cannot_be_read_is_not_missing() {
    for (error, status) in [(FindError::NoMemory, 503), (FindError::Unreadable, 500)] {
        for missing in [Missing::Page, Missing::Fallback] {
            let server = Server::new(FailingPage(error)).with_missing(missing("page.html".into()));
            let script = Script::new([Act::Send(b"GET /no HTTP/1.1\r\nHost: a\r\n\r\n".to_vec())]);
            let answer = responses(&script.run(&server).sent, &[]).remove(0);
            assert_eq!(answer.status, status);
        }
    }
}

/// A file whose Brotli form is damaged, and what was read of its forms.
struct Damaged(MemoryFiles, Mutex<Vec<String>>);

impl Files for Damaged {
    fn find(&self, path: &str) -> Result<Option<Node>, FindError> {
        self.1.lock().unwrap().push(path.to_owned());
        match path {
            "a.css.br" => Err(FindError::Unreadable),
            _ => self.0.find(path),
        }
    }

    fn modified_s(&self, path: &str) -> Option<u64> {
        self.0.modified_s(path)
    }

    fn list(&self, path: &str) -> Result<Entries, FindError> {
        self.0.list(path)
    }
}

impl Platform for Damaged {
    fn unix_s(&self) -> u64 {
        self.0.unix_s()
    }

    fn expose(&self, _out: &mut Vec<u8>) {}
}

#[test]
fn forms_are_read_when_they_are_wanted_and_take_nothing_away() {
    let forms = ["a.css", "a.css.br", "a.css.gz"];
    let with = |files: MemoryFiles, name| files.with(name, name.as_bytes(), 1000);
    let files = forms.into_iter().fold(MemoryFiles::new(), with);
    let server =
        Server::new(Damaged(files, Mutex::default())).with_precompressed(Precompressed::On);
    let ask = |coding: &str| {
        let head = format!("GET /a.css HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {coding}\r\n\r\n");
        let script = Script::new([Act::Send(head.into())]).run(&server);
        let answer = responses(&script.sent, &[]).remove(0);
        assert_eq!(answer.status, 200);
        let read = std::mem::take(&mut *server.platform().1.lock().unwrap());
        (String::from_utf8(answer.body).unwrap(), read.join(" "))
    };
    let told = |body: &str, read: &str| (body.to_owned(), read.to_owned());
    assert_eq!(ask("zstd"), told("a.css", "a.css"));
    assert_eq!(ask("br"), told("a.css", "a.css.br"));
    assert_eq!(ask("br, gzip;q=0.5"), told("a.css.gz", "a.css.br a.css.gz"));
    assert_eq!(ask("gzip"), told("a.css.gz", ""));
}

#[test]
fn figures_are_served_as_text() {
    let server = server().with_metrics(Metrics::On);
    get(&server, "/ten.txt", "");
    get(&server, "/nothing", "");
    let metrics = get(&server, "/metrics", "");
    assert_eq!(
        metrics.field("Content-Type"),
        Some("text/plain; version=0.0.4; charset=utf-8")
    );
    let text = String::from_utf8(metrics.body).unwrap();
    assert!(
        text.contains("http_requests_total{code=\"200\"} 1\n"),
        "{text}"
    );
    assert!(text.contains("http_requests_total{code=\"404\"} 1\n"));
    assert!(text.contains("http_connections_open 1\n"));
    assert!(text.contains("http_connections_total 3\n"));
    assert_eq!(server.counters.responses(Status::Ok), 2);
}

/// RFC 9110, 12.5.3 and 8.8.3.3: a form for the client, with its own tag and length.
#[test]
fn compressed_forms_go_to_clients_that_take_them() {
    let files = || {
        MemoryFiles::new()
            .with("a.css", b"plain text".as_slice(), 1000)
            .with("a.css.gz", b"gzip".as_slice(), 1000)
            .with("a.css.br", b"br".as_slice(), 2000)
            .with("a.css.zst", b"stale".as_slice(), 999)
            .with("b.css", b"alone".as_slice(), 1000)
    };
    let server = Server::new(files()).with_precompressed(Precompressed::On);
    for _ in 0..2 {
        for (accepted, encoding, body) in [
            ("gzip, deflate, br, zstd", Some("br"), &b"br"[..]),
            ("gzip;q=1, br;q=0.5", Some("gzip"), b"gzip"),
            ("zstd", None, b"plain text"),
            ("br;q=0, *", Some("gzip"), b"gzip"),
            ("identity", None, b"plain text"),
            ("br;q=0.5, identity", None, b"plain text"),
            ("br, identity;q=0.5", Some("br"), b"br"),
            ("br;q=0.1\r\nAccept-Encoding: gzip", Some("gzip"), b"gzip"),
        ] {
            let answer = get(
                &server,
                "/a.css",
                &format!("Accept-Encoding: {accepted}\r\n"),
            );
            assert_eq!(answer.field("Content-Encoding"), encoding, "{accepted}");
            assert_eq!(answer.body, body, "{accepted}");
            assert_eq!(answer.field("Vary"), Some("Accept-Encoding"), "{accepted}");
            assert_eq!(
                answer.field("Content-Type"),
                Some("text/css; charset=utf-8")
            );
        }
    }
    let brotli = get(&server, "/a.css", "Accept-Encoding: br\r\n");
    let tag = brotli.field("ETag").unwrap();
    let fields = |coding: &str| format!("Accept-Encoding: {coding}\r\nIf-None-Match: {tag}\r\n");
    let same = get(&server, "/a.css", &fields("br"));
    assert_eq!(
        (same.status, same.field("Vary")),
        (304, Some("Accept-Encoding"))
    );
    assert_eq!(get(&server, "/a.css", &fields("gzip")).status, 200);
    let part = get(
        &server,
        "/a.css",
        "Accept-Encoding: gzip\r\nRange: bytes=1-2\r\n",
    );
    assert_eq!((part.status, &part.body[..]), (206, &b"zi"[..]));
    assert_eq!(part.field("Content-Encoding"), Some("gzip"));
    // A file without other forms, and a server that does not look for them, vary in nothing.
    let alone = get(&server, "/b.css", "Accept-Encoding: br\r\n");
    assert_eq!(
        (alone.field("Vary"), &alone.body[..]),
        (None, &b"alone"[..])
    );
    let off = get(&Server::new(files()), "/a.css", "Accept-Encoding: br\r\n");
    assert_eq!(
        (off.field("Vary"), &off.body[..]),
        (None, &b"plain text"[..])
    );
}

#[test]
fn paths_without_a_file_get_the_page_or_the_application() {
    let files = || {
        MemoryFiles::new()
            .with("index.html", b"<p>app</p>".as_slice(), 1000)
            .with("404.html", b"<p>gone</p>".as_slice(), 1000)
    };
    let html = Some("text/html; charset=utf-8");
    let server = Server::new(files()).with_missing(Missing::Page("404.html".into()));
    let answer = get(
        &server,
        "/no/such",
        "Range: bytes=0-1\r\nIf-None-Match: *\r\n",
    );
    assert_eq!(
        (answer.status, &answer.body[..]),
        (404, &b"<p>gone</p>"[..])
    );
    assert_eq!(
        (answer.field("Content-Type"), answer.field("ETag")),
        (html, None)
    );
    assert_eq!(get(&server, "/", "").status, 200);
    let head = Script::new([Act::Send(b"HEAD /no HTTP/1.1\r\nHost: a\r\n\r\n".to_vec())]);
    let head = responses(&head.run(&server).sent, &[0]).remove(0);
    assert_eq!(
        (head.status, head.field("Content-Length")),
        (404, Some("11"))
    );

    let server = Server::new(files()).with_missing(Missing::Fallback("index.html".into()));
    let answer = get(&server, "/users/7?tab=2", "");
    assert_eq!((answer.status, &answer.body[..]), (200, &b"<p>app</p>"[..]));
    assert_eq!(answer.field("Content-Type"), html);
    let tag = answer.field("ETag").unwrap();
    let same = get(&server, "/users/8", &format!("If-None-Match: {tag}\r\n"));
    assert_eq!(same.status, 304);
    // A path that cannot be one stays refused, and so do other methods.
    assert_eq!(get(&server, "/%zz", "").status, 400);
    assert_eq!(
        ask(&server, "POST /x HTTP/1.1\r\nHost: a\r\n\r\n")[0].status,
        405
    );
    // A page that has gone since is a line again.
    let server = Server::new(files()).with_missing(Missing::Page("none.html".into()));
    assert_eq!(get(&server, "/no", "").status, 404);
}
