//! The jail around a daemon's set-up: entered when every privileged thing is open, and before
//! an untrusted byte (image, initramfs, disks' formats) is read.
//!
//! In this order: a user namespace (for a process without privileges), its own namespaces
//! for mounts, IPC, host name and network, an empty root with only `/proc` and KVM's
//! parameters, an unprivileged user, no capabilities, and a first system call filter
//! ([`crate::confine`] narrows it down for each thread before the guest runs).
//!
//! A program that opens files by name when it starts (QEMU: libraries, firmware) finds those
//! in its root until [`empty_root_of`] takes them away (`program`). A root without the
//! capabilities for that order starts it as the user, by way of a user namespace ([`EntryOrder`]).
//!
//! A build of untrusted sources is in a jail of this kind too (`build`).
//!
//! No PID namespace for a machine: its first process must be a child, and a machine in the foreground is
//! the process that the user started. The filters leave no call that names another process.
//!
//! Reference: `namespaces(7)`, `user_namespaces(7)`, `switch_root(8)`, `capabilities(7)`.

#![allow(unsafe_code)]

mod bound;
mod build;
mod build_bounds;
mod emptying;
mod error;
mod namespaces;
mod program;
mod restricted;

use std::ffi::CStr;
use std::fs;
use std::io;
use std::path::Path;

use rustix::fs::{CWD, Mode, mkdirat};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, mount, mount_bind_recursive, mount_change, mount_move,
    mount_remount,
};
use rustix::process::{
    DumpableBehavior, chdir, chroot, getegid, geteuid, set_dumpable_behavior, umask,
};
use rustix::thread::{
    Gid, Uid, UnshareFlags, set_keep_capabilities, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid, unshare_unsafe,
};
use serde::{Deserialize, Serialize};
use tare_control::config::{Jail, JailUser};
use tare_host::child::ParentDeath;
use tare_host::tap_namespace::raise_loopback;

pub use build::{Build, BuildEnd, BuildProcess, Forked, fork_into_build};
pub use build_bounds::{BuildBounds, Excess};
pub use emptying::{Emptied, empty_root_of};
pub use error::JailError;
pub use namespaces::enter_network_of;
pub use program::{HostDevice, Loopback, Program};

use build::BuildFiles;
use error::{failed, failed_io, not_restored};
use program::ProgramFiles;

/// Where the new root is put together; it exists on every Linux, and only the new mount
/// namespace sees what is mounted there.
const ASSEMBLY: &str = "/tmp";
/// Namespaces of every jail.
const NAMESPACES: UnshareFlags = UnshareFlags::NEWNS
    .union(UnshareFlags::NEWIPC)
    .union(UnshareFlags::NEWUTS)
    .union(UnshareFlags::NEWNET);
/// Read when halt polling is the kernel's choice.
const KVM_PARAMETERS: &str = "/sys/module/kvm/parameters";

/// Enters the jail. To be called by a process with one thread. Where the kernel grants no
/// namespaces the process keeps those that it has.
pub fn enter(jail: &Jail) -> Result<(), JailError> {
    enter_tied(jail, &tie()?)
}

/// As [`enter`], for a process that is to end with its parent as `tie` says.
/// [`JailError::ParentEnded`]: that has ended, and this process is the jail's user already.
pub fn enter_tied(jail: &Jail, tie: &ParentDeath) -> Result<(), JailError> {
    enter_with(jail, None, tie)
}

/// What ends this process with its parent now, which a change of the user undoes.
pub fn tie() -> Result<ParentDeath, JailError> {
    ParentDeath::read().map_err(failed("read the end's signal"))
}

/// What comes first in a jail that has a user and namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryOrder {
    /// The namespaces, which root makes.
    Namespaces,
    /// The user, who makes them by way of a user namespace: root may not make all of them, or not
    /// enter those of another user.
    User,
}

/// Enters the jail as what will execute `program`, whose root has the files that it needs to
/// start. Otherwise as [`enter`].
pub fn enter_for(program: &Program, jail: &Jail, order: EntryOrder) -> Result<(), JailError> {
    let tie = tie()?;
    let mut rest = *jail;
    if order == EntryOrder::User
        && let Some(user) = rest.user.take()
    {
        become_for_good(&user)?;
    }
    enter_with(&rest, Some(program), &tie)
}

/// Becomes a user, without capabilities of root's, as one who makes or enters a user namespace
/// next. Undoes what ends this process with its parent.
pub fn become_for_good(user: &JailUser) -> Result<(), JailError> {
    let become_it = || -> io::Result<()> {
        become_user(user)?;
        tare_confine::drop_capabilities(&[])?;
        // Files of this process in /proc, by which users are mapped, are this user's then
        // (proc_pid(5)).
        Ok(set_dumpable_behavior(DumpableBehavior::Dumpable)?)
    };
    become_it().map_err(|source| JailError::User {
        uid: user.uid,
        source,
    })
}

