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
/// for each, in their order. `pause` waits until a time; its error ends the window.
pub fn observe<E>(
    vms: &[Vm],
    window: Duration,
    mut pause: impl FnMut(Instant) -> Result<(), E>,
) -> Result<Vec<Account>, E> {
    let mut observer = Observer::start(vms);
    let end = Instant::now() + window;
    while Instant::now() < end && !observer.all_ended() {
        pause(end.min(Instant::now() + observer.next_refresh()))?;
        observer.refresh();
    }
    Ok(observer.turn())
}
