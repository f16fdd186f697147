//! Files, wall clock and figures of the appliance.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use tare_libos::fs::Origin;
use tare_libos::io::ErrorKind;
use tare_libos::serve::metrics::Started;
use tare_libos::time::{SystemTime, UNIX_EPOCH};
use tare_libos::{fs, heap, io, println};

use crate::listing::{self, Entries, EntryKind};
use crate::server::Platform;
use crate::site::{Files, FindError, Node};

/// The machine that the appliance runs on.
pub(super) struct AppliancePlatform {
    started: Started,
    /// When the next complaint may be logged, seconds after the start.
    quiet_until_s: AtomicU64,
    /// The site's table where it is among the files.
    hidden: Option<&'static str>,
}

/// How long clients cannot make the log grow after a line.
const QUIET_S: u64 = 5;

impl AppliancePlatform {
    pub(super) fn new() -> Self {
        Self {
            started: Started::now(),
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
        let now_s = self.started.at().elapsed().as_secs();
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
        self.started.expose(out);
    }
}
