//! Observing virtual machines: BPF on KVM's and the scheduler's trace points, the
//! files of their threads, KVM's statistics; put together as [`Account`]s.

mod assemble;
mod classes;
mod cost;
mod counts;
mod device;
mod events;
mod gate;
mod gate_words;
mod host;
mod interrupts;
mod ledger;
mod observer;
mod scale;
#[cfg(test)]
mod scripted;
mod slices;
mod statistics;
mod tally;
mod taps;
mod tasks;
mod threads;
mod watched;
mod weighted;

use std::time::{Duration, Instant};

pub use gate::{Counting, FirstBurst, Limits};
pub(crate) use host::kernel_threads;
pub use observer::Observer;

use crate::vm::Vm;
use tare_account::Account;

/// Observes `vms` for `window`, or until the last of them has ended. One account
/// for each, in their order.
pub fn observe(vms: &[Vm], window: Duration) -> Vec<Account> {
    let mut observer = Observer::start(vms);
    let end = Instant::now() + window;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || observer.all_ended() {
            return observer.turn();
        }
        std::thread::sleep(left.min(observer.next_refresh()));
        observer.refresh();
    }
}
