//! The console as the command's controlling terminal: Ctrl-C typed there
//! interrupts the command, and shells have job control.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::fs::fchown;
use rustix::io::fcntl_dupfd_cloexec;
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
    // The command's own input may be another file by then.
    let Ok(console) = fcntl_dupfd_cloexec(stdin(), 3) else {
        return;
    };
    // SAFETY: between fork and exec the closure makes two system calls and
    // neither allocates nor takes locks.
    unsafe {
        command.pre_exec(move || take(&console));
    }
}

/// In the child. A console that cannot control a session is not an error.
fn take(console: &OwnedFd) -> io::Result<()> {
    setsid()?;
    let _ = ioctl_tiocsctty(console);
    Ok(())
}
