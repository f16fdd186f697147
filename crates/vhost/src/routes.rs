//! What the control socket answers: the monitor's statistics and settings, as
//! far as a disk without a machine has them.

use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tare_control::api::Stop;
use tare_control::settings::{Settings, SettingsChange, SettingsError};
use tare_control::stats::{DeviceStats, Kvm, Stats};
use tare_daemon::disk::{self, AdjustableDisk, DiskRules};
use tare_daemon::http::{Request, Response, Routes};
use tare_daemon::interface::{self, Interface};
use tare_daemon::main_loop::Service;
use tare_daemon::observe::{MemoryObserver, ThreadObserver};
use tare_daemon::signals;
use tare_devices::CounterSource;

use crate::exit_reason::ExitReason;
use crate::watchdog::{Turns, Watchdog};

/// One disk, seen from the main thread.
pub(crate) struct DiskControl {
    pub(crate) disk: AdjustableDisk,
    pub(crate) counters: [Arc<dyn CounterSource>; 2],
    /// Wakes its I/O thread after a change.
    pub(crate) wake: OwnedFd,
    /// Its I/O thread has taken a turn since this was cleared and `wake` written.
    pub(crate) answered: Arc<AtomicBool>,
    pub(crate) failure: Failure,
}

/// Why an I/O thread failed, if it did; a sentence.
pub(crate) type Failure = Arc<Mutex<Option<String>>>;

/// An I/O thread failed.
pub(crate) const FAILED: u32 = 0;

/// The control interface.
pub(crate) struct Control {
    pub(crate) name: String,
    pub(crate) started: Instant,
    pub(crate) disks: Vec<DiskControl>,
    pub(crate) threads: Vec<ThreadObserver>,
    pub(crate) memory: MemoryObserver,
    pub(crate) watchdog: Watchdog,
    /// Why serving ends, once that is known.
    pub(crate) end: Option<ExitReason>,
}

impl Routes for Control {
    fn answer(&mut self, request: &Request<'_>) -> Response {
        interface::answer(self, request)
    }
}

impl Service for Control {
    type End = ExitReason;

    fn timeout(&self) -> Option<Duration> {
        self.watchdog.left(Instant::now())
    }

    fn look(&mut self) {
        let threads = self.disks.iter().map(|disk| Turns {
            answered: &disk.answered,
            wake: &disk.wake,
        });
        self.watchdog.look(Instant::now(), threads);
    }

    fn signal(&mut self, signal: i32) {
        if let Some(request) = signals::Request::of(signal) {
            self.end.get_or_insert(ExitReason::Signal(request));
        }
    }

    fn event(&mut self, number: u32) {
        if number == FAILED {
            let failed = self.disks.iter().find_map(|disk| {
                let failure = disk.failure.lock();
                failure.unwrap_or_else(PoisonError::into_inner).clone()
            });
            let failed = failed.unwrap_or_else(|| "an I/O thread failed".to_owned());
            self.end.get_or_insert(ExitReason::Failed(failed));
        }
    }

    fn end(&mut self) -> Option<ExitReason> {
        self.end.take()
    }
}

impl Interface for Control {
    fn stats(&self) -> Stats {
        let uptime_ns = self.started.elapsed().as_nanos();
        let device = |(number, disk): (usize, &DiskControl)| DeviceStats {
            kind: "blk".to_owned(),
            address: disk::name(number),
            counters: disk.counters.iter().flat_map(|it| it.snapshot()).collect(),
        };
        Stats {
            name: self.name.clone(),
            pid: std::process::id(),
            kvm: Kvm::None,
            ring: None,
            uptime_ns: u64::try_from(uptime_ns).unwrap_or(u64::MAX),
            halt: None,
            expiries: Vec::new(),
            vcpus: Vec::new(),
            devices: self.disks.iter().enumerate().map(device).collect(),
            threads: self.threads.iter().map(ThreadObserver::stats).collect(),
            memory: self.memory.stats(),
        }
    }

    fn settings(&self) -> Settings {
        let disks = self.disks.iter().enumerate();
        Settings {
            halt: None,
            net: None,
            disks: disks
                .map(|(number, it)| (disk::name(number), it.disk.settings()))
                .collect(),
        }
    }

    fn change(&mut self, change: &SettingsChange) -> Result<Settings, SettingsError> {
        let wanted = self.settings().changed(change)?;
        disk::grow(self.disks.iter_mut().map(|it| &mut it.disk), change)?;
        for (number, disk) in self.disks.iter().enumerate() {
            let name = disk::name(number);
            if change.disks.contains_key(&name)
                && let Some(wanted) = wanted.disks.get(&name)
                // `changed` has checked it.
                && let Ok(rules) = DiskRules::wanted(wanted)
            {
                disk.disk.rules.set(rules);
                let _ = rustix::io::write(&disk.wake, &1u64.to_ne_bytes());
            }
        }
        Ok(self.settings())
    }

    fn stop(&mut self, how: Stop) {
        self.end.get_or_insert(ExitReason::Stopped(how));
    }
}
