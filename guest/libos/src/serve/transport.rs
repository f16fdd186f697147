//! What a connection needs of a byte stream.
//!
//! The appliance gives it libos' TCP streams, the host standard ones, the tests
//! scripted ones: one connection logic for all.

use core::net::IpAddr;
use core::time::Duration;

/// A two-way stream.
pub trait Transport {
    /// Waits for bytes, at most `within` if given; 0 means that the peer has ended.
    fn receive(
        &mut self,
        into: &mut [u8],
        within: Option<Duration>,
    ) -> Result<usize, TransportError>;

    /// Sends from the start of the parts, as one message if it fits; waits up to
    /// `within` for room and returns how much was taken, more than 0.
    fn send<const N: usize>(
        &mut self,
        parts: &[&[u8]; N],
        within: Duration,
    ) -> Result<usize, TransportError>;

    /// Says to the peer that nothing more will be sent.
    fn finish(&mut self);

    /// Time of a monotonic clock.
    fn now(&self) -> Duration;

    /// The other side's address, where there is one.
    fn peer(&self) -> Option<IpAddr> {
        None
    }

    /// Lets other connections run, where threads do not preempt each other.
    fn give_way(&mut self) {}
}

/// Why a stream did not deliver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// The wait was over.
    #[error("timed out waiting for the peer")]
    TimedOut,
    /// The connection is gone.
    #[error("connection broke")]
    Broken,
}
