//! The state of standard input, saved before a program that a signal may end before it restores it:
//! the terminal's mode, and whether reads wait. Both belong to the open file, which a shell uses too.
//!
//! Limits: the mode of a terminal whose foreground this process has left stays as it is, since the
//! kernel would stop this process for changing it (`termios(3)`, SIGTTOU).

use std::io;
use std::os::fd::AsFd as _;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::getpgrp;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};

/// Standard input as it was.
#[derive(Clone, Debug)]
pub struct SavedInput {
    /// `None`: not a terminal.
    mode: Option<Termios>,
    /// `None`: it is closed.
    flags: Option<OFlags>,
}

impl SavedInput {
    /// As it is now.
    pub fn save() -> Self {
        let input = io::stdin();
        Self {
            mode: tcgetattr(input.as_fd()).ok(),
            flags: fcntl_getfl(input.as_fd()).ok(),
        }
    }

    /// Restores it. May be repeated; errors are ignored: the terminal may have gone.
    pub fn restore(&self) {
        let input = io::stdin();
        if let (Some(before), Ok(now)) = (self.flags, fcntl_getfl(input.as_fd())) {
            let waits = (now - OFlags::NONBLOCK) | (before & OFlags::NONBLOCK);
            if waits != now {
                let _ = fcntl_setfl(input.as_fd(), waits);
            }
        }
        if let Some(mode) = &self.mode
            && tcgetpgrp(input.as_fd()).is_ok_and(|foreground| foreground == getpgrp())
        {
            let _ = tcsetattr(input.as_fd(), OptionalActions::Now, mode);
        }
    }
}
