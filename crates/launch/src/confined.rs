//! QEMU's jail: between its start and the program that it becomes, the new process gives up
//! what QEMU does not need. `tare` starts itself for it, because between fork and exec only
//! single system calls are safe ([`tare_host::child`]); and for what needs a process of one
//! thread.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal};
use rustix::thread::set_no_new_privs;
use serde::{Deserialize, Serialize};
use tare_control::config::Jail;
use tare_control::exit::ExitCode;
use tare_daemon::{confine, jail};
use tare_host::child::{ParentDeath, ends_with_us};

use crate::failure::Failure;

/// First word of such a command line; no verb begins like this.
const JAILED: &str = "--become-jailed";
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

/// A program in its jail, killed when this process ends, however it ends.
pub(crate) fn command(jailed: &Jailed) -> io::Result<Command> {
    let mut command = Command::new(env::current_exe()?);
    ends_with_us(&mut command, Signal::KILL)
        .arg(JAILED)
        .arg(serde_json::to_string(jailed)?);
    Ok(command)
}

/// Takes what a jailed child needed to start out of its root.
pub(crate) fn empty_root_of(child: u32) -> io::Result<()> {
    let mut command = Command::new(env::current_exe()?);
    command.arg(EMPTY_ROOT).arg(child.to_string());
    // A host without /dev/null is no reason to fail.
    let done = command.stdin(Stdio::inherit()).output()?;
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
    let done = if word == OsStr::new(JAILED) {
        enter_jail(args.next()).and_then(|program| Err(Command::new(program).args(args).exec()))
    } else if word == OsStr::new(EMPTY_ROOT) {
        empty_root(args.next())
    } else {
        return None;
    };
    Some(done.map_err(|error| Failure::new(ExitCode::Internal, error)))
}

/// Enters the jail of QEMU, whose path this gives. What it is executed as, or starts itself,
/// gains nothing back. The tie to the parent is restored after the credentials, whose change
/// would undo it.
fn enter_jail(jailed: Option<OsString>) -> io::Result<PathBuf> {
    let death = ParentDeath::read()?;
    let document = jailed.and_then(|word| word.into_string().ok());
    let jailed: Jailed = serde_json::from_str(&document.ok_or(io::ErrorKind::InvalidInput)?)?;
    jail::enter_for(&jailed.program, &jailed.jail).map_err(io::Error::other)?;
    confine::drop_capabilities(&[])?;
    set_no_new_privs(true)?;
    death.restore()?;
    Ok(jailed.program.path)
}

fn empty_root(child: Option<OsString>) -> io::Result<()> {
    let child = child.and_then(|word| word.into_string().ok()?.parse().ok());
    let child = child.and_then(Pid::from_raw);
    jail::empty_root_of(child.ok_or(io::ErrorKind::InvalidInput)?)
        .map(drop)
        .map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_words_are_left_to_the_parser() {
        let args = ["run", "http"].map(OsString::from);
        assert!(become_program(args.into_iter()).is_none());
        assert!(become_program(std::iter::empty()).is_none());
    }
}
