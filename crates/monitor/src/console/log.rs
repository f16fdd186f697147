//! `console.log`, bounded: a guest that writes forever does not fill the disk.
//!
//! When the file reaches [`LIMIT_BYTES`], its first half goes and the second
//! half moves to the front, behind a line that says so.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

/// Longest `console.log` in bytes.
pub const LIMIT_BYTES: u64 = 4 << 20;
const KEPT_BYTES: u64 = LIMIT_BYTES / 2;
const NOTE: &[u8] = b"[tare-monitor: earlier output was dropped]\n";

/// The file.
#[derive(Debug)]
pub struct ConsoleLog {
    file: File,
    length: u64,
}

impl ConsoleLog {
    /// Continues `file` at its end.
    pub fn new(file: File) -> io::Result<Self> {
        // Appending would ignore the offsets that moving the kept half needs.
        let flags = fcntl_getfl(&file)?;
        fcntl_setfl(&file, flags - OFlags::APPEND)?;
        let length = file.metadata()?.len();
        Ok(Self { file, length })
    }

    /// Appends.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.length + bytes.len() as u64 > LIMIT_BYTES {
            self.halve()?;
        }
        self.file.write_all_at(bytes, self.length)?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    fn halve(&mut self) -> io::Result<()> {
        let mut from = self.length.saturating_sub(KEPT_BYTES);
        self.file.write_all_at(NOTE, 0)?;
        let mut to = NOTE.len() as u64;
        let mut chunk = [0; 4096];
        // A file that is open for writing only keeps nothing.
        while let Ok(count @ 1..) = self.file.read_at(&mut chunk, from) {
            self.file.write_all_at(&chunk[..count], to)?;
            from += count as u64;
            to += count as u64;
        }
        self.file.set_len(to)?;
        self.length = to;
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::{Read as _, Seek as _};

    use super::*;

    #[test]
    fn the_log_stays_bounded_and_keeps_the_latest() {
        let mut file = tempfile::tempfile().unwrap();
        let mut log = ConsoleLog::new(file.try_clone().unwrap()).unwrap();
        let line = [b'x'; 8191];
        for _ in 0..3 * LIMIT_BYTES / 8192 {
            log.append(&line).unwrap();
        }
        log.append(b"the end").unwrap();
        let mut text = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut text).unwrap();
        assert!(text.len() as u64 <= LIMIT_BYTES);
        assert!(text.len() as u64 > KEPT_BYTES);
        assert!(text.starts_with(NOTE));
        assert!(text.ends_with(b"the end"));
    }

    #[test]
    fn a_file_opened_to_append_is_bounded_too() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("console.log");
        let file = File::options()
            .create(true)
            .append(true)
            .open(&path)
            .unwrap();
        let mut log = ConsoleLog::new(file).unwrap();
        for _ in 0..LIMIT_BYTES / 8192 + 2 {
            log.append(&[b'y'; 8192]).unwrap();
        }
        assert!(std::fs::metadata(&path).unwrap().len() <= LIMIT_BYTES);
    }
}
