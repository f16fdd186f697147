//! memcached's own test suite against Debian's memcached in machines: where the suite starts a
//! memcached, a machine starts with the same options. `suites/memcached.txt` names the files that
//! cannot run so and the cases that fail, and why. SKIP without /dev/kvm, memcached, perl, the suite's
//! source or the image `linux`.
#![allow(clippy::unwrap_used)]

#[path = "../../../guests/kv/tests/memcached/mod.rs"]
mod memcached;
mod support;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::time::Instant;

use support::needs::{built, kvm, skip};
use support::suites::{at_once, entries, expect_reasons};
use support::{TestDir, eventually, free_port, installed};

const EXEMPT: &str = include_str!("suites/memcached.txt");
/// In the list: all cases of a file.
const ALL: &str = "*";
/// Files at a time: most wait most of the time.
const AT_A_TIME: usize = 6;
/// Tries of a file that fails: some measure time, and a busy machine is late.
const TRIES: usize = 3;
/// A file starts at most 14 memcacheds, and the suite takes two ports for each, one of UDP. The last
/// port is used again and again: a machine that is still ending there has its name.
const PORTS: usize = 32;
/// What passes at least where the suite's source is.
const FEWEST: usize = 20_000;

/// Where the suite looks for memcached, this starts a machine. What asks it for help learns that it has
/// TCP alone. Debian's memcached lacks an option of test builds. Addresses are those of the machine,
/// where published ports end at its network's.
const PROGRAM: &str = r#"
[ "$1" = -h ] && exit 0
words=$(echo "$*" | sed 's/ -o relaxed_privileges//; s/127\.0\.0\.1/0.0.0.0/')
port=${words##* -p }
port=${port%% *}
exec "$TARE" run --name "memcached-$port" -p "$port:$port" --root root --memory 512M -- \
    /bin/memcached $words >>"$port.log" 2>&1
"#;

/// The suite's source; None where it cannot run.
fn suite() -> Option<PathBuf> {
    if !kvm() || built("linux").is_none() {
        return None;
    }
    for program in ["memcached", "perl"] {
        if !installed(program) {
            skip(format!("{program} is not installed"));
            return None;
        }
    }
    memcached::suite()
}

/// The second words of a file's entries in the list.
fn exempt(file: &str) -> impl Iterator<Item = &str> {
    entries(EXEMPT).filter_map(move |line| {
        let mut words = line.split_whitespace();
        (words.next() == Some(file)).then(|| words.next().unwrap())
    })
}

/// Makes what the suite takes for memcached, and its machines' root.
fn prepare(place: &TestDir) {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/cache/root.sh");
    let mut script = Command::new(script);
    let made = script.arg(place.path().join("root")).status();
    assert!(made.unwrap().success());
    memcached::put_program(place.path(), PROGRAM);
}

/// The environment of a file: its own ports, and where machines are.
fn environment(place: &TestDir) -> Vec<(OsString, OsString)> {
    let ports: Vec<String> = (0..PORTS).map(|_| free_port().to_string()).collect();
    let tare = place.tare(&[]);
    let set = tare
        .get_envs()
        .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())));
    let own = [
        ("TARE".into(), tare.get_program().to_owned()),
        ("PORTS".into(), ports.join(" ").into()),
    ];
    set.chain(own).collect()
}

/// What the machines of a file said of themselves, by port.
fn complaints(place: &TestDir, environment: &[(OsString, OsString)]) -> String {
    let ports = environment.iter().find(|(name, _)| name == "PORTS");
    let ports = ports.unwrap().1.to_str().unwrap().split(' ');
    let mut text = String::new();
    for port in ports {
        let log = std::fs::read(place.path().join(format!("{port}.log"))).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        for line in log.lines().filter(|line| line.starts_with("tare")) {
            writeln!(text, "{port}: {line}").unwrap();
        }
    }
    text
}

#[test]
fn memcacheds_own_suite_passes_in_machines() {
    let Some(suite) = suite() else {
        return;
    };
    let place = TestDir::new();
    prepare(&place);
    let mut files: Vec<String> = memcached::files(&suite).into_iter().collect();
    files.retain(|file| !exempt(file).any(|case| case == ALL));
    let outcome = Mutex::new((0, String::new()));
    at_once(&files, AT_A_TIME, |file| {
        let known: Vec<u32> = exempt(file).map(|case| case.parse().unwrap()).collect();
        let begin = Instant::now();
        let run = || {
            let environment = environment(&place);
            memcached::run(&suite, file, &known, place.path(), &environment)
                .map_err(|why| format!("{why}\n{}", complaints(&place, &environment)))
        };
        let ran = (1..TRIES).fold(run(), |ran, _| ran.or_else(|_| run()));
        println!("{file}: {:.1} s", begin.elapsed().as_secs_f64());
        let mut outcome = outcome.lock().unwrap();
        match ran {
            Ok(passed) => outcome.0 += passed,
            Err(why) => writeln!(outcome.1, "{file}: {why}").unwrap(),
        }
    });
    eventually("all machines have ended", || {
        place.run_directories().is_empty()
    });
    let (passed, failures) = outcome.into_inner().unwrap();
    println!("{passed} cases pass");
    assert!(failures.is_empty(), "{failures}");
    assert!(passed >= FEWEST, "{passed} pass");
}

/// None is in the list that the suite has not.
#[test]
fn the_list_of_exempt_files_and_cases_gives_a_reason_for_each() {
    expect_reasons(EXEMPT);
    let word = |line: &str| line.split_whitespace().next().unwrap().to_owned();
    let listed: BTreeSet<String> = entries(EXEMPT).map(word).collect();
    let Some(suite) = memcached::suite() else {
        return;
    };
    assert!(listed.is_subset(&memcached::files(&suite)), "{listed:?}");
}
