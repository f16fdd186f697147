//! The disk that all arms use.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A file that goes when this does.
#[derive(Debug)]
pub(super) struct Scratch {
    directory: PathBuf,
}

impl Scratch {
    /// Writes it: no holes, so that reads are reads.
    pub(super) fn make(mib: u64) -> io::Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tare-vic-{}-{count}", std::process::id());
        let scratch = Self {
            directory: std::env::temp_dir().join(name),
        };
        fs::create_dir(&scratch.directory)?;
        let mut file = File::create(scratch.file())?;
        let chunk: Vec<u8> = (0..1_u32 << 20).map(|at| (at ^ (at >> 8)) as u8).collect();
        for _ in 0..mib {
            file.write_all(&chunk)?;
        }
        file.sync_all()?;
        Ok(scratch)
    }

    pub(super) fn file(&self) -> PathBuf {
        Path::new(&self.directory).join("disk.img")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nothing better can be done about a directory that does not go.
        let _ = fs::remove_dir_all(&self.directory);
    }
}
