//! What the control socket answers: the monitor's statistics and settings, as
//! far as a disk without a machine has them.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use tare_control::api::Stop;
use tare_control::settings::{Settings, SettingsChange, SettingsError};
use tare_control::stats::{DeviceStats, Kvm, Stats};
use tare_daemon::disk::DiskRules;
use tare_daemon::http::{Request, Response, Routes};
use tare_daemon::interface::{self, Interface};
use tare_daemon::observe::{MemoryObserver, ThreadObserver};
use tare_daemon::rules::SharedRules;
use tare_devices::CounterSource;

/// The one disk's name in settings.
const DISK: &str = "disk0";

/// The control interface.
pub(crate) struct Control {
    pub(crate) name: String,
    pub(crate) disk_path: String,
    pub(crate) started: Instant,
    pub(crate) rules: Arc<SharedRules<DiskRules>>,
    pub(crate) counters: Vec<Arc<dyn CounterSource>>,
    pub(crate) threads: Vec<ThreadObserver>,
    pub(crate) memory: MemoryObserver,
    /// A request to stop, for the main loop.
    pub(crate) stop: Option<Stop>,
    /// Wakes the I/O thread after a change.
    pub(crate) wake: OwnedFd,
}

impl Routes for Control {
    fn answer(&mut self, request: &Request<'_>) -> Response {
        interface::answer(self, request)
    }
}

impl Interface for Control {
    fn stats(&self) -> Stats {
        let uptime_ns = self.started.elapsed().as_nanos();
        let counters = self.counters.iter().flat_map(|it| it.snapshot());
        Stats {
            name: self.name.clone(),
            pid: std::process::id(),
            kvm: Kvm::None,
            ring: None,
            uptime_ns: u64::try_from(uptime_ns).unwrap_or(u64::MAX),
            halt: None,
            vcpus: Vec::new(),
            devices: vec![DeviceStats {
                kind: "blk".to_owned(),
                address: String::new(),
                counters: counters.collect(),
            }],
            threads: self.threads.iter().map(ThreadObserver::stats).collect(),
            memory: self.memory.stats(),
        }
    }

    fn settings(&self) -> Settings {
        let disk = self.rules.get().settings(&self.disk_path);
        Settings {
            halt: None,
            net: None,
            disks: [(DISK.to_owned(), disk)].into(),
        }
    }

    fn change(&mut self, change: &SettingsChange) -> Result<Settings, SettingsError> {
        let wanted = self.settings().changed(change)?;
        if change.disks.contains_key(DISK)
            && let Some(disk) = wanted.disks.get(DISK)
            // `changed` has checked it.
            && let Ok(rules) = DiskRules::wanted(disk)
        {
            self.rules.set(rules);
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
        Ok(self.settings())
    }

    fn stop(&mut self, how: Stop) {
        self.stop = Some(how);
    }
}
