//! Wake-ups between two threads of the host: one sleeps in a futex, the other wakes it after a
//! gap. No guest, no interrupt of ours: what the host's own scheduler takes.

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::pin;

/// Times in ns from before the wake-up call until the sleeper runs, on `cpus` CPUs.
pub fn measure(samples: usize, gap: Duration, cpus: usize) -> io::Result<Vec<f64>> {
    let samples = samples as u64;
    let (asleep, turn) = (AtomicU64::new(0), AtomicU64::new(0));
    let (sleeper, woken) = (Mutex::new(None::<Thread>), Mutex::new(Vec::new()));
    let sleep = || {
        *lock(&sleeper) = Some(thread::current());
        for sample in 1..=samples {
            asleep.store(sample, Ordering::Release);
            while turn.load(Ordering::Acquire) < sample {
                thread::park();
            }
            let now = Instant::now();
            lock(&woken).push(now);
        }
    };
    let called = pin::pair(cpus, sleep, || {
        let mut called = Vec::new();
        for sample in 1..=samples {
            while asleep.load(Ordering::Acquire) < sample {
                std::hint::spin_loop();
            }
            let halted = Instant::now();
            while halted.elapsed() < gap {
                std::hint::spin_loop();
            }
            let sleeper = lock(&sleeper).clone();
            called.push(Instant::now());
            turn.store(sample, Ordering::Release);
            if let Some(sleeper) = sleeper {
                sleeper.unpark();
            }
        }
        Ok(called)
    })?;
    let woken = lock(&woken);
    let pairs = woken.iter().zip(&called);
    let ns = pairs.map(|(woken, called)| woken.duration_since(*called).as_nanos() as f64);
    Ok(ns.collect())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wake_up_takes_some_time() {
        let wakes = measure(50, Duration::from_micros(50), 1).unwrap();
        assert_eq!(wakes.len(), 50);
        assert!(wakes.iter().all(|ns| *ns > 0.0), "{wakes:?}");
    }
}
