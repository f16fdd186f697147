//! memcached's own test suite against a `kv` of the host. Each file of it is in [`FILES`]: it must pass
//! as a whole, or there is a reason why it is not run.

#![allow(clippy::unwrap_used)]

mod memcached;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use tare_guest_kv::host::{self, HostClock};
use tare_guest_kv::server::{Server, Settings};
use tare_guest_kv::store::Clock;
use tempfile::TempDir;

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

/// A directory whose memcached is a program that supports nothing.
fn build_directory() -> TempDir {
    let place = tempfile::tempdir().unwrap();
    memcached::put_program(place.path(), "");
    place
}

/// Runs a file against a `kv`.
fn run(
    suite: &Path,
    file: &str,
    mebibytes: usize,
    known: &[u32],
    place: &Path,
) -> Result<usize, String> {
    let [address, clock] = kv(mebibytes);
    let environment = [("T_MEMD_USE_DAEMON", address), ("CLOCK", clock)]
        .map(|(name, address)| (name.into(), address.to_string().into()));
    memcached::run(suite, file, known, place, &environment)
}

#[test]
fn memcacheds_own_suite_passes_by_wire() {
    let Some(suite) = memcached::suite() else {
        return;
    };
    let files = FILES.iter().filter_map(|(name, plan)| match plan {
        Passes(mebibytes) => Some((*name, *mebibytes, &[][..])),
        PassesBut(mebibytes, known, _) => Some((*name, *mebibytes, *known)),
        Exempt(_) => None,
    });
    let (files, failures) = (Mutex::new(files), Mutex::new(String::new()));
    let place = build_directory();
    let next = || files.lock().unwrap().next();
    // Some files wait for things to expire.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some((name, mebibytes, known)) = next() {
                    if let Err(why) = run(&suite, name, mebibytes, known, place.path()) {
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
    let Some(suite) = memcached::suite() else {
        return;
    };
    let listed: BTreeSet<String> = names.into_iter().map(String::from).collect();
    assert_eq!(memcached::files(&suite), listed);
}
