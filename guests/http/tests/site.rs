//! What a site's table changes.

#![allow(clippy::unwrap_used)]

mod support;

use tare_guest_http::host::MemoryFiles;
use tare_guest_http::server::{Precompressed, Server};
use tare_site::{Field, Glob, Host, Missing, PathRule, Redirect, RedirectStatus, Table};

use support::{Act, Response, Run as _, Script, ask, get, responses, server};

fn rule(glob: &'static str, fields: &[(&'static str, &'static str)]) -> PathRule<'static> {
    let fields = fields.iter().map(|(name, value)| Field::new(name, value));
    PathRule {
        glob: Glob::new(glob).unwrap(),
        fields: fields.collect::<Result<_, _>>().unwrap(),
    }
}

fn redirect(from: &'static str, to: &'static str, code: u64) -> Redirect<'static> {
    let status = RedirectStatus::from_code(code).unwrap();
    Redirect::new(Glob::new(from).unwrap(), to, status).unwrap()
}

fn site(table: Table<'static>) -> Server<MemoryFiles> {
    let files = MemoryFiles::new()
        .with("index.html", b"home", 1000)
        .with("404.html", b"<p>gone</p>", 1000)
        .with("assets/a.css", b"0123456789", 1000)
        .with("assets/a.css.gz", b"zipped", 1000)
        .with("old/file", b"old", 1000);
    Server::new(files)
        .with_precompressed(Precompressed::On)
        .with_missing(table.missing.into())
        .with_site(table)
}

fn with_fields() -> Server<MemoryFiles> {
    site(Table {
        paths: vec![
            rule(
                "/**",
                &[("Cache-Control", "no-cache"), ("X-Frame-Options", "DENY")],
            ),
            rule("/assets/*.css", &[("cache-control", "max-age=9")]),
        ],
        ..Table::default()
    })
}

#[test]
fn fields_of_a_path_are_in_every_answer_with_its_file() {
    let server = with_fields();
    let forms = [
        ("", 200),
        ("Range: bytes=0-1\r\n", 206),
        ("Accept-Encoding: gzip\r\n", 200),
        ("If-None-Match: *\r\n", 304),
    ];
    // The second time from the latest assets.
    for (fields, status) in forms.into_iter().chain(forms) {
        let answer = get(&server, "/assets/a.css", fields);
        assert_eq!(answer.status, status, "{fields}");
        assert_eq!(answer.field("Cache-Control"), Some("max-age=9"), "{fields}");
        assert_eq!(answer.field("X-Frame-Options"), Some("DENY"), "{fields}");
    }
    let zipped = get(&server, "/assets/a.css", "Accept-Encoding: gzip\r\n");
    assert_eq!(zipped.body, b"zipped");
}

#[test]
fn an_index_has_the_fields_of_its_file() {
    let server = site(Table {
        paths: vec![rule("/index.html", &[("X-A", "1")])],
        ..Table::default()
    });
    assert_eq!(get(&server, "/", "").field("X-A"), Some("1"));
    assert_eq!(get(&server, "/old/file", "").field("X-A"), None);
}

#[test]
fn answers_without_a_file_have_no_added_fields() {
    let answer = get(&with_fields(), "/nothing", "");
    assert_eq!(answer.status, 404);
    assert_eq!(answer.field("Cache-Control"), None);
}

#[test]
fn redirected_paths_move_whether_there_is_a_file_or_not() {
    let server = site(Table {
        redirects: vec![
            redirect("/old/file", "/new", 301),
            redirect("/old/*", "/new/*.html", 302),
            redirect("/blog/**", "https://blog.example/**", 307),
            redirect("/docs/", "/manual/", 308),
        ],
        ..Table::default()
    });
    for (target, status, location) in [
        ("/old/file", 301, "/new"),
        ("/old/x%20y?q=1", 302, "/new/x%20y.html?q=1"),
        ("/old/%0d%0aX:%20y", 302, "/new/%0D%0AX:%20y.html"),
        ("/old/../old//x", 302, "/new/x.html"),
        ("/blog/", 307, "https://blog.example/"),
        ("/blog/a/b/", 307, "https://blog.example/a/b/"),
        ("/docs/", 308, "/manual/"),
    ] {
        for _ in 0..2 {
            let answer = get(&server, target, "");
            assert_eq!(answer.status, status, "{target}");
            assert_eq!(answer.field("Location"), Some(location), "{target}");
        }
    }
    assert_eq!(get(&server, "/docs", "").status, 404);
    assert_eq!(get(&server, "/assets/a.css", "").status, 200);
    let post = ask(&server, "POST /docs/ HTTP/1.1\r\nHost: a\r\n\r\n").remove(0);
    assert_eq!(post.status, 405);
}

