//! CPU time of the monitor's threads, from `/proc/thread-self/` (`proc(5)`:
//! `stat` fields 14 and 15 in clock ticks, `schedstat` in ns).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use rustix::param::clock_ticks_per_second;
use rustix::thread::gettid;
use tare_control::stats::ThreadStats;

/// One thread.
#[derive(Debug)]
pub struct ThreadObserver {
    tid: u32,
    name: String,
    /// Length of a clock tick.
    tick_ns: u64,
    stat: File,
    /// Missing where the kernel keeps no scheduler statistics.
    schedstat: Option<File>,
}

impl ThreadObserver {
    /// Opens the files of the calling thread: by its number it would not be found in a `/proc` of
    /// another PID namespace.
    pub fn of_caller(name: &str) -> io::Result<Self> {
        let path = |file| format!("/proc/thread-self/{file}");
        Ok(Self {
            tid: gettid().as_raw_nonzero().get().unsigned_abs(),
            name: name.to_owned(),
            tick_ns: 1_000_000_000 / clock_ticks_per_second().max(1),
            stat: File::open(path("stat"))?,
            schedstat: File::open(path("schedstat")).ok(),
        })
    }

    /// A further observer of the thread.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            tid: self.tid,
            name: self.name.clone(),
            tick_ns: self.tick_ns,
            stat: self.stat.try_clone()?,
            schedstat: self.schedstat.as_ref().map(File::try_clone).transpose()?,
        })
    }

    /// The thread's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its times; zeros once it has ended.
    pub fn stats(&self) -> ThreadStats {
        let (user_ns, system_ns) = read(&self.stat)
            .and_then(|text| parse_stat(&text, self.tick_ns))
            .unwrap_or_default();
        let (run_ns, wait_ns) = self
            .schedstat
            .as_ref()
            .and_then(read)
            .and_then(|text| parse_schedstat(&text))
            .unwrap_or_default();
        ThreadStats {
            tid: self.tid,
            name: self.name.clone(),
            user_ns,
            system_ns,
            run_ns,
            wait_ns,
        }
    }
}

fn read(file: &File) -> Option<String> {
    let mut buffer = [0; 1024];
    let count = file.read_at(&mut buffer, 0).ok()?;
    Some(String::from_utf8_lossy(&buffer[..count]).into_owned())
}

/// User and system time. The name, field 2, may hold anything: fields are
/// counted from its closing bracket.
fn parse_stat(text: &str, tick_ns: u64) -> Option<(u64, u64)> {
    let (_, after) = text.rsplit_once(')')?;
    let mut fields = after.split_ascii_whitespace().skip(11);
    let mut time = || Some(fields.next()?.parse::<u64>().ok()? * tick_ns);
    Some((time()?, time()?))
}

/// Time on a CPU and time waiting for one.
fn parse_schedstat(text: &str) -> Option<(u64, u64)> {
    let mut fields = text.split_ascii_whitespace();
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_blanks_does_not_shift_the_fields() {
        let text = "7 (a) b ) c) R 1 2 3 4 5 6 7 8 9 10 25 13 0 0";
        assert_eq!(parse_stat(text, 10), Some((250, 130)));
        assert_eq!(parse_stat("7 (x", 10), None);
    }

    #[test]
    fn a_thread_that_works_is_seen_to_work() {
        let observer = ThreadObserver::of_caller("me").unwrap();
        let before = observer.stats();
        let mut turns = 0u64;
        while observer.stats().run_ns < before.run_ns + 2_000_000 {
            turns += 1;
            assert!(turns < 1_000_000, "run time does not grow");
        }
    }
}
