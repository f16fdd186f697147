//! The network of whole machines: user-mode networking in both families, and what it
//! costs when nothing happens.
//!
//! They need /dev/kvm, passt, `tare-monitor` beside `tare` and the image of `http`, and
//! SKIP without; with TARE_REQUIRE_KVM=1 a skip fails.
#![allow(clippy::unwrap_used)]

mod support;

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use support::needs::{built, passt, skip};
use support::{TestDir, eventually, free_port, get};

/// The HTTP appliance, if it is built and machines with a network can run here.
fn http() -> Option<PathBuf> {
    passt().then(|| built("http")).flatten()
}

/// A place with a site of one file.
fn with_site() -> TestDir {
    let place = TestDir::new();
    std::fs::create_dir(place.path().join("site")).unwrap();
    place.file("site/index.html", b"the site\n");
    place
}

fn run(place: &TestDir, image: &str, words: &[&str]) {
    let site = place.path().join("site");
    let first = ["run", image, "-d", "--name", "web", "--root"];
    let words = [&first[..], &[site.to_str().unwrap()], words].concat();
    place.run(&words).expect(0, "web");
}

/// What a site's file says, applied by a whole machine to a root that has it beside itself.
#[test]
fn a_site_file_gives_headers_redirects_and_an_error_page() {
    let Some(image) = http() else { return };
    let place = with_site();
    place.file("site/404.html", b"gone\n");
    std::fs::create_dir_all(place.path().join("site/pub/sub")).unwrap();
    place.file("site/pub/a<b>", b"12345");
    let text = b"listing = [\"/pub/**\", \"/\"]\n[[path]]\nmatch = \"/index.html\"\ncache_control = \"no-cache\"\n\
        [[redirect]]\nfrom = \"/old/*\"\nto = \"/new/*\"\nstatus = 308\n\
        [errors]\n404 = \"404.html\"\n";
    let file = place.file("site.toml", text);
    let port = free_port();
    let publish = format!("{port}:80");
    let words = ["-p", &publish, "--site", &file];
    run(&place, image.to_str().unwrap(), &words);
    eventually("the site is served", || get(port, "/").is_ok());
    let has = |path: &str, parts: &[&str]| {
        let answer = get(port, path).unwrap();
        for part in parts {
            assert!(answer.contains(part), "{path}: {answer}");
        }
    };
    has(
        "/",
        &["200 OK", "\r\nCache-Control: no-cache\r\n", "the site\n"],
    );
    has(
        "/old/a",
        &["308 Permanent Redirect", "\r\nLocation: /new/a\r\n"],
    );
    has("/nothing", &["404 Not Found", "\r\n\r\ngone\n"]);
    let rows = "./sub/\">sub/</a><td align=right>\n\
        <tr><td><a href=\"./a%3Cb%3E\">a&lt;b&gt;</a><td align=right>5\n</table>";
    has("/pub/", &["200 OK", rows]);
    // The table is no file of the site.
    has("/.tare-site", &["404 Not Found"]);
    place.run(&["logs", "web"]).expect(0, "serving 3 files");
    place.run(&["stop", "web"]).expect(0, "");
}

/// Hosts by name, each with a directory of the root.
#[test]
fn a_host_of_a_site_has_its_own_files() {
    let Some(image) = http() else { return };
    let place = with_site();
    std::fs::create_dir(place.path().join("site/b")).unwrap();
    place.file("site/b/index.html", b"of b\n");
    let text = b"[host.\"b.example\"]\nroot = \"b\"\n";
    let file = place.file("site.toml", text);
    let port = free_port();
    let publish = format!("{port}:80");
    run(
        &place,
        image.to_str().unwrap(),
        &["-p", &publish, "--site", &file],
    );
    eventually("the site is served", || get(port, "/").is_ok());
    let of = |host: &str| {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        let head = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(of("B.Example:80").ends_with("\r\n\r\nof b\n"));
    assert!(of("c.example").ends_with("\r\n\r\nthe site\n"));
    place.run(&["stop", "web"]).expect(0, "");
}

/// The access log, with what the console makes of a client's bytes.
#[test]
fn a_site_logs_its_answers_to_the_console() {
    let Some(image) = http() else { return };
    let place = with_site();
    let file = place.file("site.toml", b"[log]\nformat = \"json\"\n");
    let port = free_port();
    let publish = format!("{port}:80");
    let words = ["-p", &publish, "--site", &file];
    run(&place, image.to_str().unwrap(), &words);
    eventually("the site is served", || get(port, "/").is_ok());
    get(port, "/x\"y").unwrap();
    let expected = "\"request\":\"GET /x\\u0022y HTTP/1.1\"";
    eventually("the answer is logged", || {
        place.run(&["logs", "web"]).out.contains(expected)
    });
    let logs = place.run(&["logs", "web"]).out;
    let lines = logs.lines().filter(|line| line.starts_with('{'));
    let mut targets = 0;
    for line in lines {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(line["client"].as_str().is_some_and(|it| it.contains('.')));
        targets += usize::from(line["status"] == 200 || line["status"] == 404);
    }
    assert!(targets >= 2, "{logs}");
    place.run(&["stop", "web"]).expect(0, "");
}

fn answer(from: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(from)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn a_port_is_published_at_an_ipv6_address() {
    let Some(image) = http() else { return };
    let Ok(free) = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)) else {
        skip("this host has no IPv6");
        return;
    };
    let (six, four) = (free.local_addr().unwrap().port(), free_port());
    drop(free);
    let place = with_site();
    let publish = [format!("[::1]:{six}:80"), format!("{four}:80")];
    let words = ["-p", &publish[0], "-p", &publish[1]];
    run(&place, image.to_str().unwrap(), &words);
    let serves = |address: SocketAddr| {
        answer(address).is_ok_and(|answer| answer.ends_with("\r\n\r\nthe site\n"))
    };
    eventually("the site is served over IPv6", || {
        serves((Ipv6Addr::LOCALHOST, six).into())
    });
    eventually("and over IPv4", || {
        serves((Ipv4Addr::LOCALHOST, four).into())
    });
    let listed = place.run(&["ps"]);
    listed.expect(0, &format!("[::1]:{six}:80"));
    place.run(&["stop", "web"]).expect(0, "");
}

/// No timer of the guest's network is armed when nothing happens: router solicitations
/// would come within 4 s, and there is no router that could answer.
#[test]
fn an_idle_appliance_with_a_network_causes_no_exit() {
    let Some(image) = http() else { return };
    let place = with_site();
    let publish = format!("{}:80", free_port());
    run(&place, image.to_str().unwrap(), &["-p", &publish]);
    eventually("the appliance serves", || {
        place.run(&["logs", "web"]).out.contains("http: serving")
    });
    let activity = || {
        let stats = place.run(&["stats", "web", "--json"]);
        let stats: serde_json::Value = serde_json::from_str(&stats.out).unwrap();
        let vcpu = &stats["vcpus"][0];
        ["halt_exits", "irq_injections", "exits"].map(|name| vcpu["kvm"][name].as_u64())
    };
    let mut before = activity();
    eventually("the vCPU halts for a second", || {
        thread::sleep(Duration::from_secs(1));
        let last = std::mem::replace(&mut before, activity());
        last == before
    });
    thread::sleep(Duration::from_secs(4));
    assert_eq!(activity(), before);
    place.run(&["stop", "web"]).expect(0, "");
}
