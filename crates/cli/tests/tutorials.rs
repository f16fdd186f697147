//! Executes the tutorials literally: each command of a `console` block runs in a separate directory
//! for the tutorial, and the lines below it must appear in its output, in that order. `...` stands
//! for any text. The first line of a tutorial lists its requirements; without them, SKIP.
#![allow(clippy::unwrap_used)]

mod support;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::geteuid;
use support::cargo::{COMPILING, compiles, offline};
use support::needs::{built, kvm, passt, skip};
use support::{TestDir, end_within, free_port, installed};

/// The port that tutorials forward; replaced by one that is free.
const PORT: &str = "8080";
/// Windows of `tare why` of which one must show what a tutorial says.
const WINDOWS: u32 = 5;

/// A command and the lines that it must print.
#[derive(Debug, Default, PartialEq)]
struct Step {
    command: String,
    expected: Vec<String>,
}

/// The requirements of a tutorial, its steps, and why other blocks do not run.
#[derive(Debug, Default, PartialEq)]
struct Tutorial {
    needs: Vec<String>,
    steps: Vec<Step>,
    skipped: Vec<String>,
}

fn parse(text: &str) -> Tutorial {
    let mut tutorial = Tutorial::default();
    let mut lines = text.lines();
    let mut skip_next = false;
    while let Some(line) = lines.next() {
        if let Some(needs) = comment(line, "needs:") {
            tutorial.needs = needs.split(' ').map(str::to_owned).collect();
        } else if let Some(why) = comment(line, "not run:") {
            tutorial.skipped.push(why.to_owned());
            skip_next = true;
        } else if line == "```console" {
            let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            if !skip_next {
                tutorial.steps.extend(steps(&block));
            }
            skip_next = false;
        }
    }
    tutorial
}

/// The text of `<!-- KEY text -->`.
fn comment<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let inner = line.strip_prefix("<!-- ")?.strip_suffix(" -->")?;
    inner.strip_prefix(key).map(str::trim)
}

fn steps(block: &[&str]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in block {
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step {
                command: command.to_owned(),
                expected: Vec::new(),
            });
        } else {
            let step = steps.last_mut().expect("a block begins with a command");
            step.expected.push((*line).to_owned());
        }
    }
    steps
}

/// The first expected line that does not follow the others in `output`.
fn unmatched<'a>(expected: &'a [String], output: &str) -> Option<&'a str> {
    let mut lines = output.lines();
    expected
        .iter()
        .find(|want| !lines.any(|line| matches(want, line.trim_end())))
        .map(String::as_str)
}

/// Whether `line` is `pattern`, in which `...` is any text.
fn matches(pattern: &str, line: &str) -> bool {
    let mut parts = pattern.split("...");
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else {
        return false;
    };
    let mut last = None;
    for part in parts {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
        last = Some(part);
    }
    rest.is_empty() || last.is_some_and(|part| part.is_empty() || rest.ends_with(part))
}

/// Whether the machine has what the tutorial needs; else says what is missing.
fn has(need: &str) -> bool {
    match need {
        "kvm" => kvm(),
        "passt" => passt(),
        "bpf" => observes() || skip("observing needs root and BPF"),
        "http" | "blk" => built(need).is_some(),
        "image-target" => compiles(),
        program => installed(program) || skip(format!("{program} is not installed")),
    }
}

fn observes() -> bool {
    geteuid().is_root() && TestDir::new().run(&["profile", "--", "/bin/true"]).code == Some(0)
}

fn tutorials() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tutorials")
}

