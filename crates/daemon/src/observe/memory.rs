//! Resident memory, guest's and monitor's, from `/proc/self/smaps` (`proc(5)`).

use std::fs::File;
use std::io;
use std::io::{BufRead as _, BufReader, Seek as _};
use std::ops::Range;

use tare_control::stats::MemoryStats;

/// Watches this process's mappings.
#[derive(Debug)]
pub struct MemoryObserver {
    smaps: Option<File>,
    guest_bytes: u64,
    guest: Vec<Range<u64>>,
}

impl MemoryObserver {
    /// `guest` are the host addresses of guest memory. A kernel without smaps
    /// gives zeros.
    pub fn new(guest: Vec<Range<u64>>) -> Self {
        Self {
            smaps: File::open("/proc/self/smaps").ok(),
            guest_bytes: guest.iter().map(|range| range.end - range.start).sum(),
            guest,
        }
    }

    /// Memory now.
    pub fn stats(&self) -> MemoryStats {
        let resident = self
            .smaps
            .as_ref()
            .map(|smaps| self.read(smaps))
            .and_then(Result::ok)
            .unwrap_or_default();
        MemoryStats {
            guest_bytes: self.guest_bytes,
            guest_resident_bytes: resident.guest,
            guest_huge_bytes: resident.guest_huge,
            monitor_resident_bytes: resident.monitor,
        }
    }

    fn read(&self, mut smaps: &File) -> io::Result<Resident> {
        smaps.rewind()?;
        let mut lines = BufReader::with_capacity(2048, smaps);
        let mut line = String::new();
        let mut resident = Resident::default();
        let mut is_guest = false;
        while lines.read_line(&mut line)? > 0 {
            if let Some(range) = mapping(&line) {
                let overlaps =
                    |guest: &Range<u64>| range.start < guest.end && guest.start < range.end;
                is_guest = self.guest.iter().any(overlaps);
            } else if let Some(bytes) = bytes_of("Rss:", &line) {
                let sum = if is_guest {
                    &mut resident.guest
                } else {
                    &mut resident.monitor
                };
                *sum += bytes;
            } else if let (true, Some(bytes)) = (is_guest, bytes_of("AnonHugePages:", &line)) {
                resident.guest_huge += bytes;
            }
            line.clear();
        }
        Ok(resident)
    }
}

#[derive(Debug, Default)]
struct Resident {
    guest: u64,
    guest_huge: u64,
    monitor: u64,
}

/// The addresses in a mapping's first line, `START-END FLAGS ...`.
fn mapping(line: &str) -> Option<Range<u64>> {
    let (start, end) = line.split_ascii_whitespace().next()?.split_once('-')?;
    let parse = |text| u64::from_str_radix(text, 16).ok();
    Some(parse(start)?..parse(end)?)
}

/// The bytes in a line `NAME N kB`.
fn bytes_of(name: &str, line: &str) -> Option<u64> {
    let kib = line.strip_prefix(name)?.trim().strip_suffix("kB")?;
    kib.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touched_guest_memory_is_the_guests() {
        let memory = vec![1u8; 8 << 20];
        let start = memory.as_ptr() as u64;
        let guest = start..start + (8 << 20);
        let observer = MemoryObserver::new(Vec::from([guest]));
        let stats = observer.stats();
        assert_eq!(stats.guest_bytes, 8 << 20);
        assert!(stats.guest_resident_bytes >= 8 << 20, "{stats:?}");
        assert!(stats.monitor_resident_bytes > 0, "{stats:?}");
    }

    #[test]
    fn lines_are_classified() {
        assert_eq!(mapping("7f00-7f10 rw-p 0 00:00 0"), Some(0x7f00..0x7f10));
        assert_eq!(mapping("Rss:    12 kB"), None);
        assert_eq!(bytes_of("Rss:", "Rss:      12 kB\n"), Some(12 * 1024));
        assert_eq!(bytes_of("Rss:", "Pss:      12 kB\n"), None);
        let huge = "AnonHugePages:      2048 kB\n";
        assert_eq!(bytes_of("AnonHugePages:", huge), Some(2 << 20));
    }
}
