//! memcached's own test suite, which speaks to a `kv` of the host by wire: memcached 1.6.18, the version
//! whose protocol `kv` has. `scripts/setup.sh test` fetches its source; without it this prints SKIP.
//!
//! Each file of the suite is in [`FILES`]: it must pass as a whole, or there is a reason why it is not run.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use tare_guest_kv::host::{self, HostClock};
use tare_guest_kv::server::{Server, Settings};
use tare_guest_kv::store::Clock;

/// What becomes of a file of the suite.
enum Plan {
    /// It runs with a cache of this many MiB.
    Passes(usize),
    /// The same, and these cases of it fail.
    PassesBut(usize, &'static [u32], &'static str),
    /// It does not run.
    Exempt(&'static str),
}

use Plan::{Exempt, Passes, PassesBut};

/// Memory of a memcached without `-m`, MiB.
const DEFAULT: usize = 64;

const BINARY: &str = "the binary protocol, which kv does not speak";
const CLASSES: &str = "figures of a class of slabs; kv has one for all items";
const EXTSTORE: &str = "storage on flash";
const LAST_ACCESS: &str = "the flag `l`, the time since the last access, which kv does not keep";
const LOG: &str = "memcached's log of events (`watch`)";
const OPTION: &str =
    "an option of memcached's command line, or `cache_memlimit`, which kv does not have";
const PROCESS: &str = "starts and stops memcached itself";
const SKIPS: &str = "skips itself";
const SLABS: &str = "slabs, which kv's memory does not have";
const SOURCE: &str = "the style of memcached's source";
const STATS: &str = "figures that kv does not keep, and `stats detail` and `conns`";
const TLS: &str = "TLS";

const FILES: &[(&str, Plan)] = &[
    ("00-startup.t", Exempt(PROCESS)),
    ("64bit.t", Exempt(SLABS)),
    ("ascii-auth.t", Exempt(PROCESS)),
    ("binary-extstore.t", Exempt(EXTSTORE)),
    ("binary-get.t", Exempt(BINARY)),
    ("binary-sasl.t", Exempt(BINARY)),
    ("binary.t", Exempt(BINARY)),
    ("bogus-commands.t", Passes(DEFAULT)),
    ("cas.t", Passes(DEFAULT)),
    ("chunked-extstore.t", Exempt(EXTSTORE)),
    ("chunked-items.t", Passes(DEFAULT)),
    ("conn-limits.t", Exempt(OPTION)),
    ("daemonize.t", Exempt(PROCESS)),
    ("dash-M.t", Exempt(OPTION)),
    ("dyn-maxbytes.t", Exempt(OPTION)),
    ("error-extstore.t", Exempt(EXTSTORE)),
    ("evictions.t", Passes(3)),
    ("expirations.t", Passes(DEFAULT)),
    ("extstore-buckets.t", Exempt(EXTSTORE)),
    ("extstore-jbod.t", Exempt(EXTSTORE)),
    ("extstore.t", Exempt(EXTSTORE)),
    ("flags.t", Passes(DEFAULT)),
    ("flush-all.t", PassesBut(DEFAULT, &[25, 26, 27], OPTION)),
    ("getandtouch.t", Passes(DEFAULT)),
    ("getset.t", Passes(128)),
    ("idle-timeout.t", Exempt(PROCESS)),
    ("incrdecr.t", Passes(DEFAULT)),
    ("issue_104.t", Passes(DEFAULT)),
    ("issue_108.t", Passes(DEFAULT)),
    ("issue_14.t", PassesBut(DEFAULT, &[21], CLASSES)),
    ("issue_140.t", Exempt(SKIPS)),
    ("issue_152.t", Passes(DEFAULT)),
    ("issue_163.t", PassesBut(DEFAULT, &[4], CLASSES)),
    ("issue_183.t", PassesBut(DEFAULT, &[5], STATS)),
    ("issue_192.t", Passes(DEFAULT)),
    ("issue_22.t", PassesBut(3, &[43, 84], CLASSES)),
    ("issue_260.t", Exempt(SKIPS)),
    ("issue_29.t", Passes(DEFAULT)),
    ("issue_3.t", Passes(DEFAULT)),
    ("issue_41.t", Passes(DEFAULT)),
    ("issue_42.t", PassesBut(DEFAULT, &[11], CLASSES)),
    ("issue_50.t", Exempt(BINARY)),
    ("issue_61.t", PassesBut(DEFAULT, &[7], STATS)),
    ("issue_67.t", Exempt(PROCESS)),
    ("issue_68.t", Passes(DEFAULT)),
    ("issue_70.t", Passes(DEFAULT)),
    ("item_size_max.t", Exempt(PROCESS)),
    ("line-lengths.t", Exempt(SOURCE)),
    ("lru-crawler.t", Exempt(SLABS)),
    ("lru-maintainer.t", Exempt(SLABS)),
    ("lru.t", Passes(DEFAULT)),
    ("malicious-commands.t", Passes(DEFAULT)),
    ("maxconns.t", Exempt(PROCESS)),
    ("metaget.t", PassesBut(DEFAULT, &[110], LAST_ACCESS)),
    ("misbehave.t", Exempt(PROCESS)),
    ("multiversioning.t", Passes(DEFAULT)),
    ("noreply.t", Passes(DEFAULT)),
    ("proxy.t", Exempt(PROCESS)),
    ("quit.t", Passes(DEFAULT)),
    ("refhang.t", Exempt(SKIPS)),
    ("restart.t", Exempt(PROCESS)),
    ("shutdown.t", Exempt(PROCESS)),
    ("slabhang.t", Exempt(SLABS)),
    ("slabs-reassign-chunked.t", Exempt(SLABS)),
    ("slabs-reassign2.t", Exempt(SLABS)),
    ("slabs_reassign.t", Exempt(SLABS)),
    ("ssl_cert_refresh.t", Exempt(TLS)),
    ("ssl_ports.t", Exempt(TLS)),
    ("ssl_proto_version.t", Exempt(TLS)),
    ("ssl_session_resumption.t", Exempt(TLS)),
    ("ssl_settings.t", Exempt(TLS)),
    ("ssl_verify_modes.t", Exempt(TLS)),
    ("stats-conns.t", Exempt(STATS)),
    ("stats-detail.t", Exempt(STATS)),
    ("stats.t", Exempt(STATS)),
    ("strtol-testing.t", PassesBut(DEFAULT, &[2], SLABS)),
    ("touch.t", Passes(DEFAULT)),
    ("udp.t", Exempt(PROCESS)),
    ("unixsocket.t", Exempt(PROCESS)),
    ("watcher.t", Exempt(LOG)),
    ("watcher_connid.t", Exempt(LOG)),
    ("whitespace.t", Exempt(SOURCE)),
];

/// The suite's directory, if set-up has fetched it.
fn suite() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let suite = root.join("target/sources/memcached-1.6.18/t");
    if suite.is_dir() {
        return suite.canonicalize().ok();
    }
    println!("SKIP: no source of memcached 1.6.18 in target/sources (scripts/setup.sh test)");
    None
}

