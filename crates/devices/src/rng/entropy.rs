//! Where random bytes come from.

use std::io;

/// A source of random bytes. Called on the I/O thread under the device's mutex.
pub trait Entropy: Send {
    /// Fills `buffer` without blocking.
    fn fill(&mut self, buffer: &mut [u8]) -> io::Result<()>;
}

/// The host kernel's generator: getrandom(2), which the I/O thread's system
/// call filter must allow.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsEntropy;

impl Entropy for OsEntropy {
    fn fill(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        let mut rest = buffer;
        while !rest.is_empty() {
            let filled =
                rustix::rand::getrandom(&mut *rest, rustix::rand::GetRandomFlags::NONBLOCK)?;
            rest = &mut rest[filled..];
        }
        Ok(())
    }
}
