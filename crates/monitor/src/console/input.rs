//! Standard input to the serial port. I/O thread.

use std::io;

use rustix::io::Errno;
use rustix::stdio::stdin;

use super::Console;
use crate::poll::{Interest, Poll};

const CHUNK: usize = 64;

/// How standard input is read.
#[derive(Debug)]
pub struct Input {
    token: u64,
    watched: Interest,
    /// A regular file, which epoll does not take: always readable.
    is_file: bool,
}

impl Input {
    /// Watches standard input as `token`.
    pub fn start(poll: &Poll, token: u64) -> io::Result<Self> {
        let is_file = match poll.add(stdin(), token) {
            Ok(()) => false,
            Err(error) if error.raw_os_error() == Some(Errno::PERM.raw_os_error()) => true,
            Err(error) => return Err(error),
        };
        let watched = if is_file {
            Interest::default()
        } else {
            Interest::READ
        };
        Ok(Self {
            token,
            watched,
            is_file,
        })
    }

    /// Reads what is available and the port takes. `false` at the end of input, which is then no
    /// longer watched.
    pub fn ready(&mut self, poll: &Poll, console: &Console) -> io::Result<bool> {
        loop {
            let room = console.input_room().min(CHUNK);
            if room == 0 {
                self.watch(poll, Interest::default())?;
                return Ok(true);
            }
            let mut chunk = [0; CHUNK];
            match rustix::io::read(stdin(), &mut chunk[..room]) {
                Ok(count @ 1..) => console.push_input(&chunk[..count]),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => {}
                Ok(_) | Err(_) => {
                    self.watch(poll, Interest::default())?;
                    return Ok(false);
                }
            }
            if !self.is_file {
                self.watch(poll, Interest::READ)?;
                return Ok(true);
            }
        }
    }

    /// The port has room again. A file is read at once. Anything else is only watched, because a
    /// read before a key is typed would block this thread.
    pub fn resume(&mut self, poll: &Poll, console: &Console) -> io::Result<bool> {
        if self.is_file {
            return self.ready(poll, console);
        }
        self.watch(poll, Interest::READ)?;
        Ok(true)
    }

    fn watch(&mut self, poll: &Poll, interest: Interest) -> io::Result<()> {
        if self.is_file {
            return Ok(());
        }
        poll.change(stdin(), self.token, self.watched, interest)?;
        self.watched = interest;
        Ok(())
    }
}
