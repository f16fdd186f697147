//! QEMU's jail: between its start and the program that it becomes, the new process gives up what
//! QEMU does not need. `tare` starts itself for this, because between fork and exec only single
//! system calls are safe ([`tare_host::child`]), and because some steps need a process of one
//! thread.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, geteuid};
use rustix::thread::{CapabilitySet, capabilities};
use serde::{Deserialize, Serialize};
use tare_control::config::{Jail, JailUser};
use tare_control::exit::ExitCode;
use tare_daemon::jail::{Emptied, EntryOrder};
use tare_daemon::{confine, jail};
use tare_host::child::{ParentDeath, copy, ended_within, ends_with_us, keeps_only};
use tare_host::stderr;
use tare_qemu::Accelerator;

use crate::attempt::read_task;
use crate::building;
use crate::failure::Failure;
use crate::forward;
use crate::user::MachineUser;
use crate::virtiofsd;

/// First argument of such a command line; no verb begins like this.
const JAILED: &str = "--become-jailed";
/// First argument of a process that empties the root of another.
const EMPTY_ROOT: &str = "--empty-root-of";
/// Emptying a root takes milliseconds, unless a mount of it hangs.
const EMPTYING_LIMIT: Duration = Duration::from_secs(10);
/// Longest text that the process prints, in bytes: a pipe has room for more.
const LONGEST_TEXT: u64 = 1 << 12;
/// What the process prints after it has emptied a root.
const IS_EMPTY: &[u8] = b"empty";

/// A program and the jail that it is executed in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Jailed {
    /// The program, and what it needs to start.
    pub(crate) program: jail::Program,
    /// Its user and namespaces.
    pub(crate) jail: Jail,
    /// Which of them it takes first.
    pub(crate) order: EntryOrder,
}

impl Jailed {
    /// QEMU as this user. The jail is the monitor's, with what QEMU opens by name until its
    /// guest runs.
    pub(crate) fn qemu(
        program: &Path,
        accelerator: Accelerator,
        user: Option<&MachineUser>,
    ) -> io::Result<Self> {
        Ok(Self {
            program: jail::Program {
                path: program.canonicalize()?,
                device: match accelerator {
                    Accelerator::Tcg => jail::HostDevice::None,
                    Accelerator::Kvm => jail::HostDevice::Kvm,
                },
                loopback: jail::Loopback::Down,
                job_signals: jail::JobSignals::Everyones,
            },
            jail: Jail {
                namespaces: true,
                user: user.map(|user| JailUser {
                    uid: user.uid,
                    gid: user.gid,
                    claim: None,
                }),
            },
            // `/proc/PID/ns` of another user's process is open to processes that may trace it
            // (`namespaces(7)`), and root in a default container may not.
            order: if has(CapabilitySet::SYS_ADMIN | CapabilitySet::SYS_PTRACE) {
                EntryOrder::Namespaces
            } else {
                EntryOrder::User
            },
        })
    }

    /// The same for a QEMU whose guest gets the job's signals by another way.
    pub(crate) fn without_job_signals(mut self) -> Self {
        self.program.job_signals = jail::JobSignals::Starters;
        self
    }

    /// The same for a QEMU that listens on its own loopback interface.
    pub(crate) fn that_listens(mut self) -> Self {
        self.program.loopback = jail::Loopback::Up;
        if !has(CapabilitySet::NET_ADMIN) {
            self.order = EntryOrder::User;
            // Root that stays root makes no user namespace.
            self.jail.namespaces &= self.jail.user.is_some() || !geteuid().is_root();
        }
        self
    }

    /// The user that enters the namespaces, if not this process's.
    pub(crate) fn enters(&self) -> Option<JailUser> {
        match self.order {
            EntryOrder::Namespaces => None,
            EntryOrder::User => self.jail.user,
        }
    }
}

fn has(capability: CapabilitySet) -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(capability))
}

/// A program in its jail, killed when this thread ends in any way. `tare` starts itself.
pub(crate) fn command(tare: &Path, jailed: &Jailed) -> io::Result<Command> {
    let mut command = Command::new(tare);
    ends_with_us(&mut command, Signal::KILL)
        .arg(JAILED)
        .arg(serde_json::to_string(jailed)?);
    Ok(command)
}

/// A root to be emptied.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Emptying {
    /// The process with that root.
    child: u32,
    /// The user that enters it, if not this process's.
    user: Option<JailUser>,
}

/// Removes from the root of a jailed child what it needed to start, if the kernel granted it a
/// root.
pub(crate) fn empty_root_of(tare: &Path, jailed: &Jailed, child: u32) -> io::Result<Emptied> {
    if !jailed.jail.namespaces {
        return Ok(Emptied::NoRoot);
    }
    let task = Emptying {
        child,
        user: jailed.enters(),
    };
    let mut command = Command::new(tare);
    command.arg(EMPTY_ROOT).arg(serde_json::to_string(&task)?);
    let said = finish(&mut command, EMPTYING_LIMIT)?;
    Ok(if said == IS_EMPTY {
        Emptied::Yes
    } else {
        Emptied::NoRoot
    })
}

