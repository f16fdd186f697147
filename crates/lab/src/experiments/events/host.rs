//! The same between two threads of the host with a mutex and a condition
//! variable.

use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use crate::pin;

/// A flag that one thread sets and one waits for.
#[derive(Default)]
struct Signal {
    flag: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    fn set(&self) {
        *self.flag.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_one();
    }

    fn wait(&self) {
        let mut flag = self.flag.lock().unwrap_or_else(PoisonError::into_inner);
        while !*flag {
            flag = self
                .changed
                .wait(flag)
                .unwrap_or_else(PoisonError::into_inner);
        }
        *flag = false;
    }
}

/// Round trips of two messages between two pinned threads, ns each.
pub(super) fn round_trips(rounds: usize) -> Vec<f64> {
    let (ping, pong) = (Signal::default(), Signal::default());
    let cpus = pin::allowed().unwrap_or_default();
    let (first, second) = (cpus.first().copied(), cpus.get(1).copied());
    thread::scope(|scope| {
        scope.spawn(|| {
            pin::this_thread(second);
            for _ in 0..=rounds {
                ping.wait();
                pong.set();
            }
        });
        let caller = scope.spawn(|| {
            pin::this_thread(first);
            let round = || {
                ping.set();
                pong.wait();
                Instant::now()
            };
            let mut last = round();
            let trip = |_| {
                let now = round();
                let ns = now.duration_since(last).as_nanos() as f64;
                last = now;
                ns
            };
            (0..rounds).map(trip).collect()
        });
        caller.join().unwrap_or_default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_trip_takes_some_time() {
        let trips = round_trips(200);
        assert_eq!(trips.len(), 200);
        assert!(trips.iter().all(|ns| *ns > 0.0), "{trips:?}");
    }
}
