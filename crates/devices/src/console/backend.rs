//! The host's ends of the ports.

use crate::virtio::Interest;

/// What became of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// This many moved, at least one.
    Bytes(usize),
    /// None: the call would have had to wait.
    Blocked,
    /// None, now and later: the input has ended, or no process reads the output.
    Closed,
}

/// The host's ends, by the port's number. Called on the I/O thread under the device's
/// mutex, but for what says otherwise; never waits.
pub trait Backend: Send {
    /// Reads input into `bytes`, which is not empty.
    fn read(&mut self, port: usize, bytes: &mut [u8]) -> Moved;

    /// Writes output from `bytes`, which is not empty.
    fn write(&mut self, port: usize, bytes: &[u8]) -> Moved;

    /// What the device waits for at this port from now on. When it has come, the backend's
    /// descriptor is ready to read.
    fn watch(&mut self, port: usize, interest: Interest);
}
