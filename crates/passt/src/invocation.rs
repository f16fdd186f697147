//! [`Invocation`]: passt's command line, and how its start went.

use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, RawFd};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use tare_host::child::keeps_only;

/// How long passt may take to bind its ports.
const START_LIMIT: Duration = Duration::from_secs(10);
/// Most bytes of its output that are kept.
const OUTPUT_MAX: usize = 64 * 1024;

/// passt did not start.
#[derive(Debug, thiserror::Error)]
pub enum PasstError {
    /// The program is not installed.
    #[error("passt is not installed")]
    Missing,
    /// The program or its socket cannot be made.
    #[error("cannot start passt")]
    Start(#[source] io::Error),
    /// It refused, and said why.
    #[error("passt did not start: {0}")]
    Refused(String),
    /// It neither failed nor became ready.
    #[error("passt was not ready after {} s", START_LIMIT.as_secs())]
    TimedOut,
}

impl PasstError {
    /// The error of a second try, after one that was refused with this message.
    fn after(self, first: &str) -> Self {
        match self {
            Self::Refused(second) if second != first => {
                Self::Refused(format!("{second} (the first try: {first})"))
            }
            other => other,
        }
    }
}

/// passt's command line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Invocation {
    /// The program.
    pub program: PathBuf,
    /// passt's end of the socket pair, by its number.
    pub socket: RawFd,
    /// Other descriptors that passt keeps open.
    pub kept: Vec<RawFd>,
    /// Arguments of the first try.
    pub first: Vec<String>,
    /// Arguments of a second one, where passt finds no interface to take its addresses from.
    pub second: Vec<String>,
}

/// A passt that may not be ready yet.
#[derive(Debug)]
pub struct Starting(Child);

impl Invocation {
    /// Starts passt; [`Invocation::finish`] waits for it, so that other work can be done in between.
    pub fn begin(&self) -> Result<Starting, PasstError> {
        self.spawn(&self.first)
    }

    /// Waits until passt has bound its ports, or tries again; returns its output. This process must
    /// have the descriptors until then.
    pub fn finish(&self, begun: Starting) -> Result<String, PasstError> {
        match begun.wait() {
            Err(PasstError::Refused(message)) if message.contains("interface") => {
                let again = self.spawn(&self.second).and_then(Starting::wait);
                again.map_err(|error| error.after(&message))
            }
            other => other,
        }
    }

    fn spawn(&self, arguments: &[String]) -> Result<Starting, PasstError> {
        let mut inherited = self.kept.clone();
        inherited.push(self.socket);
        // What the monitor or QEMU will inherit may be open across execve, including the machine's
        // end of this network, which passt would then never see closed.
        let mut command = Command::new(&self.program);
        keeps_only(&mut command, inherited)
            .args(["--fd", &self.socket.to_string()])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0);
        let child = command.spawn().map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => PasstError::Missing,
            _ => PasstError::Start(source),
        })?;
        Ok(Starting(child))
    }
}

impl Starting {
    /// passt's output, once it serves.
    fn wait(mut self) -> Result<String, PasstError> {
        let said = read_until_detached(&mut self.0);
        if matches!(said, Err(PasstError::TimedOut)) {
            let _ = self.0.kill();
        }
        let status = self.0.wait().map_err(PasstError::Start)?;
        let log = without_noise(&said?);
        if status.success() {
            return Ok(log);
        }
        Err(PasstError::Refused(if log.is_empty() {
            status.to_string()
        } else {
            log.lines().collect::<Vec<_>>().join("; ")
        }))
    }
}

/// Reads passt's standard error until passt closes it, which it does by ending or by going into the
/// background.
fn read_until_detached(child: &mut Child) -> Result<String, PasstError> {
    let mut bytes = Vec::new();
    let Some(mut stderr) = child.stderr.take() else {
        return Ok(String::new());
    };
    let begin = Instant::now();
    loop {
        let left = START_LIMIT.saturating_sub(begin.elapsed());
        let timeout = Timespec::try_from(left).ok();
        let mut fds = [PollFd::from_borrowed_fd(stderr.as_fd(), PollFlags::IN)];
        let ready = poll(&mut fds, timeout.as_ref());
        match ready {
            Ok(0) => return Err(PasstError::TimedOut),
            Err(rustix::io::Errno::INTR) => continue,
            Err(errno) => return Err(PasstError::Start(errno.into())),
            Ok(_) => {}
        }
        let mut chunk = [0; 4096];
        match stderr.read(&mut chunk).map_err(PasstError::Start)? {
            0 => return Ok(String::from_utf8_lossy(&bytes).into_owned()),
            n if bytes.len() < OUTPUT_MAX => bytes.extend_from_slice(&chunk[..n]),
            _ => {}
        }
    }
}

/// The useful lines: without the complaint about a missing system logger before each line, and
/// without what every start as root prints.
fn without_noise(said: &str) -> String {
    said.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .filter(|line| !line.starts_with("Failed to send ") || !line.ends_with(" to syslog"))
        .filter(|line| !line.starts_with("Don't run as root"))
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsRawFd as _;
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_second_try_says_why_it_failed() {
        let directory = tempfile::tempdir().expect("a directory");
        let program = directory.path().join("passt");
        let script = "#!/bin/sh\n# --fd NUMBER WORD\necho \"no $3\" >&2\nexit 1\n";
        fs::write(&program, script).expect("a script");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a mode");
        let (ours, _theirs) = UnixStream::pair().expect("a pair");
        let finished = |first: &str, second: &str| {
            let invocation = Invocation {
                program: program.clone(),
                socket: ours.as_raw_fd(),
                kept: Vec::new(),
                first: vec![first.to_owned()],
                second: vec![second.to_owned()],
            };
            let begun = invocation.begin().expect("a shell");
            invocation.finish(begun).expect_err("refused").to_string()
        };
        assert_eq!(
            finished("interface", "port to bind"),
            "passt did not start: no port to bind (the first try: no interface)"
        );
        assert_eq!(
            finished("interface", "interface"),
            "passt did not start: no interface"
        );
        assert_eq!(
            finished("port to bind", "interface"),
            "passt did not start: no port to bind"
        );
    }

    #[test]
    fn the_message_is_what_remains_without_noise() {
        let said = "Failed to send 47 bytes to syslog\nDon't run as root. Changing to nobody...\n\
                    Failed to send 67 bytes to syslog\n\
                    Failed to bind any port for '-t 127.0.0.1/1:1', exiting\n\n";
        assert_eq!(
            without_noise(said),
            "Failed to bind any port for '-t 127.0.0.1/1:1', exiting"
        );
    }
}
