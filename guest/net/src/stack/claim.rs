//! What ARP keeps of this side's own address.

use smoltcp::time::Instant;

/// What ARP keeps beside the table of neighbours.
#[derive(Default)]
pub(super) struct Claim {
    /// When the address was taken.
    pub(super) taken: Option<Instant>,
    pub(super) defended: Option<Instant>,
}
