//! The connection logic against memcached itself: the same bytes to both must
//! give the same answers, but for unique numbers and versions.

#![allow(clippy::unwrap_used)]

mod support;

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use support::{server, talk};
use tempfile::TempDir;

/// An end that comes through whatever a script leaves unfinished but long data.
/// An end of the stream would not do: memcached then drops what it has not sent.
const QUIT: &[u8] = b"\r\nversion\r\nquit\r\n";
/// How long to wait for a server that waits for data.
const QUIET: Duration = Duration::from_secs(2);
/// How many answers of memcached must differ before the test fails.
const TRIES: usize = 5;

/// A memcached on a socket in its own directory, ended when dropped. A free
/// port of loopback would not do: two tests that look for one may find the same.
struct Memcached {
    process: Child,
    directory: TempDir,
}

impl Memcached {
    fn start() -> Result<Self, String> {
        let directory = TempDir::new().map_err(|error| error.to_string())?;
        let stderr =
            File::create(directory.path().join("stderr")).map_err(|error| error.to_string())?;
        let process = Command::new("memcached")
            .args(["-u", "root", "-B", "ascii", "-s"])
            .arg(directory.path().join("socket"))
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .map_err(|error| format!("memcached cannot be started: {error}"))?;
        let this = Self { process, directory };
        let until = Instant::now() + Duration::from_secs(60);
        while this.connect().is_err() {
            assert!(Instant::now() < until, "memcached does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(this)
    }

    fn connect(&self) -> std::io::Result<UnixStream> {
        UnixStream::connect(self.directory.path().join("socket"))
    }

    /// The answers to one connection's bytes.
    fn ask(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = self.connect().unwrap_or_else(|error| {
            let stderr = std::fs::read_to_string(self.directory.path().join("stderr"));
            panic!("memcached does not answer: {error}; it wrote {stderr:?}")
        });
        stream.set_read_timeout(Some(QUIET)).unwrap();
        let mut writer = stream.try_clone().unwrap();
        let mut answers = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                // It may close on garbage before all is written.
                let _ = writer.write_all(bytes);
            });
            let _ = stream.read_to_end(&mut answers);
        });
        answers
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn memcached() -> Option<Memcached> {
    tare_vmtest::or_lacks(Memcached::start())
}

/// Without what may differ: unique numbers and versions.
fn comparable(answers: &[u8]) -> String {
    let text = String::from_utf8_lossy(answers).into_owned();
    let lines = text.split_inclusive('\n').map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["VALUE", key, flags, length, _] => format!("VALUE {key} {flags} {length} CAS\r\n"),
            ["VERSION", ..] => "VERSION\r\n".into(),
            ["HD" | "VA", ..] => without_unique(&words),
            _ => line.into(),
        }
    });
    lines.collect()
}

/// A meta answer without the unique number that the flag `c` shows.
fn without_unique(words: &[&str]) -> String {
    let shown = words.iter().map(|word| {
        let number = word.trim_end().strip_prefix('c');
        if number.is_some_and(|number| number.parse::<u64>().is_ok()) {
            word.replace(|byte: char| byte.is_ascii_digit(), "")
        } else {
            (*word).into()
        }
    });
    shown.collect::<Vec<_>>().join(" ")
}

/// Each script on an empty cache and its own connection. The test asks memcached
/// again where the answers differ: its clock ticks once a second, so a script that it
/// began before a tick may show an item's time as one second less, and a host
/// without a free CPU may not run it within [`QUIET`]. A fault of ours differs
/// each time.
fn compare(memcached: &Memcached, script: &[u8]) {
    let script = [script, QUIT].concat();
    let ours = comparable(&talk(&server(), [script.clone()]).bytes);
    let mut theirs = String::new();
    for _ in 0..TRIES {
        memcached.ask(b"flush_all\r\nquit\r\n");
        theirs = comparable(&memcached.ask(&script));
        if ours == theirs {
            return;
        }
    }
    let shown = String::from_utf8_lossy(&script[..script.len().min(3000)]);
    panic!("to {shown:?}\nours   {ours:?}\ntheirs {theirs:?}");
}

#[test]
fn scripted_exchanges_are_answered_alike() {
    let Some(memcached) = memcached() else {
        return;
    };
    for script in include_str!("exchanges.txt").lines() {
        compare(&memcached, &unescape(script));
    }
    let (k250, k251) = ("k".repeat(250), "k".repeat(251));
    for key in [k250, k251] {
        let script = format!(
            "set {key} 0 0 1\r\nx\r\nset {key} 0 0 1 noreply\r\nx\r\n\
            touch {key} 0\r\nincr {key} 1\r\ndelete {key}\r\ndelete {key} noreply\r\n"
        );
        compare(&memcached, script.as_bytes());
        // Alone: memcached drops what was answered before in the pipeline.
        compare(&memcached, format!("get a {key}\r\n").as_bytes());
    }
    let keys: String = (0..400).map(|n| format!(" key-{n}")).collect();
    compare(
        &memcached,
        format!("get{keys}\r\ngats 0{keys}\r\n").as_bytes(),
    );
    for length in [1_000_000, 1_048_577, 3_000_000] {
        let value = "v".repeat(length);
        let script = format!(
            "set a 0 0 1\r\nx\r\nset a 0 0 {length}\r\n{value}\r\nget a\r\n\
            append a 0 0 {length}\r\n{value}\r\nadd a 0 0 {length} noreply\r\n{value}\r\nget a\r\n"
        );
        compare(&memcached, script.as_bytes());
    }
}

