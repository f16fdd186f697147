//! The user, group and supplementary groups of a command.
#![allow(unsafe_code)]

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::io::Errno;
use rustix::process::{Gid, Uid, getgroups};
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};

use crate::account::Account;

/// Has `command` run as this account. On a kernel without users (CONFIG_MULTIUSER), where every
/// process has all rights, nothing changes.
pub fn give(command: &mut Command, account: &Account) {
    if (account.uid, account.gid) == (0, 0) && account.groups.is_empty() {
        return;
    }
    let groups: Vec<Gid> = account.groups.iter().map(|it| Gid::from_raw(*it)).collect();
    let (uid, gid) = (Uid::from_raw(account.uid), Gid::from_raw(account.gid));
    // SAFETY: between fork and exec the closure makes three system calls and neither
    // allocates nor takes locks. The child has one thread.
    unsafe {
        command.pre_exec(move || {
            where_there_are_users(set_thread_groups(&groups))?;
            where_there_are_users(set_thread_gid(gid))?;
            where_there_are_users(set_thread_uid(uid))
        });
    }
}

/// Whether the kernel has users; one without them has none of these calls (`kernel/groups.c`).
pub fn has_users() -> bool {
    getgroups() != Err(Errno::NOSYS)
}

fn where_there_are_users(result: rustix::io::Result<()>) -> io::Result<()> {
    match result {
        Err(Errno::NOSYS) => Ok(()),
        result => Ok(result?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_users_keeps_no_command_from_running() {
        assert!(has_users());
        assert!(where_there_are_users(Err(Errno::NOSYS)).is_ok());
        assert!(where_there_are_users(Err(Errno::PERM)).is_err());
    }
}
