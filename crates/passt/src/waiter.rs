//! The waiter: a process that starts passt when the first frame for it is in its socket.
//!
//! `tare` starts `tare-monitor` for it ([`start`]), whose pages the machine's monitor shares. The process
//! has passt's end of the socket, the log, and what reserves passt's user; no parent that would have to
//! collect it, no terminal, and of root's rights none: it becomes passt's user first. It waits in one
//! `poll` and reads nothing, so the frames are passt's. Once passt is ready, it ends.
//!
//! It ends as well when the machine's end of the socket closes. If passt does not start, it says why in
//! the log and ends, which the monitor sees by the socket.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::chdir;
use rustix::thread::set_name;
use serde::{Deserialize, Serialize};
use tare_control::config::JailUser;
use tare_control::exit::ExitCode;
use tare_control::sentence::chain;
use tare_daemon::jail::become_for_good;
use tare_host::child::{copy, start_orphan};

use crate::{Invocation, PasstError};

/// First argument of such a command line; the monitor has no option like this.
const WORD: &str = "--start-passt-when-needed";
/// The process's name, which begins like passt's: who looks for a machine's network finds it.
const NAME: &std::ffi::CStr = c"passt-waiter";

/// What the process does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// What it starts.
    pub passt: Invocation,
    /// The user that it becomes; `None` for the user who starts it.
    pub user: Option<JailUser>,
}

/// Starts a waiter; `monitor` is its program, `log` gets what passt and it have to say.
pub fn start(monitor: &Path, task: &Task, log: File) -> io::Result<()> {
    let mut inherited: Vec<RawFd> = task.passt.kept.clone();
    inherited.push(task.passt.socket);
    start_orphan(
        monitor,
        [WORD, &serde_json::to_string(task)?],
        inherited,
        log,
    )
}

/// Performs the task of such a command line; `None` for any other.
pub fn from_args(mut args: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    if args.next()? != OsStr::new(WORD) {
        return None;
    }
    let mut log = io::stderr();
    let said = match read_task(args.next()).map_err(PasstError::Start) {
        Ok(task) => wait_and_start(&task),
        Err(error) => Err(error),
    };
    let (text, code) = match said {
        Ok(said) => (said, ExitCode::Success),
        Err(error) => (chain(&error), ExitCode::Passt),
    };
    if !text.is_empty() {
        let _ = writeln!(log, "{text}");
    }
    Some(code)
}

fn read_task(word: Option<OsString>) -> io::Result<Task> {
    let document = word
        .and_then(|word| word.into_string().ok())
        .ok_or(io::ErrorKind::InvalidInput)?;
    Ok(serde_json::from_str(&document)?)
}

fn wait_and_start(task: &Task) -> Result<String, PasstError> {
    let socket = prepare(task).map_err(PasstError::Start)?;
    match wait(&socket).map_err(|errno| PasstError::Start(errno.into()))? {
        Woken::MachineEnded => Ok(String::new()),
        Woken::Needed => {
            let begun = task.passt.begin()?;
            task.passt.finish(begun)
        }
    }
}

/// Gives up what the process has no use for; returns a copy of passt's end of the socket.
fn prepare(task: &Task) -> io::Result<OwnedFd> {
    set_name(NAME)?;
    chdir("/")?;
    if let Some(user) = &task.user {
        become_for_good(user).map_err(io::Error::other)?;
    }
    copy(task.passt.socket)
}

/// What the waiter has waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Woken {
    Needed,
    MachineEnded,
}

fn wait(socket: &impl AsFd) -> Result<Woken, Errno> {
    let mut fds = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
    retry_on_intr(|| poll(&mut fds, None))?;
    // The frames of a machine that has ended have no use.
    let ends = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    Ok(if fds[0].revents().intersects(ends) {
        Woken::MachineEnded
    } else {
        Woken::Needed
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_frame_is_waited_for_and_left_in_the_socket() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.write_all(b"frame").unwrap();
        assert_eq!(wait(&theirs), Ok(Woken::Needed));
        assert_eq!(wait(&theirs), Ok(Woken::Needed), "it is still there");
    }

    #[test]
    fn a_machine_that_has_ended_needs_no_passt() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.write_all(b"frame").unwrap();
        drop(ours);
        assert_eq!(wait(&theirs), Ok(Woken::MachineEnded));
    }

    #[test]
    fn a_task_is_read_as_it_was_written_and_other_words_are_left_to_the_monitor() {
        let task = Task {
            passt: Invocation {
                program: "/usr/bin/passt".into(),
                socket: 5,
                kept: vec![7],
                first: vec!["--quiet".to_owned()],
                second: Vec::new(),
            },
            user: Some(JailUser {
                uid: 9,
                gid: 10,
                claim: None,
            }),
        };
        let word = serde_json::to_string(&task).unwrap();
        assert_eq!(read_task(Some(word.into())).unwrap(), task);
        let parsed = |args: &[&str]| {
            from_args(
                args.iter()
                    .map(OsString::from)
                    .collect::<Vec<_>>()
                    .into_iter(),
            )
        };
        assert_eq!(parsed(&["--config", "3"]), None);
        assert_eq!(parsed(&[]), None);
        assert_eq!(parsed(&[WORD, "{}"]), Some(ExitCode::Passt));
    }
}
