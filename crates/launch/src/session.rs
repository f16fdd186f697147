//! What a new process does between its start and the program that it becomes:
//! a session of its own, or a jail and an end tied to its parent's. `tare` starts itself
//! for it, because between fork and exec only unsafe code could run; and for what
//! needs a process of one thread.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal, setsid};
use rustix::thread::set_no_new_privs;
use serde::{Deserialize, Serialize};
use tare_control::config::Jail;
use tare_control::exit::ExitCode;
use tare_control::parent_death::UNTIL_PARENT_ENDS;
use tare_daemon::{confine, jail};

use crate::failure::Failure;

/// First word of such a command line; no verb begins like this.
const OWN_SESSION: &str = "--become-in-own-session";
/// The same for a process that ends with its parent.
const WITH_PARENT: &str = "--become-until-parent-ends";
/// First word of a process that empties the root of another.
const EMPTY_ROOT: &str = "--empty-root-of";

/// A program and the jail that it is executed in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Jailed {
    /// The program, and what it needs to start.
    pub(crate) program: jail::Program,
    /// Its user and namespaces.
    pub(crate) jail: Jail,
}

/// `program` in a session without a terminal.
pub(crate) fn in_own_session(program: &Path) -> io::Result<Command> {
    let mut command = Command::new(env::current_exe()?);
    command.arg(OWN_SESSION).arg(program);
    Ok(command)
}

/// A program in its jail, killed when this process ends, however it ends.
pub(crate) fn jailed_until_we_end(jailed: &Jailed) -> io::Result<Command> {
    let mut command = Command::new(env::current_exe()?);
    command
        .arg(WITH_PARENT)
        .arg(std::process::id().to_string())
        .arg(serde_json::to_string(jailed)?);
    Ok(command)
}

/// Takes what a jailed child needed to start out of its root.
pub(crate) fn empty_root_of(child: u32) -> io::Result<()> {
    let mut command = Command::new(env::current_exe()?);
    command.arg(EMPTY_ROOT).arg(child.to_string());
    let done = command.output()?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    Err(io::Error::other(said.trim().to_owned()))
}

/// Does what a command line made here says, and returns only if that fails or was all;
/// `None` for any other command line.
pub fn become_program(mut args: impl Iterator<Item = OsString>) -> Option<Result<(), Failure>> {
    let word = args.next()?;
    let done = if word == OsStr::new(OWN_SESSION) {
        setsid()
            .map_err(io::Error::from)
            .and_then(|_| execute(args.next().map(PathBuf::from), args))
    } else if word == OsStr::new(WITH_PARENT) {
        let (parent, jailed) = (args.next(), args.next());
        enter_jail(parent, jailed).and_then(|program| execute(Some(program), args))
    } else if word == OsStr::new(EMPTY_ROOT) {
        empty_root(args.next())
    } else {
        return None;
    };
    Some(done.map_err(|error| Failure::new(ExitCode::Internal, error)))
}

/// Returns only if that fails.
fn execute(program: Option<PathBuf>, args: impl Iterator<Item = OsString>) -> io::Result<()> {
    let program = program.ok_or(io::ErrorKind::InvalidInput)?;
    Err(Command::new(program).args(args).exec())
}

/// Enters the jail of QEMU, whose path this gives. What it is executed as, or starts itself,
/// gains nothing back. The tie to the parent comes after the credentials, whose change
/// would undo it (prctl(2), PR_SET_PDEATHSIG).
fn enter_jail(parent: Option<OsString>, jailed: Option<OsString>) -> io::Result<PathBuf> {
    let document = jailed.and_then(|word| word.into_string().ok());
    let jailed: Jailed = serde_json::from_str(&document.ok_or(io::ErrorKind::InvalidInput)?)?;
    jail::enter_for(&jailed.program, &jailed.jail).map_err(io::Error::other)?;
    confine::drop_capabilities(&[])?;
    set_no_new_privs(true)?;
    end_with_parent(parent, Signal::KILL)?;
    Ok(jailed.program.path)
}

fn empty_root(child: Option<OsString>) -> io::Result<()> {
    let child = child.and_then(|word| word.into_string().ok()?.parse().ok());
    let child = child.and_then(Pid::from_raw);
    jail::empty_root_of(child.ok_or(io::ErrorKind::InvalidInput)?)
        .map(drop)
        .map_err(io::Error::other)
}

/// Takes [`UNTIL_PARENT_ENDS`] and the process ID off a command line and does what they
/// say; any other stays as it is.
pub fn with_parent_death(args: Vec<OsString>) -> io::Result<Vec<OsString>> {
    match &args[..] {
        [program, tie, parent, verb @ ..] if tie == OsStr::new(UNTIL_PARENT_ENDS) => {
            end_with_parent(Some(parent.clone()), Signal::TERM)?;
            Ok([std::slice::from_ref(program), verb].concat())
        }
        _ => Ok(args),
    }
}

/// The parent may have ended before it could be watched.
fn end_with_parent(parent: Option<OsString>, signal: Signal) -> io::Result<()> {
    set_parent_process_death_signal(Some(signal))?;
    let now = getppid().map(|pid| pid.as_raw_nonzero().to_string());
    let expected = parent.and_then(|parent| parent.into_string().ok());
    if now == expected {
        Ok(())
    } else {
        Err(io::Error::other("the starting process has ended"))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn other_words_are_left_to_the_parser() {
        let args = ["run", "http"].map(OsString::from);
        assert!(become_program(args.into_iter()).is_none());
        assert!(become_program(std::iter::empty()).is_none());
    }

    #[test]
    fn a_parent_that_ended_is_noticed() {
        assert!(end_with_parent(Some(OsString::from("1000000000")), Signal::KILL).is_err());
        let tied = ["tare", UNTIL_PARENT_ENDS, "1000000000", "ps"].map(OsString::from);
        assert!(with_parent_death(tied.into()).is_err());
    }

    #[test]
    fn a_command_line_without_a_tie_stays_as_it_is() {
        let args = ["tare", "run", UNTIL_PARENT_ENDS, "1"].map(OsString::from);
        assert_eq!(with_parent_death(args.clone().into()).unwrap(), args);
    }
}
