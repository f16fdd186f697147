//! The daemon's I/O loop on a thread.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use tare_daemon::disk::DiskRules;
use tare_daemon::poll::Poll;
use tare_daemon::rules::SharedRules;
use tare_devices::CounterSource;
use tare_devices::blk::{
    Access, Blk, BlkSettings, Cache, Disk, Growth, MonotonicClock, SERIAL_BYTES, choose, paced,
};

use tare_devices::virtio::VirtioDevice as _;

use tare_policy::coalesce::{Mode, Settings};

use crate::counters::VhostCounters;
use crate::front::Front;
use crate::incoming::Timeouts;
use crate::io::{IoLoop, QUEUES};
use crate::session::Session;

fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}

/// How completions are coalesced unless a test says otherwise.
const COALESCED: Mode = Mode::Auto;

/// The daemon, ended when dropped.
pub(crate) struct Daemon {
    directory: tempfile::TempDir,
    disk: Arc<dyn CounterSource>,
    rules: Arc<SharedRules<DiskRules>>,
    growth: Growth,
    wake: OwnedFd,
    pub counters: Arc<VhostCounters>,
    stop: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl Daemon {
    /// Serves a disk whose sectors hold their numbers.
    pub(crate) fn new() -> Self {
        Self::with(Duration::ZERO, Timeouts::default(), COALESCED)
    }

    /// As [`new`](Self::new); each request takes so long.
    pub(crate) fn with_latency(latency: Duration) -> Self {
        Self::coalescing(latency, COALESCED)
    }

    /// The same with this coalescing.
    pub(crate) fn coalescing(latency: Duration, coalesced: Mode) -> Self {
        Self::with(latency, Timeouts::default(), coalesced)
    }

    /// As [`new`](Self::new); a front-end may take so long for a message.
    pub(crate) fn with_timeout(timeout: Duration) -> Self {
        let timeouts = Timeouts {
            first: timeout,
            rest: timeout,
        };
        Self::with(Duration::ZERO, timeouts, COALESCED)
    }

    fn with(latency: Duration, timeouts: Timeouts, coalesced: Mode) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk");
        let bytes: Vec<u8> = (0..64).flat_map(|sector| [sector; 512]).collect();
        std::fs::write(&path, bytes).unwrap();
        let disk = Disk::open(&path, Access::ReadWrite).unwrap();
        let settings = BlkSettings {
            serial: [b's'; SERIAL_BYTES],
            queues: 2,
            cache: Cache::Writeback,
            coalesce: Settings::with_mode(coalesced),
            limits: Default::default(),
        };
        let growth = Growth::new(&disk).unwrap();
        let engine = choose(&disk).unwrap().engine;
        let engine = paced(engine, latency, Box::new(MonotonicClock));
        let device = Blk::new(settings, disk, engine, Box::new(MonotonicClock));
        let disk_counters = device.counters();
        let poll = Arc::new(Poll::new().unwrap());
        let counters: Arc<VhostCounters> = Arc::default();
        let session = Session::new(device, Arc::clone(&poll), Arc::clone(&counters), QUEUES);
        let session = Arc::new(Mutex::new(session));
        let listener = UnixListener::bind(directory.path().join("s")).unwrap();
        let stop = event();
        let stopped = stop.try_clone().unwrap();
        let counted = Arc::clone(&counters);
        let io = IoLoop::new(poll, listener, session, counted, stopped, event())
            .unwrap()
            .with_timeouts(timeouts);
        let (rules, wake) = (io.rules(), io.wake().unwrap());
        let thread = std::thread::spawn(move || io.run().unwrap());
        Self {
            directory,
            disk: disk_counters,
            rules,
            growth,
            wake,
            counters,
            stop,
            thread: Some(thread),
        }
    }

    /// Makes the disk longer, as the main thread does.
    pub(crate) fn grow(&mut self, bytes: u64) {
        let rules = self.rules.get();
        self.growth.grow(rules.bytes, bytes).unwrap();
        self.rules.set(DiskRules { bytes, ..rules });
        rustix::io::write(&self.wake, &1u64.to_ne_bytes()).unwrap();
    }

    /// Writes that were durable before their answer.
    pub(crate) fn durable_writes(&self) -> u64 {
        self.disk()["durable_writes"]
    }

    /// The disk's counters.
    pub(crate) fn disk(&self) -> BTreeMap<String, u64> {
        self.disk.snapshot()
    }

    pub(crate) fn socket(&self) -> std::path::PathBuf {
        self.directory.path().join("s")
    }

    pub(crate) fn connect(&self) -> Front {
        Front::connect(&self.socket())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        rustix::io::write(&self.stop, &1u64.to_ne_bytes()).unwrap();
        self.thread.take().unwrap().join().unwrap();
    }
}
