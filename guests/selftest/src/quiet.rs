//! An idle image, and how it idled.

use tare_libos::time::Duration;
use tare_libos::{println, sched, thread};

/// Sleeps, then prints each core's account of that time.
pub(crate) fn idle(seconds: u64) {
    // Other threads finish what they do at start.
    thread::sleep(Duration::from_millis(500));
    let before: alloc::vec::Vec<_> = (0..thread::cores()).map(sched::core_stats).collect();
    println!("idle for {seconds} s");
    thread::sleep(Duration::from_secs(seconds));
    for (core, before) in before.iter().enumerate() {
        let after = sched::core_stats(core);
        println!(
            "core {core}: halts {} halted_ms {} spun_us {} switches {} timers {}",
            after.halts - before.halts,
            (after.halted_ns - before.halted_ns) / 1_000_000,
            (after.spun_ns - before.spun_ns) / 1_000,
            after.switches - before.switches,
            timers(&after) - timers(before),
        );
    }
}

/// Writes of the timer.
fn timers(stats: &sched::CoreStats) -> u64 {
    stats.timers_armed + stats.timers_renewed
}
