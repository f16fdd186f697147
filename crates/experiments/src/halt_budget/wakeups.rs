//! Recorded waits: KVM's trace point `kvm_vcpu_wakeup` carries how long each
//! halt lasted. Read through our own instance of tracefs, which goes when
//! the recording does.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tare_host::process::start_time;
use tare_policy::halt::Halt;

const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// Begin of an instance's name; the process follows.
const INSTANCE: &str = "tare-weigh-";
/// For each CPU of the host.
const BUFFER_KIB: &str = "8192";

/// Waits that cannot be recorded.
#[derive(Debug, thiserror::Error)]
pub(super) enum WakeupsError {
    /// No tracefs, or none that this user may write to.
    #[error("tracefs with kvm_vcpu_wakeup is not available")]
    Unavailable(#[source] io::Error),
}

/// A recording that goes on.
#[derive(Debug)]
pub(super) struct Wakeups {
    instance: PathBuf,
}

impl Wakeups {
    /// Begins to record the halts of every machine on this host.
    pub(super) fn begin() -> Result<Self, WakeupsError> {
        let mut last = io::ErrorKind::NotFound.into();
        for tracefs in TRACEFS {
            match Self::begin_in(Path::new(tracefs)) {
                Ok(recording) => return Ok(recording),
                Err(error) => last = error,
            }
        }
        Err(WakeupsError::Unavailable(last))
    }

    fn begin_in(tracefs: &Path) -> io::Result<Self> {
        sweep(&tracefs.join("instances"));
        let name = format!("{INSTANCE}{}", std::process::id());
        let instance = tracefs.join("instances").join(name);
        fs::create_dir(&instance)?;
        // From here on the instance is removed.
        let recording = Self { instance };
        recording.write("buffer_size_kb", BUFFER_KIB)?;
        recording.write("events/kvm/kvm_vcpu_wakeup/enable", "1")?;
        Ok(recording)
    }

    /// The halts of thread `tid` so far, oldest first.
    pub(super) fn end(self, tid: u32) -> io::Result<Vec<Halt>> {
        self.write("tracing_on", "0")?;
        let text = fs::read_to_string(self.instance.join("trace"))?;
        Ok(halts(&text, tid))
    }

    fn write(&self, file: &str, value: &str) -> io::Result<()> {
        fs::write(self.instance.join(file), value)
    }
}

impl Drop for Wakeups {
    fn drop(&mut self) {
        let _ = self.write("events/enable", "0");
        let _ = fs::remove_dir(&self.instance);
    }
}

/// Removes instances of weighings that were killed: their events go on, and cost every machine.
fn sweep(instances: &Path) {
    let entries = fs::read_dir(instances).into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name();
        let pid = name
            .to_str()
            .and_then(|name| name.strip_prefix(INSTANCE)?.parse::<u32>().ok());
        if pid.is_some_and(|pid| start_time(pid).is_none()) {
            drop(Wakeups {
                instance: entry.path(),
            });
        }
    }
}

/// Halts with the time between them; the first has nothing before it.
fn halts(text: &str, tid: u32) -> Vec<Halt> {
    let mut last_ns = None;
    let mut halts = Vec::new();
    for (now_ns, wait_ns) in text.lines().filter_map(|line| wakeup(line, tid)) {
        let busy_ns = last_ns.map_or(0, |last| now_ns.saturating_sub(last + wait_ns));
        last_ns = Some(now_ns);
        halts.push(Halt { busy_ns, wait_ns });
    }
    halts
}

/// When and how long, from a line such as
/// `vcpu0-3417 [001] ..... 12345.678901: kvm_vcpu_wakeup: wait time 98765 ns, polling valid`.
fn wakeup(line: &str, tid: u32) -> Option<(u64, u64)> {
    let (head, event) = line.split_once(": kvm_vcpu_wakeup: ")?;
    let (task, rest) = head.split_once(" [")?;
    let (_, pid) = task.trim_end().rsplit_once('-')?;
    if pid.parse() != Ok(tid) {
        return None;
    }
    let stamp = rest.split_ascii_whitespace().next_back()?;
    let (seconds, micros) = stamp.split_once('.')?;
    let now_us = seconds.parse::<u64>().ok()? * 1_000_000 + micros.parse::<u64>().ok()?;
    let (_, wait) = event.split_once(" time ")?;
    let wait_ns = wait.split_ascii_whitespace().next()?.parse().ok()?;
    Some((now_us * 1000, wait_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_weighing_recorded_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        // Numbers of processes end below 2^22 (PID_MAX_LIMIT).
        let names = ["tare-weigh-4194305", "tare-weigh-1", "others-4194305"];
        for name in names {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        sweep(dir.path());
        let left = names.map(|name| dir.path().join(name).exists());
        assert_eq!(left, [false, true, true]);
    }

    #[test]
    fn lines_of_the_thread_become_halts_and_others_do_not() {
        let text = "# tracer: nop\n\
            vcpu0-17 [001] ..... 10.000100: kvm_vcpu_wakeup: wait time 50000 ns, polling valid\n\
            a b-c-18 [000] d..1. 10.000150: kvm_vcpu_wakeup: wait time 1 ns, polling valid\n\
            vcpu0-17 [000] ..... 10.000300: kvm_vcpu_wakeup: poll time 120000 ns, polling valid\n\
            vcpu0-17 [000] ..... 10.000400: kvm_exit: reason x\n\
            CPU:1 [LOST 5 EVENTS]\n";
        let halt = |busy_ns, wait_ns| Halt { busy_ns, wait_ns };
        assert_eq!(halts(text, 17), [halt(0, 50_000), halt(80_000, 120_000)]);
        assert_eq!(halts(text, 18), [halt(0, 1)]);
        assert_eq!(halts("", 17), []);
    }
}