fn enter_with(jail: &Jail, program: Option<&Program>, tie: &ParentDeath) -> Result<(), JailError> {
    if jail.namespaces {
        enter_namespaces(program, jail.user.as_ref())?;
    }
    if let Some(user) = &jail.user {
        become_user(user).map_err(|errno| JailError::User {
            uid: user.uid,
            source: errno.into(),
        })?;
    }
    tie.restore().map_err(not_restored)
}

fn enter_namespaces(program: Option<&Program>, user: Option<&JailUser>) -> Result<(), JailError> {
    let loopback = program.map_or(Loopback::Down, |program| program.loopback);
    if make_namespaces(NAMESPACES, loopback)? == Granted::No {
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

/// Keeps what is mounted here from the host.
fn separate_mounts() -> Result<Granted, JailError> {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    match mount_change("/", private) {
        Ok(()) => Ok(Granted::Yes),
        Err(errno) if is_forbidden(errno) => Ok(Granted::No),
        Err(errno) => Err(failed("separate the mounts")(errno)),
    }
}

/// Whether the kernel grants namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Granted {
    Yes,
    No,
}

fn make_namespaces(flags: UnshareFlags, loopback: Loopback) -> Result<Granted, JailError> {
    let (uid, gid) = (geteuid(), getegid());
    if uid.is_root() {
        return unshare(flags);
    }
    // Users that cannot be mapped have no capabilities in the other namespaces. What listens
    // keeps the host's then: its own interface would stay down.
    let (with_users, later) = match loopback {
        Loopback::Down => (flags, UnshareFlags::empty()),
        Loopback::Up => (UnshareFlags::empty(), flags),
    };
    if unshare(UnshareFlags::NEWUSER | with_users)? == Granted::No {
        return Ok(Granted::No);
    }
    // Or granted and of no use: AppArmor lets a program without a profile make a user
    // namespace and takes its capabilities there (Ubuntu 24.04), Landlock forbids mounts.
    match map_ids(uid, gid) {
        Ok(()) => unshare(later),
        Err(error) if Errno::from_io_error(&error).is_some_and(is_forbidden) => Ok(Granted::No),
        Err(source) => {
            let step = "map the users";
            Err(JailError::Namespace { step, source })
        }
    }
}

/// Makes these namespaces; without flags none.
fn unshare(flags: UnshareFlags) -> Result<Granted, JailError> {
    // SAFETY: descriptors stay shared, since CLONE_FILES is not among the flags.
    match unsafe { unshare_unsafe(flags) } {
        Ok(()) => Ok(Granted::Yes),
        // Not granted: a container without CAP_SYS_ADMIN, or a host that keeps user
        // namespaces to itself.
        Err(Errno::NOSPC | Errno::USERS | Errno::INVAL | Errno::NOSYS) => Ok(Granted::No),
        Err(errno) if is_forbidden(errno) => Ok(Granted::No),
        Err(errno) => Err(failed("make")(errno)),
    }
}

const fn is_forbidden(errno: Errno) -> bool {
    matches!(errno, Errno::PERM | Errno::ACCESS)
}

/// This user as itself; no other user exists in the namespace.
fn map_ids(uid: Uid, gid: Gid) -> io::Result<()> {
    let (uid, gid) = (uid.as_raw(), gid.as_raw());
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))
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
    // The machine's user reads what root makes here, whatever root's umask is.
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
    // As `switch_root(8)` does: over the old root. Unmounting that (`pivot_root(2)`) would wait
    // for every CPU (RCU), tens of milliseconds on a busy host.
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

/// Processes of this user only, where the kernel mounts that (5.8, and not for a user
/// namespace); else as the host sees it, which Landlock closes later.
fn mount_proc(flags: MountFlags) -> Result<(), Errno> {
    const OWN_ONLY: &CStr = c"hidepid=invisible,subset=pid";
    mkdirat(CWD, "proc", Mode::from_raw_mode(0o555))?;
    match mount("proc", "proc", "proc", flags, OWN_ONLY) {
        Ok(()) => Ok(()),
        Err(_) => mount_bind_recursive("/proc", "proc"),
    }
}

/// Keeps the permitted capabilities for the removal of the run directory;
/// [`crate::confine::drop_capabilities`] drops the others right after.
fn become_user(user: &JailUser) -> Result<(), Errno> {
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    set_keep_capabilities(true)?;
    set_thread_groups(&[])?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)?;
    set_keep_capabilities(false)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use landlock::{ABI, Access as _, AccessFs, Ruleset, RulesetAttr as _};

    use rustix::process::{Pid, Signal, set_parent_process_death_signal};

    use super::*;

    #[test]
    fn a_parent_that_ended_meanwhile_is_an_error_of_its_own() {
        let body = || {
            let jail = Jail {
                namespaces: false,
                user: None,
            };
            let gone = ParentDeath::on(Signal::CONT, Pid::from_raw(i32::MAX).unwrap());
            let entered = enter_tied(&jail, &gone);
            set_parent_process_death_signal(None).unwrap();
            entered
        };
        let entered = std::thread::spawn(body).join().unwrap();
        assert!(matches!(entered, Err(JailError::ParentEnded)));
    }

    /// As root the kernel makes the namespaces and refuses the mounts.
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
