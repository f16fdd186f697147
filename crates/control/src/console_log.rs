//! `console.log`, bounded: a guest that writes forever does not fill the disk.
//!
//! When the file reaches [`LIMIT_BYTES`], its first half goes and the second
//! half moves to the front, behind a line that says so. The monitor writes through
//! [`ConsoleLog`]; QEMU writes the file itself, and [`halve`] bounds that.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

/// Longest `console.log` in bytes.
pub const LIMIT_BYTES: u64 = 4 << 20;
const KEPT_BYTES: u64 = LIMIT_BYTES / 2;
const NOTE: &[u8] = b"[tare: earlier output was dropped]\n";
/// Where the log goes on for a reader that had read all of it when it was halved.
pub const HALVED_BYTES: u64 = KEPT_BYTES + NOTE.len() as u64;

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
        self.length = halve(&self.file, self.length)?;
        Ok(())
    }
}

/// Keeps the second half of a log of `length` bytes, at least; how long it is then. The file is not
/// open to append. What another process appends meanwhile is kept but for what comes in the moment
/// before the end.
pub fn halve(file: &File, length: u64) -> io::Result<u64> {
    let mut from = length.saturating_sub(KEPT_BYTES);
    file.write_all_at(NOTE, 0)?;
    let mut to = NOTE.len() as u64;
    let mut chunk = [0; 4096];
    // A file that is open for writing only keeps nothing.
    while let Ok(count @ 1..) = file.read_at(&mut chunk, from) {
        file.write_all_at(&chunk[..count], to)?;
        from += count as u64;
        to += count as u64;
    }
    file.set_len(to)?;
    Ok(to)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Seek as _, Write as _};

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

    #[test]
    fn what_another_process_appends_is_bounded_and_goes_on() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("console.log");
        let open = |options: &mut std::fs::OpenOptions| options.create(true).open(&path).unwrap();
        let mut theirs = open(File::options().append(true));
        let file = open(File::options().read(true).write(true));
        theirs.write_all(&vec![b'y'; LIMIT_BYTES as usize]).unwrap();
        let length = file.metadata().unwrap().len();
        assert_eq!(halve(&file, length).unwrap(), HALVED_BYTES);
        theirs.write_all(b"the end").unwrap();
        let text = std::fs::read(&path).unwrap();
        assert_eq!(text.len() as u64, HALVED_BYTES + 7);
        assert!(text.starts_with(NOTE) && text.ends_with(b"ythe end"));
    }
}
