//! redis' own test suite against Debian's redis-server in machines, one for each of the suite's units,
//! by its mode for servers that it has not started. `suites/redis.txt` names the units and tests that
//! cannot run so, and why. SKIP without /dev/kvm, Tcl, the suite's source, Debian's packages or the
//! image `linux`.
#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use support::needs::{built, kvm, skip};
use support::packages::Packages;
use support::suites::{at_once, entries, fetched, fits};
use support::{CommandOutput, TestDir, end, end_within, eventually, free_port, installed};

const EXEMPT: &str = include_str!("suites/redis.txt");
/// In the list: all tests of a unit.
const ALL: &str = "*";
/// The packages of redis-server and all of its libraries.
const PACKAGES: [&str; 16] = [
    "redis-server",
    "redis-tools",
    "libc6",
    "libatomic1",
    "libgcc-s1",
    "libstdc++6",
    "liblzf1",
    "libjemalloc2",
    "libsystemd0",
    "libssl3",
    "libcap2",
    "libgcrypt20",
    "libgpg-error0",
    "liblzma5",
    "libzstd1",
    "liblz4-1",
];
/// Replicas and saved files take a second process; long random sequences take long.
const TAGS: &str = "-needs:repl -needs:save -slow";
/// Units at a time.
const AT_A_TIME: usize = 4;
/// Tries of a unit that fails: some tests measure time, and a busy machine is late.
const TRIES: usize = 3;
/// Far beyond what a unit takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(600);
/// Below the port that is given as the first for servers, the suite takes one of this many for itself.
const OWN_PORTS: u16 = 32;
/// What passes at least where the suite's source is.
const FEWEST: usize = 1_000;

/// An entry of the list: a unit, a test of it, and why it does not run.
struct Exempt {
    unit: &'static str,
    test: &'static str,
    reason: &'static str,
}

fn exempt() -> impl Iterator<Item = Exempt> {
    entries(EXEMPT).map(|line| {
        let mut fields = line.splitn(3, " | ");
        let mut field = || fields.next().unwrap_or("").trim();
        Exempt {
            unit: field(),
            test: field(),
            reason: field(),
        }
    })
}

/// The suite's source and redis; None where they cannot run.
fn suite() -> Option<(PathBuf, Packages)> {
    if !kvm() || built("linux").is_none() {
        return None;
    }
    if !installed("tclsh") {
        skip("tcl is not installed");
        return None;
    }
    Some((source()?, Packages::get("redis", &PACKAGES)?))
}

/// The suite's source, if set-up has fetched it.
fn source() -> Option<PathBuf> {
    let found = fetched("redis-");
    if found.is_none() {
        tare_vmtest::lacks("the source of redis (make test fetches it)");
    }
    found
}

/// A copy of the suite, which writes beside itself.
fn copied(place: &TestDir, source: &Path) -> PathBuf {
    let suite = place.path().join("suite");
    fs::create_dir(&suite).unwrap();
    let copy = Command::new("cp")
        .arg("-r")
        .arg(source.join("tests"))
        .arg(&suite)
        .status();
    assert!(copy.unwrap().success());
    suite
}

/// What the suite's main program does with these arguments.
fn tests(suite: &Path, args: &[&str]) -> Command {
    let mut tests = Command::new("tclsh");
    tests
        .arg("tests/test_helper.tcl")
        .args(args)
        .current_dir(suite)
        .env_remove("TERM")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    tests
}

/// Its units.
fn units(suite: &Path) -> Vec<String> {
    let listed = end(tests(suite, &["--list-tests"]).spawn().unwrap());
    assert_eq!(listed.code, Some(0), "{listed:#?}");
    listed.out.lines().map(str::to_owned).collect()
}

/// A root with redis and the configuration that the suite has for it.
fn root(place: &TestDir, suite: &Path, redis: &Packages) -> PathBuf {
    let root = place.path().join("root");
    redis.copy("usr/bin/redis-server", &root);
    fs::create_dir(root.join("etc")).unwrap();
    fs::copy(
        suite.join("tests/assets/default.conf"),
        root.join("etc/redis.conf"),
    )
    .unwrap();
    root
}

fn answers(port: u16) -> bool {
    let answer = || -> std::io::Result<[u8; 5]> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"PING\r\n")?;
        let mut answer = [0; 5];
        stream.read_exact(&mut answer)?;
        Ok(answer)
    };
    answer().is_ok_and(|answer| &answer == b"+PONG")
}

