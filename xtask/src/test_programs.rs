//! Runs test programs two at a time: most tests wait for a machine most of the time.
//!
//! `cargo test` runs one program after another.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::shell;

/// Programs at a time, each with a thread a CPU.
const AT_A_TIME: usize = 2;
/// Lines of a program that failed, which are printed again after all others.
const REPEATED: usize = 60;
/// Those that take minutes, which start first.
const LONG: [&str; 4] = ["why", "tare_experiments", "own_appliance", "posix_suite"];

/// A line of `cargo --message-format=json`, as far as it is needed here.
#[derive(Deserialize)]
struct Message {
    reason: String,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// A program with tests.
#[derive(Debug, PartialEq, Eq)]
struct TestProgram {
    name: String,
    executable: PathBuf,
    /// Its package's, where it runs.
    directory: PathBuf,
}

/// Builds and runs the programs of this `cargo test`; an error if one fails.
pub(crate) fn run(cargo_test: &mut Command) -> Result<()> {
    cargo_test.args(["--no-run", "--message-format=json-render-diagnostics"]);
    let built = shell::output(cargo_test.stderr(Stdio::inherit()))?;
    let mut programs = parse(&built)?;
    programs.sort_by_key(|program| {
        let rank = LONG.iter().position(|name| *name == program.name);
        rank.unwrap_or(LONG.len())
    });
    let total = programs.len();
    let queue = Mutex::new(VecDeque::from(programs));
    let failed = Mutex::new(Vec::new());
    let next = || lock(&queue).pop_front();
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some(program) = next() {
                    if let Err(said) = succeeds(&program) {
                        lock(&failed).push((program.name, said));
                    }
                }
            });
        }
    });
    let failed = lock(&failed);
    for (name, said) in failed.iter() {
        println!("     The last lines of {name}, which failed:\n{said}");
    }
    if !failed.is_empty() {
        let names: Vec<_> = failed.iter().map(|(name, _)| name.as_str()).collect();
        bail!(
            "{} of {total} test programs failed: {}",
            names.len(),
            names.join(", ")
        );
    }
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn parse(messages: &str) -> Result<Vec<TestProgram>> {
    let mut programs = Vec::new();
    for line in messages.lines() {
        let message: Message =
            serde_json::from_str(line).with_context(|| format!("cargo's message {line}"))?;
        let is_test = message.profile.is_some_and(|profile| profile.test);
        if let (true, Some(executable), Some(manifest), Some(target)) = (
            is_test && message.reason == "compiler-artifact",
            message.executable,
            message.manifest_path,
            message.target,
        ) {
            programs.push(TestProgram {
                name: target.name,
                executable,
                directory: manifest.parent().unwrap_or(Path::new("")).to_owned(),
            });
        }
    }
    Ok(programs)
}

/// Runs one, and prints what it said when it has ended; the last lines of it if it failed.
fn succeeds(program: &TestProgram) -> Result<(), String> {
    let mut command = Command::new(&program.executable);
    command
        .current_dir(&program.directory)
        .env("CARGO_MANIFEST_DIR", &program.directory);
    let mut text = format!(
        "     Running {} ({})\n",
        program.name,
        program.executable.display()
    );
    let succeeds = match command.output() {
        Ok(ended) => {
            text.push_str(&String::from_utf8_lossy(&ended.stdout));
            text.push_str(&String::from_utf8_lossy(&ended.stderr));
            if !ended.status.success() {
                let _ = writeln!(text, "error: {} ended with {}", program.name, ended.status);
            }
            ended.status.success()
        }
        Err(error) => {
            let _ = writeln!(text, "error: cannot run {}: {error}", program.name);
            false
        }
    };
    print!("{text}");
    if succeeds {
        Ok(())
    } else {
        Err(last_lines(&text))
    }
}

fn last_lines(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(REPEATED)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_with_tests_are_found_among_what_cargo_built() {
        let artifact = |name: &str, test: bool, executable: &str| {
            format!(
                "{{\"reason\":\"compiler-artifact\",\"manifest_path\":\"/w/crates/a/Cargo.toml\",\
                 \"target\":{{\"name\":\"{name}\"}},\"profile\":{{\"test\":{test}}},\
                 \"executable\":{executable}}}"
            )
        };
        let lines = [
            artifact("tare", false, "\"/t/tare\""),
            artifact("why", true, "\"/t/deps/why-1\""),
            artifact("a", true, "null"),
            "{\"reason\":\"build-finished\",\"success\":true}".to_owned(),
        ];
        let found = parse(&lines.join("\n")).unwrap();
        let why = TestProgram {
            name: "why".to_owned(),
            executable: PathBuf::from("/t/deps/why-1"),
            directory: PathBuf::from("/w/crates/a"),
        };
        assert_eq!(found, [why]);
        assert!(parse("warning: not JSON").is_err());
    }

    #[test]
    fn a_program_that_fails_or_cannot_run_does_not_pass() {
        let program = |executable: &str| TestProgram {
            name: "it".to_owned(),
            executable: PathBuf::from(executable),
            directory: PathBuf::from("/"),
        };
        assert_eq!(succeeds(&program("/bin/true")), Ok(()));
        let said = succeeds(&program("/bin/false")).unwrap_err();
        assert!(said.contains("it ended with exit status: 1"), "{said}");
        let said = succeeds(&program("/no/such/program")).unwrap_err();
        assert!(said.contains("cannot run it"), "{said}");
    }

    #[test]
    fn the_end_of_what_a_program_said_is_repeated() {
        let lines: Vec<_> = (0..=REPEATED).map(|line| line.to_string()).collect();
        assert_eq!(last_lines(&lines.join("\n")), lines[1..].join("\n"));
        assert_eq!(last_lines("1\n2\n"), "1\n2");
    }
}
