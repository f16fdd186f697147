//! Files, wall clock and figures of the appliance.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use tare_libos::fs::Origin;
use tare_libos::io::ErrorKind;
use tare_libos::net::stack::FigureKind;
use tare_libos::sched::{self, CoreStats};
use tare_libos::time::{Instant, SystemTime, UNIX_EPOCH};
use tare_libos::{fs, heap, io, net, println, thread};

use crate::counters::{COUNTER, GAUGE, family, sample, sample_seconds, single};
use crate::listing::{self, Entries, EntryKind};
use crate::server::Platform;
use crate::site::{Files, FindError, Node};

/// The machine that the appliance runs on.
pub(super) struct AppliancePlatform {
    started: Instant,
    started_unix_s: u64,
    /// When the next complaint may be logged, seconds after the start.
    quiet_until_s: AtomicU64,
    /// The site's table where it is among the files.
    hidden: Option<&'static str>,
}

/// How long clients cannot make the log grow after a line.
const QUIET_S: u64 = 5;

impl AppliancePlatform {
    pub(super) fn new() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            started: Instant::now(),
            started_unix_s: since.as_secs(),
            quiet_until_s: AtomicU64::new(0),
            hidden: None,
        }
    }

    /// The same machine, whose files lack the one at `path` if they are the initramfs's.
    pub(super) fn hiding(self, path: &'static str) -> Self {
        let hidden = matches!(fs::origin(), Origin::Archive { .. }).then_some(path);
        Self { hidden, ..self }
    }

    /// Where the files are, and how many are served.
    pub(super) fn origin(&self) -> Origin {
        match fs::origin() {
            Origin::Archive { files } => Origin::Archive {
                files: files - usize::from(self.hidden.is_some()),
            },
            disk => disk,
        }
    }

    fn find_error(&self, path: &str, error: &io::Error) -> FindError {
        if error.kind() == ErrorKind::ResourceBusy {
            return FindError::NoMemory;
        }
        self.complain(path, error);
        FindError::Unreadable
    }

    /// Logs that a file cannot be read, unless something was logged just now.
    fn complain(&self, path: &str, error: &io::Error) {
        let now_s = self.started.elapsed().as_secs();
        let next = now_s + QUIET_S;
        let (quiet_until_s, relaxed) = (&self.quiet_until_s, Ordering::Relaxed);
        let may = |quiet| (now_s >= quiet).then_some(next);
        if quiet_until_s.fetch_update(relaxed, relaxed, may).is_ok() {
            println!("http: /{path} cannot be read: {error}");
        }
    }
}

impl Files for AppliancePlatform {
    fn find(&self, path: &str) -> Result<Option<Node>, FindError> {
        if self.hidden.is_some_and(|hidden| hidden == path) {
            return Ok(None);
        }
        read(path).or_else(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::Unsupported => Ok(None),
            _ => Err(self.find_error(path, &error)),
        })
    }

    fn list(&self, path: &str) -> Result<Entries, FindError> {
        let heap = heap::stats();
        // A quarter stays for connections, as when files are read from a disk.
        if heap.used + listing::MOST_MEMORY > heap.total - heap.total / 4 {
            return Err(FindError::NoMemory);
        }
        let failed = |error| self.find_error(path, &error);
        let mut entries = Entries::default();
        for entry in fs::read_dir(path).map_err(failed)? {
            let metadata = entry.metadata();
            let kind = match (metadata.is_dir(), metadata.is_file()) {
                (true, _) => EntryKind::Directory,
                (_, true) if Some(entry.path()) != self.hidden => EntryKind::File,
                _ => continue,
            };
            entries.add(entry.file_name(), kind, metadata.len());
        }
        Ok(entries)
    }

    fn modified_s(&self, path: &str) -> Option<u64> {
        let metadata = fs::metadata(path).ok()?;
        metadata.is_file().then(|| metadata.modified().as_secs())
    }
}

fn read(path: &str) -> io::Result<Option<Node>> {
    let metadata = fs::metadata(path)?;
    if metadata.is_dir() {
        return Ok(Some(Node::Directory));
    }
    let bytes = fs::read(path)?;
    let modified_s = metadata.modified().as_secs();
    Ok(Some(Node::File { bytes, modified_s }))
}

impl Platform for AppliancePlatform {
    fn unix_s(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).as_secs()
    }

    fn expose(&self, out: &mut Vec<u8>) {
        self.expose_process(out);
        expose_cores(out);
        expose_network(out);
    }
}

impl AppliancePlatform {
    fn expose_process(&self, out: &mut Vec<u8>) {
        let heap = heap::stats();
        single(
            out,
            "tare_heap_bytes",
            GAUGE,
            "Memory for the heap.",
            heap.total,
        );
        single(
            out,
            "tare_heap_used_bytes",
            GAUGE,
            "Memory allocated.",
            heap.used,
        );
        let start = "process_start_time_seconds";
        single(
            out,
            start,
            GAUGE,
            "Start, seconds since 1970.",
            self.started_unix_s,
        );
        family(out, "tare_uptime_seconds", GAUGE, "Time since the start.");
        let up = self.started.elapsed().as_nanos() as u64;
        sample_seconds(out, "tare_uptime_seconds", None, up);
    }
}

/// A family with a sample for each core.
fn per_core(out: &mut Vec<u8>, name: &str, help: &str, figure: fn(&CoreStats) -> u64) {
    family(out, name, COUNTER, help);
    for core in 0..thread::cores() {
        let value = figure(&sched::core_stats(core));
        sample(out, name, Some(("core", core as u64)), value);
    }
}

fn expose_cores(out: &mut Vec<u8>) {
    type Seconds = (&'static str, &'static str, fn(&CoreStats) -> u64);
    let seconds: [Seconds; 2] = [
        ("tare_core_halted_seconds_total", "Time halted.", |core| {
            core.halted_ns
        }),
        (
            "tare_core_spun_seconds_total",
            "Time spun before halts.",
            |core| core.spun_ns,
        ),
    ];
    for (name, help, figure) in seconds {
        family(out, name, COUNTER, help);
        for core in 0..thread::cores() {
            let ns = figure(&sched::core_stats(core));
            sample_seconds(out, name, Some(("core", core as u64)), ns);
        }
    }
    per_core(out, "tare_core_halts_total", "Halts.", |core| core.halts);
    per_core(
        out,
        "tare_core_spins_total",
        "Spins before a halt.",
        |core| core.spins,
    );
    per_core(
        out,
        "tare_core_spins_caught_total",
        "Spins that made a halt needless.",
        |core| core.spins_caught,
    );
    per_core(
        out,
        "tare_core_idle_turns_total",
        "Idle turns of pollers.",
        |core| core.idle_turns,
    );
    per_core(
        out,
        "tare_core_switches_total",
        "Thread switches.",
        |core| core.switches,
    );
    per_core(
        out,
        "tare_core_ipis_sent_total",
        "Wake-up interrupts sent.",
        |core| core.ipis_sent,
    );
    per_core(
        out,
        "tare_core_timers_armed_total",
        "Deadlines armed.",
        |core| core.timers_armed + core.timers_renewed,
    );
}

fn expose_network(out: &mut Vec<u8>) {
    for figure in net::stats().figures() {
        let kind = match figure.kind {
            FigureKind::Counter => COUNTER,
            FigureKind::Gauge => GAUGE,
        };
        single(out, figure.name, kind, figure.help, figure.value);
    }
}