/// Runs a file of the suite. It moves the server's clock where memcached's debug build does by a
/// command. A file that waits for an answer that does not come ends by the alarm.
const RUN: &str = r#"
    alarm 300;
    my $file = $0 = shift;
    require MemcachedTest;
    no warnings "redefine";
    *MemcachedTest::mem_move_time = sub {
        my $clock = IO::Socket::INET->new(PeerAddr => $ENV{KV_CLOCK}) or die "no clock";
        print $clock "$_[1]\n";
        <$clock>;
    };
    do $file;
    die $@ if $@;
"#;

/// The host's clock, put forward by this many seconds.
#[derive(Clone, Default)]
struct MovedClock(Arc<AtomicU32>);

impl Clock for MovedClock {
    fn unix_s(&self) -> u32 {
        HostClock.unix_s() + self.0.load(Ordering::SeqCst)
    }
}

impl MovedClock {
    /// Puts it forward by the seconds in a line of each client, then answers.
    fn serve(&self, listener: &TcpListener) {
        for client in listener.incoming().map_while(Result::ok) {
            let mut line = String::new();
            let mut client = BufReader::new(client);
            client.read_line(&mut line).unwrap();
            self.0
                .fetch_add(line.trim().parse().unwrap(), Ordering::SeqCst);
            client.get_mut().write_all(b"OK\n").unwrap();
        }
    }
}

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Starts a `kv` in this process, which serves until the process ends, and what moves its clock.
fn kv(mebibytes: usize) -> [SocketAddr; 2] {
    let (listener, address) = listen();
    let settings = Settings {
        memory_bytes: mebibytes << 20,
        port: address.port(),
        ..Settings::default()
    };
    let clock = MovedClock::default();
    let server = Arc::new(Server::new(settings, clock.clone()));
    std::thread::spawn(move || host::serve(&listener, &server));
    let (moves, clock_address) = listen();
    std::thread::spawn(move || clock.serve(&moves));
    [address, clock_address]
}

