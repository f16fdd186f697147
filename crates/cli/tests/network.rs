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
use support::{IO_TIMEOUT, TestDir, eventually, free_port, get, served};

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

fn run(place: &TestDir, image: &str, args: &[&str]) {
    let site = place.path().join("site");
    let first = ["run", image, "-d", "--name", "web", "--root"];
    let args = [&first[..], &[site.to_str().unwrap()], args].concat();
    place.run(&args).expect(0, "web");
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
    let args = ["-p", &publish, "--site", &file];
    run(&place, image.to_str().unwrap(), &args);
    eventually("the site is served", || get(port, "/").is_ok());
    let has = |path: &str, parts: &[&str]| {
        let answer = served(port, path);
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
    // The table is not a file of the site.
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
        stream.set_read_timeout(Some(IO_TIMEOUT)).unwrap();
        let head = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(of("B.Example:80").ends_with("\r\n\r\nof b\n"));
    assert!(of("c.example").ends_with("\r\n\r\nthe site\n"));
    let root = place.path().join("site");
    let args = ["reload", "web", "--root", root.to_str().unwrap()];
    place
        .run(&args)
        .expect(2, "\"web\" was started without --reload");
    place.run(&["stop", "web"]).expect(0, "");
}

/// One request of a connection that stays, whose answer ends so.
fn ask(stream: &mut TcpStream, ending: &str) {
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n")
        .unwrap();
    let mut answer = Vec::new();
    let mut bytes = [0; 4096];
    while !answer.ends_with(ending.as_bytes()) {
        let count = stream.read(&mut bytes).unwrap();
        let so_far = String::from_utf8_lossy(&answer);
        assert_ne!(count, 0, "ended without {ending:?}: {so_far}");
        answer.extend_from_slice(&bytes[..count]);
    }
}

/// Another root for a machine that runs: an answer that is being sent ends with its own file, a
/// connection stays, and what is wrong changes nothing.
#[test]
fn a_running_site_gets_another_root() {
    let Some(image) = http() else { return };
    let place = with_site();
    // More than sockets and passt hold.
    let large = |byte| vec![byte; 12 << 20];
    place.file("site/large", &large(b'1'));
    let port = free_port();
    let publish = format!("{port}:80");
    let args = ["-p", &publish, "--reload", "--cmdline", "metrics=on"];
    run(&place, image.to_str().unwrap(), &args);
    eventually("the site is served", || get(port, "/").is_ok());
    let heap_bytes = || {
        let answer = served(port, "/metrics");
        let mut lines = answer.lines();
        let value = lines.find_map(|line| line.strip_prefix("tare_heap_bytes "));
        value.and_then(|value| value.parse::<u64>().ok()).unwrap()
    };
    let heap_before = heap_bytes();
    let connect = || {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        let limit = Some(Duration::from_secs(20));
        stream.set_read_timeout(limit).unwrap();
        stream
    };
    let (mut kept, mut sending) = (connect(), connect());
    ask(&mut kept, "\r\n\r\nthe site\n");
    let request = b"GET /large HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
    sending.write_all(request).unwrap();
    let mut answer = vec![0; 64 << 10];
    sending.read_exact(&mut answer).unwrap();

    let directory = |name: &str| {
        let path = place.path().join(name);
        std::fs::create_dir(&path).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let reload = |root: &str, more: &[&str]| {
        let args = ["reload", "web", "--root", root];
        place.run(&[&args[..], more].concat())
    };
    let next = directory("next");
    place.file("next/index.html", b"the next site\n");
    place.file("next/large", &large(b'2'));
    reload(&next, &[]).expect(0, "web: serving 2 files");
    ask(&mut kept, "\r\n\r\nthe next site\n");
    sending.read_to_end(&mut answer).unwrap();
    let head = answer.windows(4).position(|it| it == b"\r\n\r\n").unwrap();
    assert!(answer[head + 4..] == large(b'1'), "not the old file");
    let has = |path: &str, part: &str| {
        let answer = served(port, path);
        assert!(answer.contains(part), "{path}: {answer}");
    };
    has("/metrics", "\nhttp_reloads_total 1\n");
    // The first root's memory is the heap's now.
    eventually("the first root's memory is free", || {
        heap_bytes() >= heap_before + (12 << 20)
    });

    // The host refuses, then the guest.
    reload("/no/such/directory", &[]).expect(40, "does not exist");
    let wrong = place.file("wrong.toml", b"[[paths]]\n");
    reload(&next, &["--site", &wrong]).expect(47, "unknown key \"paths\"");
    let logs = place.file("logs.toml", b"[log]\nformat = \"json\"\n");
    reload(&next, &["--site", &logs]).expect(47, "cannot change while the machine runs");
    let too_large = directory("too-large");
    let file = std::fs::File::create(place.path().join("too-large/file")).unwrap();
    file.set_len(48 << 20).unwrap();
    reload(&too_large, &[]).expect(41, "KiB more are needed");
    has("/metrics", "\nhttp_reloads_refused_total 2\n");
    ask(&mut kept, "\r\n\r\nthe next site\n");

    let text = b"[[path]]\nmatch = \"/index.html\"\ncache_control = \"no-cache\"\n";
    let rules = place.file("rules.toml", text);
    place.file("next/index.html", b"the third site\n");
    reload(&next, &["--site", &rules]).expect(0, "web: serving 2 files");
    ask(&mut kept, "\r\n\r\nthe third site\n");
    has("/", "\r\nCache-Control: no-cache\r\n");
    place.run(&["stop", "web"]).expect(0, "");
    assert_eq!(place.run_directories(), [""; 0]);
}

/// The access log, with what the console makes of a client's bytes.
#[test]
fn a_site_logs_its_answers_to_the_console() {
    let Some(image) = http() else { return };
    let place = with_site();
    let file = place.file("site.toml", b"[log]\nformat = \"json\"\n");
    let port = free_port();
    let publish = format!("{port}:80");
    let args = ["-p", &publish, "--site", &file];
    run(&place, image.to_str().unwrap(), &args);
    eventually("the site is served", || get(port, "/").is_ok());
    served(port, "/x\"y");
    let expected = "\"request\":\"GET /x\\u0022y HTTP/1.1\"";
    eventually("the answer is logged", || {
        let logs = place.run(&["logs", "web"]).out;
        // The rest of its line may still be on its way.
        logs.contains(expected) && logs.ends_with('\n')
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
    stream.set_read_timeout(Some(IO_TIMEOUT))?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn a_port_is_published_at_an_ipv6_address() {
    let Some(image) = http() else { return };
    let (six, four) = (free_port(), free_port());
    if TcpListener::bind((Ipv6Addr::LOCALHOST, six)).is_err() {
        skip("this host has no IPv6");
        return;
    }
    let place = with_site();
    let publish = [format!("[::1]:{six}:80"), format!("{four}:80")];
    let args = ["-p", &publish[0], "-p", &publish[1]];
    run(&place, image.to_str().unwrap(), &args);
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
