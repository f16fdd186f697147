//! How long a halted vCPU is polled for, bought with a share of a CPU.
//!
//! KVM can poll before it schedules a halted vCPU out (KVM Message Passing 2015). A
//! wake-up within the window is fast; the polling costs CPU either way. That work
//! left open how to set the window by itself. [`Budget`] does: from KVM's
//! histograms of waits it draws the [`Curve`] of what each window would cost and
//! catch, and holds the window that catches the most within the budget, or takes
//! turns between the two windows on either side of it.
//!
//! While polling is on, waits shorter than the window are in KVM's histogram of
//! successful polls, and what is left of the others in that of waits; [`Waits`]
//! puts both together again.
//!
//! [`replay`] runs recorded waits through every [`Rule`], KVM's own
//! ([`GrowShrink`]) among them, and [`most_caught`] is the best that any rule
//! could do. The reasons: `docs/adr/0016-halting-on-a-budget.md`.

mod budget;
mod curve;
mod experience;
mod gaps;
mod grow_shrink;
mod lately;
mod reading;
mod replay;
#[cfg(test)]
mod tests;

pub use budget::{Budget, Decision, Settings, Standing};
pub use curve::Curve;
pub use grow_shrink::GrowShrink;
pub use reading::{Reading, Waits};
pub use replay::{Costs, Governed, Halt, ReplayCounts, Rule, Window, most_caught, replay};

/// Buckets of KVM's histograms: bucket 0 holds zeros, bucket n values from
/// 2^(n-1) up to 2^n ns, the last one everything longer.
pub const BUCKETS: usize = 32;

/// The shortest window that is chosen is 2 to this power, ns (2 us).
const SHORTEST_SHIFT: usize = 11;
/// The longest window that is chosen is 2 to this power, ns (262 us): about
/// what the kernel polls for at most by default, and the most that one
/// caught wake-up may cost.
const LONGEST_SHIFT: usize = 18;

/// The longest window that is ever chosen, ns.
pub(crate) const LONGEST_WINDOW_NS: u64 = 1 << LONGEST_SHIFT;

/// The bucket of a value.
const fn bucket_of(ns: u64) -> usize {
    let bucket = (u64::BITS - ns.leading_zeros()) as usize;
    if bucket < BUCKETS {
        bucket
    } else {
        BUCKETS - 1
    }
}

/// A value in the middle of a bucket.
const fn middle_of(bucket: usize) -> u64 {
    match bucket {
        0 => 0,
        1 => 1,
        _ => 3 << (bucket - 2),
    }
}
