//! The heap: all RAM that nothing else uses, touched only as it is used. Any
//! allocation of any thread comes from it.
//!
//! An allocation that fails ends the appliance, unless its caller handles the
//! failure. So whatever a peer can cause asks [`has_room`] first and is refused
//! while the rest is still large enough for the small allocations that cannot
//! fail: list entries, wake-ups, heads of answers.

#[cfg(target_os = "none")]
pub use tare_hal::memory::heap::{HeapStats, stats};

/// The host's heap has no such account.
#[cfg(not(target_os = "none"))]
mod host {
    /// How much memory there is and how much is used, bytes.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct HeapStats {
        /// Given to the heap at start.
        pub total: u64,
        /// Allocated now.
        pub used: u64,
    }

    /// The heap's state now.
    pub fn stats() -> HeapStats {
        HeapStats::default()
    }
}
#[cfg(not(target_os = "none"))]
pub use host::{HeapStats, stats};

/// The reserve is the heap's size shifted right by this.
const RESERVE_SHIFT: u32 = 4;

/// Bytes that may still be allocated on behalf of a peer; unlimited where the heap
/// is not accounted.
pub fn available() -> u64 {
    let heap = stats();
    match heap.total {
        0 => u64::MAX,
        total => (total - (total >> RESERVE_SHIFT)).saturating_sub(heap.used),
    }
}

/// Whether `bytes` more on behalf of a peer leave the reserve untouched.
pub fn has_room(bytes: usize) -> bool {
    bytes as u64 <= available()
}