#[test]
fn a_page_or_a_fallback_answers_for_missing_files() {
    let with = |missing| {
        site(Table {
            paths: vec![rule("/*.html", &[("X-A", "1")])],
            missing,
            ..Table::default()
        })
    };
    let page = get(&with(Missing::Page("404.html")), "/nothing", "");
    assert_eq!((page.status, &*page.body), (404, &b"<p>gone</p>"[..]));
    let fallback = get(&with(Missing::Fallback("index.html")), "/app/route", "");
    assert_eq!((fallback.status, &*fallback.body), (200, &b"home"[..]));
    assert_eq!(fallback.field("X-A"), Some("1"));
}

fn listed(globs: &[&'static str]) -> Server<MemoryFiles> {
    let files = MemoryFiles::new()
        .with("index.html", b"home", 1000)
        .with("pub/a b&c.txt", b"0123456789", 1000)
        .with("pub/sub/x", b"x", 1000)
        .with("pub/.hidden", b"x", 1000)
        .with("pub/indexed/index.html", b"index", 1000)
        .with("private/x", b"x", 1000);
    Server::new(files).with_site(Table {
        listings: globs.iter().map(|glob| Glob::new(glob).unwrap()).collect(),
        ..Table::default()
    })
}

#[test]
fn a_directory_without_an_index_is_listed_where_the_site_lists_it() {
    let server = listed(&["/pub/**"]);
    for _ in 0..2 {
        let answer = get(&server, "/pub/", "");
        assert_eq!(answer.status, 200);
        let html = Some("text/html; charset=utf-8");
        assert_eq!(answer.field("Content-Type"), html);
        let page = String::from_utf8(answer.body).unwrap();
        let names = ["../", "./indexed/", "./sub/", "./a%20b&amp;c.txt"];
        let mut at = 0;
        for name in names {
            at += page[at..].find(&format!("href=\"{name}\"")).expect(name);
        }
        assert!(page.contains("a b&amp;c.txt</a><td align=right>10\n"));
        assert!(!page.contains("hidden"));
    }
    for (target, status) in [
        ("/pub", 301),
        ("/pub/sub/", 200),
        ("/pub/nothing/", 404),
        ("/pub/sub/x/", 404),
        ("/private/", 404),
        ("/private", 301),
    ] {
        assert_eq!(get(&server, target, "").status, status, "{target}");
    }
    assert_eq!(get(&server, "/pub/indexed/", "").body, b"index");
    assert_eq!(get(&server, "/", "").body, b"home");
    assert_eq!(get(&listed(&[]), "/pub/", "").status, 404);
    let all = listed(&["/**"]);
    assert_eq!(get(&all, "/private/", "").status, 200);
}

#[test]
fn head_of_a_listing_has_its_length_and_no_page() {
    let server = listed(&["/**"]);
    let length = get(&server, "/pub/", "").body.len().to_string();
    let head = "HEAD /pub/ HTTP/1.1\r\nHost: a\r\nRange: bytes=0-1\r\n\r\n";
    let script = Script::new([Act::Send(head.into())]).run(&server);
    let answer = responses(&script.sent, &[0]).remove(0);
    assert_eq!(answer.status, 200);
    assert_eq!(answer.field("Content-Length"), Some(&*length));
}

fn host(name: &'static str, root: &'static str, missing: Missing<'static>) -> Host<'static> {
    let table = Table {
        paths: vec![rule("/**", &[("X-Host", name)])],
        redirects: vec![redirect("/moved", "/to", 302)],
        listings: vec![Glob::new("/").unwrap()],
        missing,
        root,
        ..Table::default()
    };
    Host { name, table }
}

fn with_hosts() -> Server<MemoryFiles> {
    let files = MemoryFiles::new()
        .with("www/index.html", b"default", 1000)
        .with("a/index.html", b"of a", 1000)
        .with("a/index.html.gz", b"zipped a", 1000)
        .with("a/404.html", b"none of a", 1000)
        .with("b/file", b"of b", 1000);
    let table = Table {
        root: "www",
        hosts: vec![
            host("A.example", "a", Missing::Page("404.html")),
            host("b.example", "b", Missing::Line),
            host("[::1]", "", Missing::Line),
        ],
        ..Table::default()
    };
    Server::new(files)
        .with_precompressed(Precompressed::On)
        .with_site(table)
}

/// The answer to a GET of `target` with `Host: host`.
fn get_of(server: &Server<MemoryFiles>, host: &str, target: &str) -> Response {
    let head = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    ask(server, &head).remove(0)
}

#[test]
fn a_host_has_its_own_files_and_rules() {
    let server = with_hosts();
    // The second time from the latest assets.
    for _ in 0..2 {
        for (host, body) in [
            ("a.example", &b"of a"[..]),
            ("A.EXAMPLE:8080", b"of a"),
            ("a.example.", b"of a"),
            ("other.example", b"default"),
            ("x.a.example", b"default"),
            ("127.0.0.1", b"default"),
        ] {
            assert_eq!(get_of(&server, host, "/").body, body, "{host}");
        }
        let listed = get_of(&server, "b.example", "/");
        assert!(String::from_utf8(listed.body).unwrap().contains("./file"));
        assert_eq!(get_of(&server, "b.example", "/file").body, b"of b");
    }
    let answer = get_of(&server, "a.example", "/");
    assert_eq!(answer.field("X-Host"), Some("A.example"));
    assert_eq!(get_of(&server, "c.example", "/").field("X-Host"), None);
    for (host, status, body) in [
        ("a.example", 404, &b"none of a"[..]),
        ("b.example", 404, b"404 Not Found\n"),
        ("c.example", 404, b"404 Not Found\n"),
        ("[::1]:80", 200, b"of b"),
    ] {
        let answer = get_of(&server, host, "/b/file");
        assert_eq!((answer.status, &*answer.body), (status, body), "{host}");
    }
    assert_eq!(get_of(&server, "b.example", "/moved").status, 302);
    assert_eq!(get_of(&server, "c.example", "/moved").status, 404);
    assert_eq!(get_of(&server, "a.example", "/../b/file").status, 400);
    let zipped = "GET / HTTP/1.1\r\nHost: a.example\r\nAccept-Encoding: gzip\r\n\r\n";
    assert_eq!(ask(&server, zipped)[0].body, b"zipped a");
}

#[test]
fn an_absolute_target_names_the_host() {
    let server = with_hosts();
    for target in ["http://b.example/file", "HTTP://B.example:80/file?q"] {
        assert_eq!(get_of(&server, "a.example", target).body, b"of b");
    }
    let target = "http://b.example?file";
    let listed = get_of(&server, "a.example", target);
    assert!(String::from_utf8(listed.body).unwrap().contains("./file"));
    let old = ask(&server, "GET / HTTP/1.0\r\n\r\n").remove(0);
    assert_eq!(old.body, b"default");
}

#[test]
fn an_empty_table_changes_nothing() {
    let plain = get(&server(), "/ten.txt", "");
    let with_table = get(&server().with_site(Table::default()), "/ten.txt", "");
    let without_date = |head: &str| {
        let lines = head.lines().filter(|line| !line.starts_with("Date"));
        lines.collect::<Vec<_>>().join("\n")
    };
    assert_eq!(without_date(&plain.head), without_date(&with_table.head));
}
