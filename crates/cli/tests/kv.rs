//! The cache appliance in Tare's own monitor, asked by clients of its host.
//!
//! They need /dev/kvm, passt, `tare-monitor` beside `tare` and the image (`cargo
//! xtask test` builds both), and SKIP without; with TARE_REQUIRE_KVM=1 a skip
//! fails. The client's checks SKIP where libmemcached-tools is not installed.
#![allow(clippy::unwrap_used)]

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use support::needs::{built, passt};
use support::{TestDir, eventually, free_port, installed, output};

/// The image, if it is built and machines with a network can run here.
fn image() -> Option<PathBuf> {
    passt().then(|| built("kv")).flatten()
}

/// The answers to `bytes`, after which the server is to end.
fn ask(port: u16, bytes: &[u8]) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    stream.write_all(bytes)?;
    stream.write_all(b"quit\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// A machine with the cache, stopped when dropped.
struct Cache {
    place: TestDir,
    port: u16,
}

impl Cache {
    fn start(image: &Path, cmdline: &str) -> Self {
        let (place, port) = (TestDir::new(), free_port());
        let publish = format!("{port}:11211");
        let image = image.to_str().unwrap();
        let cache = Self { place, port };
        let run = ["run", image, "-d", "--name", "cache", "-p", &publish];
        let ended = cache
            .place
            .run(&[&run[..], &["--cmdline", cmdline]].concat());
        assert_eq!(ended.code, Some(0), "{ended:#?}");
        eventually("the cache answers", || {
            ask(port, b"version\r\n").is_ok_and(|answer| answer.starts_with("VERSION "))
        });
        cache
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.place.run(&["stop", "cache"]);
    }
}

#[test]
fn the_cache_appliance_serves_and_keeps_to_its_memory() {
    let Some(image) = image() else { return };
    let cache = Cache::start(&image, "mem=1");
    let answer = ask(
        cache.port,
        b"set a 5 0 3\r\nabc\r\nget a b\r\nset n 0 0 1\r\n9\r\nincr n 1\r\nbad\r\n",
    );
    let expected = "STORED\r\nVALUE a 5 3\r\nabc\r\nEND\r\nSTORED\r\n10\r\nERROR\r\n";
    assert_eq!(answer.unwrap(), expected);
    let value = "v".repeat(100_000);
    let sets: String = (0..12)
        .map(|n| format!("set big{n} 0 0 100000 noreply\r\n{value}\r\n"))
        .collect();
    let answer = ask(cache.port, format!("{sets}get a\r\nstats\r\n").as_bytes()).unwrap();
    assert!(answer.starts_with("END\r\nSTAT "), "{answer}");
    assert!(
        answer.contains("STAT limit_maxbytes 1048576\r\n"),
        "{answer}"
    );
    assert!(answer.contains("STAT curr_items 10\r\n"), "{answer}");
}

#[test]
fn figures_of_cache_and_machine_are_scraped_where_that_is_on() {
    let Some(image) = image() else { return };
    let cache = Cache::start(&image, "metrics=on");
    ask(cache.port, b"set a 0 0 1\r\n1\r\nget a\r\n").unwrap();
    let mut stream = TcpStream::connect(("127.0.0.1", cache.port)).unwrap();
    let wait = Some(Duration::from_secs(20));
    stream.set_read_timeout(wait).unwrap();
    let request = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";
    stream.write_all(request).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    for line in ["kv_get_hits_total 1", "kv_curr_items 1"] {
        assert!(answer.lines().any(|it| it == line), "{answer}");
    }
    assert!(answer.contains("\ntare_heap_used_bytes "), "{answer}");
}

#[test]
fn libmemcacheds_conformance_test_passes() {
    let Some(image) = image() else { return };
    if !installed("memccapable") {
        tare_vmtest::lacks("memccapable (libmemcached-tools) is not installed");
        return;
    }
    let cache = Cache::start(&image, "");
    let port = cache.port.to_string();
    let run = output(
        "memccapable",
        &["-a", "-t", "20", "-h", "127.0.0.1", "-p", &port],
    );
    let said = String::from_utf8_lossy(&[run.stdout, run.stderr].concat()).into_owned();
    assert!(said.contains("All tests passed"), "{said}");
}

/// What a program with pymemcache does.
const PYMEMCACHE: &str = r#"
import sys
from pymemcache.client.base import Client
c = Client(("127.0.0.1", int(sys.argv[1])), timeout=20, default_noreply=False)
assert c.set("a", b"1") and c.add("a", b"2") is False and c.replace("a", b"10")
assert c.append("a", b"0") and c.prepend("a", b"1") and c.get("a") == b"1100"
assert c.incr("a", 1) == 1101 and c.decr("a", 2) == 1099 and c.incr("none", 1) is None
value, token = c.gets("a")
assert c.cas("a", b"x", token) and c.cas("a", b"y", token) is False
assert c.set_many({"k%d" % n: b"v" * n for n in range(20)}) == []
assert len(c.get_many(["k%d" % n for n in range(25)])) == 20
assert c.touch("a", 100) and c.delete("a") and c.get("a") is None
assert c.version() and int(c.stats()[b"curr_items"]) == 20
try:
    c.get("k" * 251)
    sys.exit("a key of 251 bytes was taken")
except Exception as error:
    assert "long" in str(error), error
assert c.flush_all() and c.get("k1") is None
print("all as expected")
"#;

#[test]
fn pymemcache_gets_what_it_expects() {
    let Some(image) = image() else { return };
    let python = "/usr/bin/python3";
    let has = std::process::Command::new(python)
        .args(["-c", "import pymemcache"])
        .output();
    if !has.is_ok_and(|output| output.status.success()) {
        tare_vmtest::lacks("python3-pymemcache is not installed");
        return;
    }
    let cache = Cache::start(&image, "");
    let run = output(python, &["-c", PYMEMCACHE, &cache.port.to_string()]);
    let said = String::from_utf8_lossy(&[run.stdout, run.stderr].concat()).into_owned();
    assert!(said.contains("all as expected"), "{said}");
}