/// Where the suite looks for memcached: a program that supports nothing.
struct BuildDirectory(PathBuf);

impl BuildDirectory {
    fn make() -> Self {
        let name = format!("memcached-{}", std::process::id());
        let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&place).unwrap();
        let program = place.join("memcached-debug");
        std::fs::write(&program, "#!/bin/sh\n").unwrap();
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&program, executable).unwrap();
        Self(place)
    }
}

impl Drop for BuildDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a file, of which the `known` cases fail; what it printed if it went otherwise.
fn run(
    suite: &Path,
    file: &str,
    mebibytes: usize,
    known: &[u32],
    place: &BuildDirectory,
) -> Result<(), String> {
    let [address, clock] = kv(mebibytes);
    let output = Command::new("perl")
        .arg("-I")
        .arg(suite.join("lib"))
        .args(["-e", RUN])
        .arg(suite.join(file))
        .current_dir(&place.0)
        .env("T_MEMD_USE_DAEMON", address.to_string())
        .env("KV_CLOCK", clock.to_string())
        .env_remove("SSL_TEST")
        // At its end it signals the memcached that it has not started: maybe its group.
        .process_group(0)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("perl cannot be started: {error}"))?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let number = |line: &str| line.split(' ').next()?.parse::<u32>().ok();
    let numbers = |start: &str| -> Vec<u32> {
        let lines = printed.lines().filter_map(|line| line.strip_prefix(start));
        lines.filter_map(number).collect()
    };
    let (passed, failed) = (numbers("ok "), numbers("not ok "));
    // The status is the number of failures, or says that the file did not come to its end.
    let ended = output.status.code() == Some(known.len() as i32);
    // A file without a case has skipped itself.
    if ended && failed == known && !passed.is_empty() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let errors: Vec<&str> = errors.lines().take(20).collect();
    let (status, passed) = (output.status, passed.len());
    Err(format!(
        "{status}, {passed} ok, failed: {failed:?}, {errors:#?}"
    ))
}

#[test]
fn memcacheds_own_suite_passes_by_wire() {
    let Some(suite) = suite() else { return };
    let files = FILES.iter().filter_map(|(name, plan)| match plan {
        Passes(mebibytes) => Some((*name, *mebibytes, &[][..])),
        PassesBut(mebibytes, known, _) => Some((*name, *mebibytes, *known)),
        Exempt(_) => None,
    });
    let (files, failures) = (Mutex::new(files), Mutex::new(String::new()));
    let place = BuildDirectory::make();
    let next = || files.lock().unwrap().next();
    // Some files wait for things to expire.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some((name, mebibytes, known)) = next() {
                    if let Err(why) = run(&suite, name, mebibytes, known, &place) {
                        writeln!(failures.lock().unwrap(), "{name}: {why}").unwrap();
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{failures}");
}

/// None is forgotten, and none is in the list that the suite has not.
#[test]
fn each_file_of_the_suite_runs_or_has_a_reason() {
    let names: BTreeSet<&str> = FILES.iter().map(|(name, _)| *name).collect();
    assert_eq!(names.len(), FILES.len(), "one is there twice");
    for (name, plan) in FILES {
        if let Exempt(why) | PassesBut(_, _, why) = plan {
            assert!(!why.is_empty(), "{name} has no reason");
        }
    }
    let Some(suite) = suite() else { return };
    let entries = std::fs::read_dir(suite).unwrap();
    let there = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let there: BTreeSet<String> = there.filter(|name| name.ends_with(".t")).collect();
    let listed: BTreeSet<String> = names.into_iter().map(String::from).collect();
    assert_eq!(there, listed);
}
