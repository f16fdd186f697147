//! A standard stream that is a port of the machine ([`tare_libos::ports`]): to the program a
//! pipe, of which it has one end.

use alloc::format;
use alloc::string::String;

use linux_raw_sys::general::{O_RDONLY, O_WRONLY, POLLERR, POLLHUP, POLLIN, POLLOUT, S_IFIFO};
use tare_libos::ports::Port;
use tare_libos::thread::Thread as Waiter;

use super::{File, Status};
use crate::errno::{Errno, Result};

/// Standard input, output or error.
pub(crate) struct Stream {
    port: Port,
    number: usize,
}

impl Stream {
    /// The stream of descriptor `number`.
    pub(crate) fn new(port: Port, number: usize) -> Self {
        Self { port, number }
    }

    fn is_input(&self) -> bool {
        self.number == 0
    }

    /// The flags that it is open with.
    pub(crate) fn access(&self) -> u32 {
        if self.is_input() { O_RDONLY } else { O_WRONLY }
    }
}

impl File for Stream {
    fn read(&self, to: &mut [u8]) -> Result<usize> {
        if !self.is_input() {
            return Err(Errno::EBADF);
        }
        Ok(self.port.try_read(to)?)
    }

    fn write(&self, from: &[u8]) -> Result<usize> {
        if self.is_input() {
            return Err(Errno::EBADF);
        }
        Ok(self.port.try_write(from)?)
    }

    fn readable_bytes(&self) -> Result {
        Ok(self.port.readable_bytes() as u64)
    }

    fn status(&self) -> Result<Status> {
        Ok(Status {
            inode: self.number as u64 + 1,
            mode: S_IFIFO | 0o600,
            links: 1,
            ..Status::default()
        })
    }

    fn ready(&self) -> u32 {
        let ready = self.port.readiness();
        let bit = |has, bit| if has { bit } else { 0 };
        let closed = if self.is_input() { POLLHUP } else { POLLERR };
        bit(ready.readable, POLLIN) | bit(ready.writable, POLLOUT) | bit(ready.closed, closed)
    }

    fn arrivals(&self) -> u64 {
        self.port.arrived_bytes()
    }

    fn watch(&self, waiter: &Waiter) {
        self.port.watch(waiter);
    }

    fn unwatch(&self, waiter: &Waiter) {
        self.port.unwatch(waiter);
    }

    fn name(&self) -> String {
        format!("pipe:[{}]", self.number + 1)
    }
}
