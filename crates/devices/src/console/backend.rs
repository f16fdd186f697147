//! The host's ends of the ports.

use crate::virtio::Interest;

/// What a call did with bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// This many moved, at least one.
    Bytes(usize),
    /// None: the call would have blocked.
    Blocked,
    /// None, now or later: the input has ended, or no process reads the output.
    Closed,
}

/// The host's ends, by port number. Called on the I/O thread under the device's mutex, except where
/// a method says otherwise. No call blocks.
pub trait Backend: Send {
    /// Reads input into `bytes`, which is not empty.
    fn read(&mut self, port: usize, bytes: &mut [u8]) -> Moved;

    /// Writes output from `bytes`, which is not empty.
    fn write(&mut self, port: usize, bytes: &[u8]) -> Moved;

    /// Sets what the device waits for at this port. When it comes, the backend's descriptor becomes
    /// readable.
    fn watch(&mut self, port: usize, interest: Interest);
}
