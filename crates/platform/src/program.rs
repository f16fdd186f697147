//! Runs a program to its end, unless it takes too long or the caller stops waiting
//! any more. What it leaves in its groups is ended with it.

use std::io::{ErrorKind, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::cgroup::Groups;

/// Longest time between two checks of whether to go on.
const SLICE: Duration = Duration::from_millis(50);
/// So much of the end of what a program says is kept, bytes.
const KEPT: usize = 64 << 10;
/// How long a pipe that another process holds is read after the end.
const ECHO: Duration = Duration::from_secs(1);

/// How long to wait for a program, and whether at all.
#[derive(Clone, Copy)]
pub struct Timeout<'a> {
    /// The longest time.
    pub limit: Duration,
    /// Whether to abort.
    pub stop: &'a dyn Fn() -> bool,
}

/// A program that did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// It is missing, or failed.
    #[error("{what} failed: {said}")]
    Failed {
        /// What it did.
        what: String,
        /// What it said last.
        said: String,
    },
    /// It took too long and was ended.
    #[error("{what} took longer than {} s and was killed", limit.as_secs())]
    TooLong {
        /// What it did.
        what: String,
        /// The limit.
        limit: Duration,
    },
    /// The caller stopped waiting; the program was killed.
    #[error("{0} was cancelled")]
    GivenUp(String),
}

/// Runs a program that is in `groups` and returns the end of its output; what it said
/// last becomes the error. Nothing of it, or in the groups, runs afterwards.
pub(crate) fn run(
    mut command: Command,
    what: &str,
    groups: &Groups,
    timeout: Timeout<'_>,
) -> Result<String, ProgramError> {
    let failed = |said: String| ProgramError::Failed {
        what: what.to_owned(),
        said,
    };
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| {
        failed(match error.kind() {
            ErrorKind::NotFound => {
                format!("{} is not installed", command.get_program().display())
            }
            _ => error.to_string(),
        })
    })?;
    let output = child.stdout.take().map(tail);
    let errors = child.stderr.take().map(tail);
    let ended = wait(&mut child, what, timeout);
    if ended.is_err() {
        let _ = child.kill();
        let _ = child.wait();
    }
    // Whoever is left may hold the pipes.
    groups.empty();
    let status = ended?;
    let text_of = |tail: Option<Receiver<Vec<u8>>>| {
        let bytes = tail.and_then(|tail| tail.recv_timeout(ECHO).ok());
        String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
    };
    if status.success() {
        Ok(text_of(output))
    } else {
        Err(failed(last_lines(&text_of(errors), status)))
    }
}

fn wait(child: &mut Child, what: &str, timeout: Timeout<'_>) -> Result<ExitStatus, ProgramError> {
    let begin = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) => {}
            Err(error) => {
                return Err(ProgramError::Failed {
                    what: what.to_owned(),
                    said: error.to_string(),
                });
            }
        }
        if (timeout.stop)() {
            return Err(ProgramError::GivenUp(what.to_owned()));
        }
        if begin.elapsed() > timeout.limit {
            return Err(ProgramError::TooLong {
                what: what.to_owned(),
                limit: timeout.limit,
            });
        }
        thread::sleep(SLICE);
    }
}

/// Reads to the end and hands over the last of it.
fn tail(mut from: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let (mut kept, mut block) = (Vec::new(), [0; 4096]);
        while let Ok(count @ 1..) = from.read(&mut block) {
            kept.extend_from_slice(&block[..count]);
            if kept.len() > 2 * KEPT {
                kept.drain(..kept.len() - KEPT);
            }
        }
        let _ = sender.send(kept);
    });
    receiver
}

/// The last lines of output, or how it ended if there was none.
fn last_lines(said: &str, status: ExitStatus) -> String {
    let lines: Vec<&str> = said
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    match lines.as_slice() {
        [] => status.to_string(),
        lines => lines[lines.len().saturating_sub(3)..].join(" | "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes;

    fn shell(script: &str, limit: Duration, stop: &dyn Fn() -> bool) -> Result<String, String> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        let timeout = Timeout { limit, stop };
        run(command, "it", &Groups::default(), timeout).map_err(|error| error.to_string())
    }

    #[test]
    fn a_program_says_what_it_found_or_why_it_failed() {
        let long = Duration::from_secs(60);
        assert_eq!(shell("echo 12", long, &|| false), Ok("12\n".to_owned()));
        let said = shell("echo a >&2; echo b >&2; exit 3", long, &|| false);
        assert_eq!(said, Err("it failed: a | b".to_owned()));
        let said = shell("exit 3", long, &|| false);
        assert_eq!(said, Err("it failed: exit status: 3".to_owned()));
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let timeout = Timeout {
            limit: Duration::from_secs(60),
            stop: &|| false,
        };
        let command = Command::new("no-such-program");
        let said = run(command, "it", &Groups::default(), timeout).unwrap_err();
        assert_eq!(
            said.to_string(),
            "it failed: no-such-program is not installed"
        );
    }

    #[test]
    fn a_program_that_hangs_is_ended_at_its_limit_and_when_it_is_given_up() {
        let said = shell("exec sleep 600", Duration::ZERO, &|| false);
        assert_eq!(
            said,
            Err("it took longer than 0 s and was killed".to_owned())
        );
        let said = shell("exec sleep 600", Duration::from_secs(600), &|| true);
        assert_eq!(said, Err("it was cancelled".to_owned()));
    }

    #[test]
    fn whoever_keeps_the_pipe_of_a_program_that_ended_does_not_keep_us() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let script = format!("sleep 600 & echo $! > {}; exit 1", file.path().display());
        let said = shell(&script, Duration::from_secs(60), &|| false);
        assert!(said.is_err(), "{said:?}");
        let pid: u32 = std::fs::read_to_string(file.path())
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        if let Some(start) = processes::start_time(pid) {
            processes::end_tree(pid, start);
        }
    }
}
