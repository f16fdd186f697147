//! The Open POSIX Test Suite, from Debian's source of it, in machines: clocks, timers, signals,
//! threads, scheduling, semaphores, mappings, asynchronous reads and writes. All its tests become
//! one program, which a machine runs for each. `suites/posix.txt` names those that cannot run
//! there, and why. SKIP without /dev/kvm, a compiler, the suite's source or the image `linux`.
#![allow(clippy::unwrap_used)]

mod support;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use support::needs::{built, kvm, skip};
use support::suites::{at_once, expect_reasons, fetched, is_exempt};
use support::{CommandOutput, TestDir, end_or_kill, installed};

const EXEMPT: &str = include_str!("suites/posix.txt");
/// Interfaces that are the C library's alone.
const LIBRARY: [&str; 7] = [
    "asctime",
    "ctime",
    "difftime",
    "gmtime",
    "localtime",
    "mktime",
    "strftime",
];
/// An interface with a file for each signal, and how many of them are taken.
const BY_SIGNAL: (&str, u32) = ("sigaction", 4);
/// Machines at a time: most wait most of the time.
const AT_A_TIME: usize = 8;
/// Tries of a test that fails: some measure time, and a busy machine is late.
const TRIES: usize = 3;
/// What passes at least where the suite's source is.
const FEWEST: usize = 500;
/// A test that takes longer is killed, and fails.
const LIMIT: Duration = Duration::from_secs(120);
/// Characters of what a test prints: one may print without an end.
const MOST_SHOWN: usize = 2000;
/// The suite's statuses (`include/posixtest.h`).
const PASS: i32 = 0;
const UNSUPPORTED: i32 = 4;
const UNTESTED: i32 = 5;

/// A test of the suite.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Test {
    interface: String,
    name: String,
    source: PathBuf,
}

impl Test {
    /// Its function in the program, and its word.
    fn symbol(&self) -> String {
        format!("{}_{}", self.interface, self.name.replace('-', "_"))
    }
}

/// The suite's source; None where it cannot run.
fn suite() -> Option<PathBuf> {
    if !kvm() || built("linux").is_none() {
        return None;
    }
    for program in ["gcc", "objcopy"] {
        if !installed(program) {
            skip(format!("{program} is not installed"));
            return None;
        }
    }
    let found = fetched("posixtestsuite");
    if found.is_none() {
        tare_vmtest::lacks("the source of the Open POSIX Test Suite (make test fetches it)");
    }
    found
}

/// Tests that one process can run, in order.
fn tests(suite: &Path) -> Vec<Test> {
    let mut tests = Vec::new();
    for interface in fs::read_dir(suite.join("conformance/interfaces")).unwrap() {
        let directory = interface.unwrap().path();
        let interface = directory.file_name().unwrap().to_str().unwrap().to_owned();
        if LIBRARY.contains(&interface.as_str()) {
            continue;
        }
        for file in fs::read_dir(&directory).unwrap() {
            let source = file.unwrap().path();
            let name = source.file_stem().unwrap().to_str().unwrap().to_owned();
            let mut numbers = name.split('-').map(str::parse::<u32>);
            let (Some(Ok(_)), Some(Ok(variant))) = (numbers.next(), numbers.next()) else {
                continue;
            };
            let is_c = source.extension().is_some_and(|end| end == "c");
            if !is_c || interface == BY_SIGNAL.0 && variant > BY_SIGNAL.1 {
                continue;
            }
            let text = fs::read(&source).unwrap();
            let starts_a_process = text.windows(5).any(|part| part == b"fork(");
            let test = Test {
                interface: interface.clone(),
                name,
                source,
            };
            if !starts_a_process && !is_exempt(EXEMPT, &test.interface, &test.name) {
                tests.push(test);
            }
        }
    }
    tests.sort_by_key(Test::symbol);
    tests
}

fn succeeds(command: &mut Command) -> bool {
    let command = command.stdout(Stdio::null()).stderr(Stdio::null());
    command.status().unwrap().success()
}

