//! Halted cores that are woken together.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use tare_libos::sched::{self, CoreStats};
use tare_libos::sync::{Condvar, Mutex};
use tare_libos::thread::{self, JoinHandle};
use tare_libos::time::Duration;

use super::ensure::ensure;

/// A broadcast wakes a waiter on each other core. On three or more cores that
/// takes fewer interrupt commands than cores, where the machine can.
pub(super) fn check() -> Result<String, String> {
    let shared = Arc::new((Mutex::new(false), Condvar::new()));
    let waiters: Vec<_> = (1..thread::cores())
        .map(|core| {
            let shared = Arc::clone(&shared);
            thread::spawn_on(core, move || {
                drop(shared.1.wait_while(shared.0.lock(), |done| !*done));
            })
        })
        .collect();
    // Time for all of them to halt.
    thread::sleep(Duration::from_millis(50));
    let before = sched::core_stats(thread::current_core());
    *shared.0.lock() = true;
    shared.1.notify_all();
    let after = sched::core_stats(thread::current_core());
    waiters.into_iter().for_each(JoinHandle::join);
    let of = |count: fn(&CoreStats) -> u64| count(&after) - count(&before);
    let sent = of(|s| s.ipis_sent);
    let woken = sent + of(|s| s.ipis_shared);
    ensure(woken < thread::cores() as u64, || {
        format!("{woken} of {} cores woken", thread::cores())
    })?;
    Ok(format!("woken {woken} commands {sent}"))
}
