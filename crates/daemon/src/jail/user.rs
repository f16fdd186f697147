//! The user of a jail.

use std::io;

use rustix::io::Errno;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{
    Gid, Uid, set_keep_capabilities, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};
use tare_control::config::JailUser;

use super::error::JailError;

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

/// Keeps the permitted capabilities for the removal of the run directory;
/// [`crate::confine::drop_capabilities`] drops the others right after.
pub(super) fn become_user(user: &JailUser) -> Result<(), Errno> {
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    set_keep_capabilities(true)?;
    set_thread_groups(&[])?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)?;
    set_keep_capabilities(false)
}