/// `\r`, `\n`, `\0` and `\xHH` for themselves; a line's end is CR LF.
fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            bytes.push(c as u8);
            continue;
        }
        bytes.push(match rest.next().unwrap() {
            'r' => b'\r',
            'n' => b'\n',
            '0' => 0,
            _ => {
                let digits: String = rest.by_ref().take(2).collect();
                u8::from_str_radix(&digits, 16).unwrap()
            }
        });
    }
    bytes
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![4 => Just("a"), 4 => Just("b"), 2 => Just("c"), 1 => Just("noreply"), 1 => Just("0")]
        .prop_map(String::from)
}

fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => (0..12u32).prop_map(|n| n.to_string()),
        2 => any::<u64>().prop_map(|n| n.to_string()),
        1 => any::<i32>().prop_map(|n| n.to_string()),
        1 => "[-+0-9x.\t]{1,4}",
        1 => Just("99999999999999999999999".into()),
    ]
}

/// Times far from now, so that no second that passes matters.
fn exptime() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => Just("0"), 2 => Just("1000"), 1 => Just("-1"), 1 => Just("2592001"),
        1 => Just("2147483647"), 1 => Just("x"), 1 => Just("99999999999"),
    ]
    .prop_map(String::from)
}

fn noreply() -> impl Strategy<Value = &'static str> {
    prop_oneof![6 => Just(""), 2 => Just(" noreply"), 1 => Just(" more")]
}

/// Numbers stand without zeros or blanks around them, so that no sum is shorter
/// than what it replaces: memcached pads a shorter one or not, depending on
/// whether an earlier answer still holds the item. The scripts have the padding.
fn storage() -> impl Strategy<Value = String> {
    let verb = prop_oneof![
        4 => Just("set"), 1 => Just("add"), 1 => Just("replace"), 1 => Just("append"),
        1 => Just("prepend"), 1 => Just("cas"),
    ];
    let value = prop_oneof![3 => "[a-c]{0,30}", 3 => "[1-9][0-9]{0,14}"];
    let length = prop_oneof![12 => Just(0), 1 => Just(1), 1 => Just(-1)];
    (verb, key(), number(), exptime(), value, length, noreply()).prop_map(
        |(verb, key, flags, exptime, value, off, end)| {
            let length = value.len() as i64 + off;
            let cas = if verb == "cas" { " 987654321" } else { "" };
            format!("{verb} {key} {flags} {exptime} {length}{cas}{end}\r\n{value}\r\n")
        },
    )
}

fn command() -> impl Strategy<Value = String> {
    let sum = prop_oneof![8 => 0..1000u64, 1 => 0..(1u64 << 48)].prop_map(|n| n.to_string());
    let delta = prop_oneof![8 => sum, 1 => "[-+x.\t]{1,4}", 1 => Just("9".repeat(23))];
    let get = prop_oneof![Just("get"), Just("gets")];
    let gat = prop_oneof![Just("gat"), Just("gats")];
    let lone = prop_oneof![
        Just("version"),
        Just("flush_all"),
        Just("verbosity 1"),
        Just("verbosity"),
        Just(""),
        Just("gett a"),
        Just("get"),
        Just("stats nothing"),
        Just("touch a"),
        Just("flush_all 0 noreply"),
    ];
    prop_oneof![
        6 => storage(),
        4 => (get, prop::collection::vec(key(), 1..5))
            .prop_map(|(get, keys)| format!("{get} {}\r\n", keys.join(" "))),
        1 => (gat, exptime(), key()).prop_map(|(gat, exp, key)| format!("{gat} {exp} {key}\r\n")),
        3 => (key(), delta, noreply())
            .prop_map(|(key, by, end)| format!("incr {key} {by}{end}\r\n")),
        1 => (key(), noreply()).prop_map(|(key, end)| format!("delete {key}{end}\r\n")),
        1 => (key(), exptime(), noreply())
            .prop_map(|(key, exp, end)| format!("touch {key} {exp}{end}\r\n")),
        1 => lone.prop_map(|line| format!("{line}\r\n")),
        1 => "[a-z0 ]{0,12}".prop_map(|line| format!("{line}\n")),
    ]
}

#[test]
fn random_exchanges_are_answered_alike() {
    let Some(memcached) = memcached() else {
        return;
    };
    let mut runner = TestRunner::deterministic();
    let scripts = prop::collection::vec(command(), 1..80);
    for _ in 0..300 {
        let script = scripts.new_tree(&mut runner).unwrap().current().concat();
        compare(&memcached, script.as_bytes());
    }
}