/// The program of all tests that compile, which come with it.
fn compile(place: &TestDir, suite: &Path, tests: Vec<Test>) -> (String, Vec<Test>) {
    let objects = place.path().join("objects");
    fs::create_dir(&objects).unwrap();
    let object = |test: &Test| objects.join(test.symbol()).with_extension("o");
    at_once(&tests, 2, |test| {
        let symbol = test.symbol();
        let mut gcc = Command::new("gcc");
        gcc.args(["-w", "-std=gnu99", "-O1", "-D_GNU_SOURCE", "-c"])
            .arg("-I")
            .arg(suite.join("include"))
            .arg(format!("-Dmain=test_{symbol}"))
            .arg(&test.source)
            .arg("-o")
            .arg(object(test));
        if succeeds(&mut gcc) {
            let mut local = Command::new("objcopy");
            local
                .arg(format!("--keep-global-symbol=test_{symbol}"))
                .arg(object(test));
            assert!(succeeds(&mut local), "{symbol}");
        }
    });
    let compiled = tests.into_iter().filter(|test| object(test).is_file());
    // In one, `main` is not the name of a function.
    let compiled = compiled.filter(|test| {
        let name = format!("test_{}\0", test.symbol()).into_bytes();
        let object = fs::read(object(test)).unwrap();
        object.windows(name.len()).any(|part| part == name)
    });
    let compiled: Vec<Test> = compiled.collect();
    let mut table = String::new();
    for test in &compiled {
        writeln!(table, "TEST({})", test.symbol()).unwrap();
    }
    place.file("tests.h", table.as_bytes());
    let source = place.file("all.c", include_bytes!("suites/posix.c"));
    let program = place.path().join("all").to_str().unwrap().to_owned();
    let mut gcc = Command::new("gcc");
    gcc.args(["-static", "-O1", "-w", "-o", &program, &source])
        .args(compiled.iter().map(object))
        .args(["-lpthread", "-lrt", "-lm"]);
    assert!(gcc.status().unwrap().success());
    (program, compiled)
}

/// What a test gives in a machine.
fn there(place: &TestDir, program: &str, root: &str, test: &Test) -> CommandOutput {
    let symbol = test.symbol();
    let args = [
        "run", program, "--net", "none", "--root", root, "--", &symbol,
    ];
    let machine = place.tare(&args).spawn().unwrap();
    // A signal to end is the test's, which may hold it back.
    let (mut ended, _) = end_or_kill(LIMIT, machine);
    for text in [&mut ended.out, &mut ended.err] {
        *text = text.chars().take(MOST_SHOWN).collect();
    }
    ended
}

/// Whether it passes on this host.
fn passes_here(place: &TestDir, program: &str, test: &Test) -> bool {
    let mut here = Command::new("timeout");
    here.args(["60", program, &test.symbol()])
        .current_dir(place.path());
    succeeds(&mut here)
}

/// How the tests went.
#[derive(Debug, Default)]
struct SuiteResults {
    passed: usize,
    /// They say that there is nothing to test, or pass on this host neither.
    not_judged: usize,
    failed: Vec<String>,
}

#[test]
fn the_open_posix_test_suite_passes() {
    let Some(suite) = suite() else {
        return;
    };
    let place = TestDir::new();
    let all = tests(&suite);
    let of_suite = all.len();
    let (program, compiled) = compile(&place, &suite, all);
    let root = place.path().join("root");
    for directory in ["tmp", "dev/shm"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    let root = root.to_str().unwrap();
    let results = Mutex::new(SuiteResults::default());
    at_once(&compiled, AT_A_TIME, |test| {
        let mut ended = there(&place, &program, root, test);
        let has_said = matches!(ended.code, Some(PASS | UNSUPPORTED | UNTESTED));
        let is_judged = !has_said && passes_here(&place, &program, test);
        for _ in 1..TRIES {
            if is_judged && ended.code != Some(PASS) {
                ended = there(&place, &program, root, test);
            }
        }
        let mut results = results.lock().unwrap();
        match ended.code {
            Some(PASS) => results.passed += 1,
            _ if !is_judged => results.not_judged += 1,
            _ => results
                .failed
                .push(format!("{}: {ended:#?}", test.symbol())),
        }
    });
    let results = results.into_inner().unwrap();
    println!(
        "{of_suite} tests: {} pass, {} are not judged, {} do not compile here",
        results.passed,
        results.not_judged,
        of_suite - compiled.len()
    );
    assert!(results.failed.is_empty(), "{}", results.failed.join("\n"));
    assert!(results.passed >= FEWEST, "{} pass", results.passed);
}

#[test]
fn the_list_of_exempt_tests_gives_a_reason_for_each() {
    expect_reasons(EXEMPT);
    assert!(is_exempt(EXEMPT, "mq_open", "1-1") && !is_exempt(EXEMPT, "timer_create", "1-1"));
}
