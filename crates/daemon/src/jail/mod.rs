//! The jail around a daemon's set-up: entered when every privileged thing is open, and before
//! an untrusted byte (image, initramfs, disks' formats) is read.
//!
//! In this order: a user namespace (for a process without privileges), its own namespaces
//! for processes (a machine's, `processes`), mounts, IPC, host name and network, an empty root with only
//! `/proc` and KVM's parameters, an unprivileged user, no capabilities, and a first system call filter
//! ([`crate::confine`] narrows it down for each thread before the guest runs).
//!
//! A program that opens files by name when it starts (QEMU: libraries, firmware) finds those
//! in its root until [`empty_root_of`] takes them away (`program`). A root without the
//! capabilities for that order starts it as the user, by way of a user namespace ([`EntryOrder`]).
//!
//! A build of untrusted sources is in a jail of this kind too (`build`).
//!
//! What serves a directory to a guest has separate mounts (`shared`).
//!
//! `tare blk` has no PID namespace: it is the process that a service manager started and signals. Its filters
//! leave no call that names another process.
//!
//! Reference: `namespaces(7)`, `user_namespaces(7)`, `switch_root(8)`, `capabilities(7)`.

#![allow(unsafe_code)]

mod bound;
mod build;
mod build_bounds;
mod emptying;
mod error;
mod namespaces;
mod processes;
mod program;
mod restricted;
mod shared;
mod user;

use std::ffi::CStr;
use std::fs;
use std::path::Path;

use rustix::fs::{CWD, Mode, mkdirat};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, mount, mount_bind_recursive, mount_change, mount_move,
    mount_remount,
};
use rustix::process::{chdir, chroot, umask};
use serde::{Deserialize, Serialize};
use tare_control::config::{Jail, JailUser};
use tare_host::signals::{ENDS, block, unblock};
use tare_host::tap_namespace::raise_loopback;

pub use build::{Build, BuildEnd, BuildProcess, Forked, fork_into_build};
pub use build_bounds::{BuildBounds, Excess};
pub use emptying::{Emptied, empty_root_of};
pub use error::JailError;
pub use namespaces::{Loopback, enter_network_of};
pub use processes::{Entering, fork_into_namespaces};
pub use program::{HostDevice, JobSignals, KILL_REQUEST, Program};
pub use shared::{SharedAccess, enter_for_shared};
pub use user::become_for_good;

use build::BuildFiles;
use error::{failed, failed_io};
use namespaces::{Granted, NAMESPACES, is_forbidden, make_namespaces};
use processes::{Passed, fork_for, tie};
use program::ProgramFiles;
use user::become_user;

/// Where the new root is put together; it exists on every Linux, and only the new mount
/// namespace sees what is mounted there.
const ASSEMBLY: &str = "/tmp";
/// Read when halt polling is the kernel's choice.
const KVM_PARAMETERS: &str = "/sys/module/kvm/parameters";

/// Enters the jail. To be called by a process with one thread. Where the kernel grants no
/// namespaces the process keeps those that it has.
pub fn enter(jail: &Jail) -> Result<(), JailError> {
    enter_rest(jail, &Entering::alone(tie()?))
}

/// As [`enter`], for a process that is on its way: it ends with its parent.
/// [`JailError::ParentEnded`]: that has ended, and this process is the jail's user already.
pub fn enter_rest(jail: &Jail, entering: &Entering) -> Result<(), JailError> {
    enter_with(jail, None, entering)
}

/// What a jail with a user and namespaces does first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryOrder {
    /// The namespaces, made by root.
    Namespaces,
    /// The user, who then makes them through a user namespace: root may lack the right to make all
    /// of them, or to enter those of another user.
    User,
}

/// Enters the jail as what will execute `program`, whose root has the files that it needs to
/// start: returns in a child, if the kernel grants a PID namespace. Otherwise as [`enter`].
pub fn enter_for(program: &Program, jail: &Jail, order: EntryOrder) -> Result<(), JailError> {
    let tie = tie()?;
    let mut rest = *jail;
    if order == EntryOrder::User
        && let Some(user) = rest.user.take()
    {
        become_for_good(&user)?;
    }
    let withheld = program.job_signals.withheld();
    let passed = match program.job_signals {
        JobSignals::Everyones => Passed::These(&[]),
        JobSignals::Starters => Passed::NoneOf(withheld),
    };
    let entering = fork_for(&rest, program.loopback, tie, passed)?;
    enter_with(&rest, Some(program), &entering)?;
    // The program may not let them through itself.
    let ends = ENDS.into_iter().filter(|signal| !withheld.contains(signal));
    block(withheld)
        .and_then(|()| unblock(&ends.collect::<Vec<_>>()))
        .map_err(failed("let signals come"))
}

fn enter_with(
    jail: &Jail,
    program: Option<&Program>,
    entering: &Entering,
) -> Result<(), JailError> {
    if jail.namespaces {
        enter_namespaces(program, jail.user.as_ref(), entering)?;
    }
    if let Some(user) = &jail.user {
        become_user(user).map_err(|errno| JailError::User {
            uid: user.uid,
            source: errno.into(),
        })?;
    }
    entering.restore_tie()
}

