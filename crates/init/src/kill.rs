//! `kill(2)` with any number: rustix has names for the ordinary signals alone.
#![allow(unsafe_code)]

use libc::pid_t;

/// Sends a signal to a process, or to a process group by its negative number. One that is not a signal is
/// not sent; a process that has ended takes it as long as it is not collected.
pub(crate) fn kill(to: pid_t, signal: i32) {
    // SAFETY: integers only.
    unsafe { libc::kill(to, signal) };
}