/// A group of processes, of which none outlives this.
struct Group(u32);

impl Drop for Group {
    fn drop(&mut self) {
        let leader = i32::try_from(self.0).ok().and_then(Pid::from_raw);
        let _ = kill_process_group(leader.unwrap(), Signal::KILL);
    }
}

/// Runs a unit against a redis in a separate machine.
fn run(place: &TestDir, suite: &Path, root: &Path, unit: &str) -> CommandOutput {
    let port = free_port();
    let (name, publish) = (format!("redis-{port}"), format!("{port}:6379"));
    let machine = [
        "run",
        "--name",
        &name,
        "-p",
        &publish,
        "--memory",
        "1G",
        "--root",
        root.to_str().unwrap(),
        "--",
        "/usr/bin/redis-server",
        "/etc/redis.conf",
        "--bind",
        "0.0.0.0",
        "--protected-mode",
        "no",
        "--save",
        "",
        "--dir",
        "/tmp",
        // A file that is there from the start, and grows: only its rewriting takes a second process.
        "--appendonly",
        "yes",
        "--auto-aof-rewrite-percentage",
        "0",
    ];
    // Its log goes nowhere: a pipe that no one reads would fill, and redis wait.
    let mut machine = place.tare(&machine);
    let machine = machine.stdout(Stdio::null()).stderr(Stdio::null());
    let machine = machine.spawn().unwrap();
    eventually("redis answers", || answers(port));
    let (port, own) = (port.to_string(), (free_port() + OWN_PORTS).to_string());
    let mut args = vec![
        "--host",
        "127.0.0.1",
        "--port",
        &port,
        "--baseport",
        &own,
        "--single",
        unit,
        "--tags",
        TAGS,
    ];
    let skipped: Vec<Exempt> = exempt().filter(|entry| entry.unit == unit).collect();
    for entry in &skipped {
        args.extend(["--skiptest", entry.test]);
    }
    let running = tests(suite, &args).process_group(0).spawn().unwrap();
    let _group = Group(running.id());
    let ended = end_within(LIMIT, running);
    place.run(&["stop", &name]).expect(0, "");
    end(machine);
    ended
}

#[test]
fn rediss_own_suite_passes_in_machines() {
    let Some((source, redis)) = suite() else {
        return;
    };
    let place = TestDir::new();
    let suite = copied(&place, &source);
    let root = root(&place, &suite, &redis);
    let mut units = units(&suite);
    units.retain(|unit| !exempt().any(|entry| entry.test == ALL && fits(entry.unit, unit)));
    let outcome = Mutex::new((0, String::new()));
    at_once(&units, AT_A_TIME, |unit| {
        let begin = Instant::now();
        let mut ended = run(&place, &suite, &root, unit);
        for _ in 1..TRIES {
            if ended.code != Some(0) {
                ended = run(&place, &suite, &root, unit);
            }
        }
        let passed = ended
            .out
            .lines()
            .filter(|line| line.starts_with("[ok]: "))
            .count();
        println!(
            "{unit}: {passed} pass in {:.1} s",
            begin.elapsed().as_secs_f64()
        );
        let mut outcome = outcome.lock().unwrap();
        match ended.code {
            Some(0) => outcome.0 += passed,
            _ => writeln!(outcome.1, "{unit}: {ended:#?}").unwrap(),
        }
    });
    let (passed, failures) = outcome.into_inner().unwrap();
    println!("{passed} tests of {} units pass", units.len());
    assert!(failures.is_empty(), "{failures}");
    assert!(passed >= FEWEST, "{passed} pass");
}

/// None is in the list that the suite has not.
#[test]
fn the_list_of_exempt_units_and_tests_gives_a_reason_for_each() {
    for Exempt { unit, test, reason } in exempt() {
        assert!(
            !test.is_empty() && reason.split_whitespace().count() > 1,
            "{unit} {test}"
        );
    }
    let Some(source) = installed("tclsh").then(source).flatten() else {
        return;
    };
    let place = TestDir::new();
    let there: BTreeSet<String> = units(&copied(&place, &source)).into_iter().collect();
    for Exempt { unit, test, .. } in exempt() {
        assert!(there.iter().any(|one| fits(unit, one)), "{unit}");
        if test != ALL {
            let text = fs::read_to_string(source.join(format!("tests/{unit}.tcl"))).unwrap();
            assert!(
                text.contains(test.trim_start_matches('/')),
                "{unit} has no test {test}"
            );
        }
    }
}
