//! A supervisor that wants to hear at intervals that the daemon is alive.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::activation::Supervisor;
use crate::routes::DiskControl;

/// Says so while the main thread and each I/O thread take turns; one that is in the middle of
/// something has until the next look.
pub(crate) struct Watchdog {
    supervisor: Supervisor,
    next: Instant,
}

impl Watchdog {
    /// For that supervisor; the first look is due at once.
    pub(crate) fn new(supervisor: Supervisor) -> Self {
        Self {
            supervisor,
            next: Instant::now(),
        }
    }

    pub(crate) fn supervisor(&self) -> &Supervisor {
        &self.supervisor
    }

    /// Time until the next look; `None`: the supervisor does not want to hear it.
    pub(crate) fn left(&self) -> Option<Duration> {
        self.supervisor.interval()?;
        Some(self.next.saturating_duration_since(Instant::now()))
    }

    /// Reports to the supervisor, if it is time and all threads have answered, and wakes them.
    pub(crate) fn look(&mut self, disks: &[DiskControl]) {
        let Some(interval) = self.supervisor.interval() else {
            return;
        };
        if self.next > Instant::now() {
            return;
        }
        self.next = Instant::now() + interval;
        if disks.iter().all(|it| it.answered.load(Ordering::Relaxed)) {
            self.supervisor.alive();
            for disk in disks {
                disk.answered.store(false, Ordering::Relaxed);
                let _ = rustix::io::write(&disk.wake, &1u64.to_ne_bytes());
            }
        }
    }
}
