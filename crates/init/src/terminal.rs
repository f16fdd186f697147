//! The console as the command's terminal: a session of its own that the console
//! controls, so that Ctrl-C typed there interrupts the command, and shells have
//! job control.
#![allow(unsafe_code)]

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::fs::fchown;
use rustix::process::{Uid, ioctl_tiocsctty, setsid};
use rustix::stdio::stdin;
use rustix::termios::isatty;

/// Gives `command`, which will run as `uid`, the console if there is one.
pub(crate) fn give(command: &mut Command, uid: u32) {
    if !isatty(stdin()) {
        return;
    }
    // Programs open it once more, as /dev/stdout; a kernel without users refuses.
    let _ = fchown(stdin(), Some(Uid::from_raw(uid)), None);
    // SAFETY: between fork and exec the closure makes two system calls and
    // neither allocates nor takes locks.
    unsafe {
        command.pre_exec(take);
    }
}

/// In the child. A console that cannot control a session is no reason to fail.
fn take() -> io::Result<()> {
    setsid()?;
    let _ = ioctl_tiocsctty(stdin());
    Ok(())
}