/// Runs a command that ends within `limit` and with this process, and inherits nothing opened for
/// QEMU. Returns the beginning of its output; its error is what it writes to standard error.
fn finish(command: &mut Command, limit: Duration) -> io::Result<Vec<u8>> {
    keeps_only(ends_with_us(command, Signal::KILL), Vec::new());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    // A host without /dev/null must not make this fail.
    let mut child = command.spawn()?;
    let Some(status) = ended_within(&mut child, limit) else {
        child.kill()?;
        child.wait()?;
        return Err(io::Error::other(format!("no end within {limit:?}")));
    };
    let [mut printed, mut said] = [Vec::new(), Vec::new()];
    if let (Some(output), Some(errors)) = (child.stdout.take(), child.stderr.take()) {
        output.take(LONGEST_TEXT).read_to_end(&mut printed)?;
        errors.take(LONGEST_TEXT).read_to_end(&mut said)?;
    }
    if status.success() {
        return Ok(printed);
    }
    Err(io::Error::other(
        String::from_utf8_lossy(&said).trim().to_owned(),
    ))
}

/// Executes a command line made in this module; returns only on failure or if nothing is left to
/// do; `None` for any other command line.
pub fn become_program(mut args: impl Iterator<Item = OsString>) -> Option<Result<(), Failure>> {
    let word = args.next()?;
    let done = if word == OsStr::new(JAILED) {
        enter_jail(args.next()).and_then(|program| Err(Command::new(program).args(args).exec()))
    } else if word == OsStr::new(EMPTY_ROOT) {
        empty_root(args.next())
    } else if word == OsStr::new(forward::WORD) {
        forward::forward(args.next())
    } else if word == OsStr::new(virtiofsd::WORD) {
        virtiofsd::serve(args.next())
    } else if word == OsStr::new(building::WORD) {
        building::build(args.next(), args)
    } else {
        return None;
    };
    Some(done.map_err(|error| Failure::new(ExitCode::Internal, error)))
}

/// Enters the jail of QEMU, whose path this gives, in a child of this process if the kernel grants a PID
/// namespace. What it is executed as, or starts itself, gains nothing back. The jail restores the tie
/// to the parent after the credentials, whose change would undo it.
fn enter_jail(jailed: Option<OsString>) -> io::Result<PathBuf> {
    let jailed: Jailed = read_task(jailed)?;
    jail::enter_for(&jailed.program, &jailed.jail, jailed.order).map_err(io::Error::other)?;
    confine::drop_capabilities(&[])?;
    narrow_files(&jailed.program)?;
    Ok(jailed.program.path)
}

/// Adds file rules that also hold after QEMU's start, and in the host's root.
fn narrow_files(program: &jail::Program) -> io::Result<()> {
    let network = match program.loopback {
        jail::Loopback::Down => confine::Network::None,
        jail::Loopback::Up => confine::Network::Listens,
    };
    let inherited = inherited()?;
    let opened: Vec<BorrowedFd<'_>> = inherited.iter().map(AsFd::as_fd).collect();
    let (brought, devices) = (program.brought(), program.devices());
    let has_landlock = confine::enter_emulator(brought, &devices, &opened, network);
    if !has_landlock.map_err(io::Error::other)? {
        stderr::line(
            "tare: this kernel has no Landlock: only its user, namespaces and filter confine QEMU",
        );
    }
    Ok(())
}

/// Copies of the descriptors that this process inherited, beyond the standard streams.
fn inherited() -> io::Result<Vec<OwnedFd>> {
    let listed = fs::read_dir("/proc/self/fd")?.flatten();
    let numbers: Vec<RawFd> = listed
        .filter_map(|entry| entry.file_name().to_str()?.parse::<RawFd>().ok())
        .filter(|number| *number > 2)
        .collect();
    // The descriptor of the list itself is closed by now.
    let copies = numbers.into_iter().filter_map(|number| copy(number).ok());
    Ok(copies.collect())
}

/// Ends with the process that started it, also after it has become another user.
fn empty_root(task: Option<OsString>) -> io::Result<()> {
    let death = ParentDeath::read()?;
    let task: Emptying = read_task(task)?;
    if let Some(user) = &task.user {
        jail::become_for_good(user).map_err(io::Error::other)?;
        death.restore()?;
    }
    let child = i32::try_from(task.child).ok().and_then(Pid::from_raw);
    let emptied = jail::empty_root_of(child.ok_or(io::ErrorKind::InvalidInput)?);
    match emptied.map_err(io::Error::other)? {
        Emptied::Yes => io::stdout()
            .write_all(IS_EMPTY)
            .and_then(|()| io::stdout().flush()),
        Emptied::NoRoot => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use rustix::io::{FdFlags, fcntl_setfd};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn what_empties_a_root_is_killed_where_it_hangs() {
        let mut hangs = Command::new("sleep");
        let error = finish(hangs.arg("120"), Duration::from_millis(20)).unwrap_err();
        assert_eq!(error.to_string(), "no end within 20ms");
    }

    #[test]
    fn what_empties_a_root_says_why_it_fails() {
        let mut fails = Command::new("sh");
        let error = finish(fails.args(["-c", "echo ' no' >&2; exit 1"]), LONG).unwrap_err();
        assert_eq!(error.to_string(), "no");
    }

    #[test]
    fn what_empties_a_root_has_no_descriptor_of_qemus() {
        let qemus = tempfile::tempfile().unwrap();
        fcntl_setfd(&qemus, FdFlags::empty()).unwrap();
        let mut looks = Command::new("sh");
        looks.args(["-c", "! [ -e /proc/self/fd/$0 ]"]);
        finish(looks.arg(qemus.as_raw_fd().to_string()), LONG).unwrap();
    }

    #[test]
    fn other_words_are_left_to_the_parser() {
        let args = ["run", "http"].map(OsString::from);
        assert!(become_program(args.into_iter()).is_none());
        assert!(become_program(std::iter::empty()).is_none());
    }
}