fn enter_namespaces(
    program: Option<&Program>,
    user: Option<&JailUser>,
    entering: &Entering,
) -> Result<(), JailError> {
    let loopback = program.map_or(Loopback::Down, |program| program.loopback);
    let granted = match entering.made {
        Some(granted) => granted,
        None => make_namespaces(NAMESPACES, loopback)?,
    };
    if granted == Granted::No {
        return Ok(());
    }
    if loopback == Loopback::Up {
        raise_loopback().map_err(failed_io("bring up the loopback interface"))?;
    }
    if separate_mounts()? == Granted::No {
        return Ok(());
    }
    // Before the new root covers where they are, and after the old one is this namespace's.
    let files = match program {
        Some(program) => RootFiles::Program(program.open()?),
        None => RootFiles::Kvm,
    };
    enter_new_root(&files, user)
}

/// Hides mounts made here from the host.
fn separate_mounts() -> Result<Granted, JailError> {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    match mount_change("/", private) {
        Ok(()) => Ok(Granted::Yes),
        Err(errno) if is_forbidden(errno) => Ok(Granted::No),
        Err(errno) => Err(failed("separate the mounts")(errno)),
    }
}

/// What a new root holds beside `/proc`.
#[derive(Debug)]
enum RootFiles {
    /// KVM's parameters.
    Kvm,
    /// What a program needs to start.
    Program(ProgramFiles),
    /// What a build needs.
    Build(BuildFiles),
}

fn enter_new_root(files: &RootFiles, user: Option<&JailUser>) -> Result<(), JailError> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let options = c"size=64k,nr_inodes=512,mode=755";
    mount("tmpfs", ASSEMBLY, "tmpfs", flags, options).map_err(failed("mount the root"))?;
    chdir(ASSEMBLY).map_err(failed("enter the root"))?;
    mount_proc(flags).map_err(failed("mount /proc"))?;
    // The machine's user reads what root makes here, whatever root's umask.
    let before = umask(Mode::WGRP | Mode::WOTH);
    let provided = match files {
        RootFiles::Program(files) => files.provide(user),
        RootFiles::Build(files) => files.provide(),
        RootFiles::Kvm => bind_kvm_parameters(),
    };
    umask(before);
    provided?;
    mount_remount(".", MountFlags::BIND | MountFlags::RDONLY | flags, c"")
        .map_err(failed("make the root read only"))?;
    // Mounts over the old root, as `switch_root(8)` does. Unmounting it (`pivot_root(2)`) would
    // wait for every CPU (RCU), tens of milliseconds on a busy host.
    mount_move(".", "/").map_err(failed("cover the old root"))?;
    chroot(".").map_err(failed("change the root"))?;
    chdir("/").map_err(failed("enter the root"))
}

fn bind_kvm_parameters() -> Result<(), JailError> {
    if Path::new(KVM_PARAMETERS).exists() {
        let below = KVM_PARAMETERS.trim_start_matches('/');
        fs::create_dir_all(below).map_err(failed_io("make a directory"))?;
        mount_bind_recursive(KVM_PARAMETERS, below).map_err(failed("mount KVM's parameters"))?;
    }
    Ok(())
}

/// Processes of this user only, where the kernel mounts that (5.8, and for a user namespace only
/// with its own processes); else as the host sees it, which Landlock closes later.
fn mount_proc(flags: MountFlags) -> Result<(), Errno> {
    const OWN_ONLY: &CStr = c"hidepid=invisible,subset=pid";
    mkdirat(CWD, "proc", Mode::from_raw_mode(0o555))?;
    match mount("proc", "proc", "proc", flags, OWN_ONLY) {
        Ok(()) => Ok(()),
        Err(_) => mount_bind_recursive("/proc", "proc"),
    }
}

#[cfg(test)]
mod tests {
    use landlock::{ABI, Access as _, AccessFs, Ruleset, RulesetAttr as _};

    use rustix::process::{Pid, Signal, set_parent_process_death_signal};
    use tare_host::child::ParentDeath;

    use super::*;

    #[test]
    fn a_parent_that_ended_meanwhile_is_an_error_of_its_own() {
        let body = || {
            let jail = Jail {
                namespaces: false,
                user: None,
            };
            let gone = ParentDeath::on(Signal::CONT, Pid::from_raw(i32::MAX).unwrap());
            let entered = enter_rest(&jail, &Entering::alone(gone));
            set_parent_process_death_signal(None).unwrap();
            entered
        };
        let entered = std::thread::spawn(body).join().unwrap();
        assert!(matches!(entered, Err(JailError::ParentEnded)));
    }

    /// As for root: the kernel makes the namespaces and refuses the mounts.
    #[test]
    fn namespaces_that_are_of_no_use_are_no_error() {
        let body = || {
            let rules = Ruleset::default().handle_access(AccessFs::from_all(ABI::V1));
            rules.unwrap().create().unwrap().restrict_self().unwrap();
            let jail = Jail {
                namespaces: true,
                user: None,
            };
            enter(&jail).unwrap();
        };
        std::thread::spawn(body).join().unwrap();
    }
}
