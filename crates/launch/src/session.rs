//! What a new process does between its start and the program that it becomes:
//! a session of its own, or an end tied to its parent's. `tare` starts itself
//! for it, because between fork and exec only unsafe code could run.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use rustix::process::{Signal, getppid, set_parent_process_death_signal, setsid};
use rustix::thread::set_no_new_privs;
use tare_control::exit::ExitCode;
use tare_control::parent_death::UNTIL_PARENT_ENDS;
use tare_daemon::{confine, jail};

use crate::failure::Failure;

/// First word of such a command line; no verb begins like this.
const OWN_SESSION: &str = "--become-in-own-session";
/// The same for a process that ends with its parent.
const WITH_PARENT: &str = "--become-until-parent-ends";

/// `program` in a session without a terminal.
pub(crate) fn in_own_session(program: &Path) -> io::Result<Command> {
    through_tare(OWN_SESSION, program)
}

/// `program`, killed when this process ends, however it ends.
pub(crate) fn until_we_end(program: &Path) -> io::Result<Command> {
    through_tare(WITH_PARENT, program)
}

fn through_tare(word: &str, program: &Path) -> io::Result<Command> {
    let mut command = Command::new(env::current_exe()?);
    command.arg(word);
    if word == WITH_PARENT {
        command.arg(std::process::id().to_string());
    }
    command.arg(program);
    Ok(command)
}

/// Does what a command line made here says, and returns only if that fails; `None` for any
/// other command line.
pub fn become_program(mut args: impl Iterator<Item = OsString>) -> Option<Failure> {
    let word = args.next()?;
    let prepared = if word == OsStr::new(OWN_SESSION) {
        setsid().map(drop).map_err(io::Error::from)
    } else if word == OsStr::new(WITH_PARENT) {
        // What ends with us is QEMU. The tie comes after the credentials, whose change
        // would undo it (prctl(2), PR_SET_PDEATHSIG).
        let parent = args.next();
        confine_qemu().and_then(|()| end_with_parent(parent, Signal::KILL))
    } else {
        return None;
    };
    let error = match prepared {
        Ok(()) => match args.next() {
            Some(program) => Command::new(program).args(args).exec(),
            None => io::Error::from(io::ErrorKind::InvalidInput),
        },
        Err(error) => error,
    };
    Some(Failure::new(ExitCode::Internal, error))
}

/// Namespaces of its own, and of capabilities only what opening files takes. What it is
/// executed as, or starts itself, gains none back.
fn confine_qemu() -> io::Result<()> {
    jail::isolate().map_err(io::Error::other)?;
    confine::drop_capabilities_but_files()?;
    Ok(set_no_new_privs(true)?)
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
