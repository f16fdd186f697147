//! The heap: all RAM that nothing else uses, touched only as it is used. Any
//! allocation of any thread comes from it.

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
