//! The user, group and supplementary groups of a command.
#![allow(unsafe_code)]

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};
use tare_init::account::Account;

/// Has `command` run as this account. For root nothing changes: a kernel without
/// users (CONFIG_MULTIUSER) refuses even that.
pub(crate) fn give(command: &mut Command, account: &Account) {
    if (account.uid, account.gid) == (0, 0) && account.groups.is_empty() {
        return;
    }
    let groups: Vec<Gid> = account.groups.iter().map(|it| Gid::from_raw(*it)).collect();
    let (uid, gid) = (Uid::from_raw(account.uid), Gid::from_raw(account.gid));
    // SAFETY: between fork and exec the closure makes three system calls and neither
    // allocates nor takes locks. The child has one thread.
    unsafe {
        command.pre_exec(move || {
            set_thread_groups(&groups)?;
            set_thread_gid(gid)?;
            set_thread_uid(uid)?;
            Ok(())
        });
    }
}
