//! Messages between two threads of the host, with a mutex and a condition variable.

use std::io;
use std::sync::{Condvar, Mutex, PoisonError};
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
        let flag = self.flag.lock().unwrap_or_else(PoisonError::into_inner);
        let mut flag = self
            .changed
            .wait_while(flag, |is_set| !*is_set)
            .unwrap_or_else(PoisonError::into_inner);
        *flag = false;
    }
}

/// Round trips of two messages between two threads on `cpus` CPUs, ns each.
pub fn measure(rounds: usize, cpus: usize) -> io::Result<Vec<f64>> {
    let (ping, pong) = (Signal::default(), Signal::default());
    let answer = || {
        for _ in 0..=rounds {
            ping.wait();
            pong.set();
        }
    };
    pin::pair(cpus, answer, || {
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
        Ok((0..rounds).map(trip).collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_trip_takes_some_time() {
        let trips = measure(200, 1).unwrap();
        assert_eq!(trips.len(), 200);
        assert!(trips.iter().all(|ns| *ns > 0.0), "{trips:?}");
    }
}
