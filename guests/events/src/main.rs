//! Two threads that signal each other, on two cores or on one (KVM Message Passing 2015: event objects), and what a message costs in halts, interrupts and
//! timer writes, as the scheduler counts them.
//!
//! Prints JSON, a line each: `{"khz":N}`, `{"begin":true}` (and waits 100 ms),
//! `{"round":[..]}` in batches, a round trip of two messages in cycles, then the
//! counters of all cores, at last `{"done":true}`. Command line: `rounds=N`
//! (1000), `by=event|condvar`, and `hold`, which keeps the machine for who wants
//! its statistics.

#![cfg_attr(target_os = "none", no_std, no_main)]

extern crate alloc;

mod signal;

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use signal::Signal;
use tare_libos::hal::clock;
use tare_libos::sched::{CoreStats, core_stats};
use tare_libos::{env, println, thread};

/// Round trips in a printed line.
const BATCH: usize = 100;
/// Round trips that are not counted: threads start, the spin finds its length.
const WARM_UP: u64 = 50;
/// Time for the host to read the machine's statistics.
const PAUSE: Duration = Duration::from_millis(100);

fn events() -> Result<(), &'static str> {
    let rounds = number("rounds", 1000).clamp(1, 1_000_000);
    let (ping, pong) = match env::var("by").unwrap_or("event") {
        "event" => (Signal::event(), Signal::event()),
        "condvar" => (Signal::condvar(), Signal::condvar()),
        _ => return Err("by is event or condvar"),
    };
    let (ping, pong) = (Arc::new(ping), Arc::new(pong));
    println!("{{\"khz\":{}}}", clock::ticks_per_s() / 1000);
    let partner = {
        let (ping, pong) = (Arc::clone(&ping), Arc::clone(&pong));
        thread::spawn_on(thread::cores() - 1, move || {
            for _ in 0..WARM_UP + rounds {
                ping.wait();
                pong.set();
            }
        })
    };
    println!("{{\"begin\":true}}");
    thread::sleep(PAUSE);
    let round = || {
        ping.set();
        pong.wait();
        clock::ticks()
    };
    let mut last = 0;
    for _ in 0..WARM_UP {
        last = round();
    }
    let before = stats();
    let stamps: Vec<u64> = (0..rounds).map(|_| round()).collect();
    let after = stats();
    partner.join();
    let trips: Vec<u64> = stamps
        .into_iter()
        .map(|stamp| stamp.saturating_sub(core::mem::replace(&mut last, stamp)))
        .collect();
    trips.chunks(BATCH).for_each(print);
    print_counters(rounds * 2, &before, &after);
    println!("{{\"done\":true}}");
    if env::has_word("hold") {
        thread::park();
    }
    Ok(())
}

tare_libos::entry!(events);

/// On the host, over the shim of `tare_libos::thread`.
#[cfg(not(target_os = "none"))]
fn main() -> Result<(), &'static str> {
    events()
}

fn stats() -> Vec<CoreStats> {
    (0..thread::cores()).map(core_stats).collect()
}

fn print(batch: &[u64]) {
    let numbers: Vec<_> = batch.iter().map(|cycles| format!("{cycles}")).collect();
    println!("{{\"round\":[{}]}}", numbers.join(","));
}

fn print_counters(messages: u64, before: &[CoreStats], after: &[CoreStats]) {
    let sum = |of: fn(&CoreStats) -> u64| {
        let all = |stats: &[CoreStats]| stats.iter().map(of).sum::<u64>();
        all(after) - all(before)
    };
    println!(
        "{{\"messages\":{messages},\"halts\":{},\"ipis\":{},\"ipis_skipped\":{},\"timers\":{},\"timers_renewed\":{},\
         \"spins\":{},\"spins_caught\":{},\"spun_ns\":{},\"switches\":{}}}",
        sum(|s| s.halts),
        sum(|s| s.ipis_sent),
        sum(|s| s.ipis_skipped),
        sum(|s| s.timers_armed),
        sum(|s| s.timers_renewed),
        sum(|s| s.spins),
        sum(|s| s.spins_caught),
        sum(|s| s.spun_ns),
        sum(|s| s.switches),
    );
}

fn number(key: &'static str, default: u64) -> u64 {
    let given = env::var(key).and_then(|text| text.parse().ok());
    given.unwrap_or(default)
}
