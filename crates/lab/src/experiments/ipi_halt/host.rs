//! The same between two threads of the host: one sleeps in a futex, the other
//! wakes it after the same gap. No guest, no interrupt of ours: what the host's
//! own scheduler takes.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::interrupt::{Interrupt, Interrupted};
use crate::pin;

/// Times in ns from before the wake-up call until the sleeper runs.
pub(super) fn wakes(
    samples: usize,
    gap: Duration,
    interrupt: &Interrupt,
) -> Result<Vec<f64>, HostError> {
    let (asleep, turn) = (AtomicU64::new(0), AtomicU64::new(0));
    let cpus = pin::allowed().map_err(HostError::Pin)?;
    let (first, second) = (cpus.first().copied(), cpus.get(1).copied());
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| sleep(samples as u64, second, &asleep, &turn));
        let thread = sleeper.thread().clone();
        let (asleep, turn) = (&asleep, &turn);
        // A thread of its own, so that the lab's stays where it was.
        let caller = scope.spawn(move || {
            let mut called = Vec::with_capacity(samples);
            pin::this_thread(first);
            for sample in 1..=samples as u64 {
                while asleep.load(Ordering::Acquire) < sample {
                    std::hint::spin_loop();
                }
                let halted = Instant::now();
                while halted.elapsed() < gap {
                    std::hint::spin_loop();
                }
                called.push(Instant::now());
                turn.store(sample, Ordering::Release);
                thread.unpark();
            }
            called
        });
        let called = caller.join().map_err(|_| HostError::Thread)?;
        let woken = sleeper.join().map_err(|_| HostError::Thread)?;
        interrupt.check()?;
        let pairs = woken.iter().zip(&called);
        Ok(pairs
            .map(|(woken, called)| woken.duration_since(*called).as_nanos() as f64)
            .collect())
    })
}

fn sleep(samples: u64, cpu: Option<usize>, asleep: &AtomicU64, turn: &AtomicU64) -> Vec<Instant> {
    pin::this_thread(cpu);
    let wake = |sample| {
        asleep.store(sample, Ordering::Release);
        while turn.load(Ordering::Acquire) < sample {
            thread::park();
        }
        Instant::now()
    };
    (1..=samples).map(wake).collect()
}

/// Why the host's arm failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum HostError {
    #[error("the CPUs of this process cannot be read")]
    Pin(#[source] io::Error),
    #[error("a thread of the host's arm ended early")]
    Thread,
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_wake_up_takes_some_time() {
        let gap = Duration::from_micros(50);
        let wakes = wakes(50, gap, &Interrupt::default()).unwrap();
        assert_eq!(wakes.len(), 50);
        assert!(wakes.iter().all(|ns| *ns > 0.0), "{wakes:?}");
    }
}