fn execute(name: &str) {
    let tutorial = parse(&fs::read_to_string(tutorials().join(name)).unwrap());
    for why in &tutorial.skipped {
        eprintln!("{name}: a block is not run: {why}");
    }
    if !tutorial.needs.iter().all(|need| has(need)) {
        return;
    }
    let place = TestDir::new();
    let port = free_port().to_string();
    for step in &tutorial.steps {
        let step = Step {
            command: step.command.replace(PORT, &port),
            expected: step
                .expected
                .iter()
                .map(|it| it.replace(PORT, &port))
                .collect(),
        };
        // A busy host disturbs a window now and then.
        let windows = if step.command.starts_with("tare why ") {
            WINDOWS
        } else {
            1
        };
        for window in 1..=windows {
            let ended = end_within(COMPILING, shell(&place, &step.command).spawn().unwrap());
            assert_eq!(ended.code, Some(0), "{name}: {step:#?}: {ended:#?}");
            // A terminal shows both.
            let seen = format!("{}{}", ended.out, ended.err);
            let missing = unmatched(&step.expected, &seen);
            if missing.is_none() {
                break;
            }
            assert!(
                window < windows,
                "{name}: {missing:?}: {step:#?}: {ended:#?}"
            );
        }
    }
}

/// The command in the tutorial's directory, with the `tare` under test in PATH.
fn shell(place: &TestDir, command: &str) -> Command {
    let tare = Path::new(env!("CARGO_BIN_EXE_tare")).parent().unwrap();
    let before = env::var_os("PATH").unwrap_or_default();
    let dirs = [tare.to_owned()]
        .into_iter()
        .chain(env::split_paths(&before));
    let mut shell = Command::new("bash");
    offline(&mut shell)
        .args(["-euo", "pipefail", "-c", command])
        .current_dir(place.path())
        .env("PATH", env::join_paths(dirs).unwrap())
        .env("TARE_RUN_ROOT", place.run_root())
        .env_remove("TARE_IMAGES")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    shell
}

#[test]
fn the_tutorial_on_serving_a_directory_works() {
    execute("serve-a-directory.md");
}

#[test]
fn the_tutorial_on_an_idle_machine_works() {
    execute("idle-machine.md");
}

#[test]
fn the_tutorial_on_coalescing_a_disk_works() {
    execute("coalesce-a-disk.md");
}

#[test]
fn the_tutorial_on_cutting_a_kernel_works_as_far_as_it_is_quick() {
    execute("cut-a-kernel.md");
}

#[test]
fn the_tutorial_on_an_appliance_of_ones_own_works() {
    execute("your-own-appliance.md");
}

#[test]
fn every_tutorial_has_a_test_and_commands() {
    let source = include_str!("tutorials.rs");
    for entry in fs::read_dir(tutorials()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name != "README.md" {
            assert!(source.contains(&format!("execute(\"{name}\")")), "{name}");
            let tutorial = parse(&fs::read_to_string(&path).unwrap());
            assert!(!tutorial.steps.is_empty(), "{name}");
        }
    }
}

#[test]
fn blocks_are_read_with_their_needs_and_what_is_not_run() {
    let text = "<!-- needs: kvm curl -->\n# T\n```console\n$ a\nout\n$ b\n```\n\
                <!-- not run: slow -->\n```console\n$ c\n```\n```sh\nd\n```\n";
    let tutorial = parse(text);
    assert_eq!(tutorial.needs, ["kvm", "curl"]);
    assert_eq!(tutorial.skipped, ["slow"]);
    let commands: Vec<&str> = tutorial
        .steps
        .iter()
        .map(|step| step.command.as_str())
        .collect();
    assert_eq!(commands, ["a", "b"]);
    assert_eq!(tutorial.steps[0].expected, ["out"]);
}

#[test]
fn expected_lines_must_appear_in_their_order() {
    let expected = ["b...d".to_owned(), "e".to_owned()];
    assert_eq!(unmatched(&expected, "a\nb c d\ne  \n"), None);
    assert_eq!(unmatched(&expected, "e\nb c d\n"), Some("e"));
    assert_eq!(unmatched(&expected, "b c\ne\n"), Some("b...d"));
}

#[test]
fn dots_stand_for_any_text() {
    assert!(matches("...serving...", "http: serving 1 files"));
    assert!(matches("web", "web") && !matches("web", "web-1") && !matches("web", "a web"));
    assert!(matches("a...b", "a b b") && !matches("a...b", "a b c"));
    assert!(matches("...", ""));
}
