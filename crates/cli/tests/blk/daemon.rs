//! A `tare blk` that a test started.

use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use tare_control::client::Client;
use tare_control::stats::Stats;
use tare_vhost::front::Front;

use crate::support::{CommandOutput, TestDir, end};

/// A front-end of the daemon on the place's socket `s`, whose first queue runs.
pub(crate) fn started(place: &TestDir) -> Front {
    let mut front = Front::connect(&place.path().join("s"));
    front.share();
    front.start(0, 0).unwrap();
    front
}

/// A daemon, killed when dropped.
pub(crate) struct Daemon {
    child: Option<Child>,
    control: PathBuf,
}

impl Daemon {
    /// Serves `disk` (with its settings) on the place's socket `s`.
    pub(crate) fn start(place: &TestDir, disk: &str) -> Self {
        let socket = place.path().join("s");
        Self::start_with(
            place,
            &["--socket", socket.to_str().unwrap(), "--disk", disk],
        )
    }

    /// As a supervisor does after a kill: again while the kernel still has what the
    /// killed one had in flight, and with it the disk's lock (exit code 36).
    pub(crate) fn start_again(place: &TestDir, disk: &str) -> Self {
        let begin = Instant::now();
        let socket = place.path().join("s");
        let args = ["--socket", socket.to_str().unwrap(), "--disk", disk];
        loop {
            let mut daemon = Self::spawn(place, &args);
            let ended = loop {
                let child = daemon.child.as_mut().unwrap();
                if let Some(status) = child.try_wait().unwrap() {
                    break status;
                }
                if daemon.stats().is_some() {
                    return daemon;
                }
                assert!(
                    begin.elapsed() < Duration::from_secs(60),
                    "it does not start"
                );
                std::thread::sleep(Duration::from_millis(20));
            };
            assert_eq!(ended.code(), Some(36));
        }
    }

    /// Starts it with those sockets and disks.
    pub(crate) fn start_with(place: &TestDir, args: &[&str]) -> Self {
        let daemon = Self::spawn(place, args);
        daemon.until("it answers", |_| true);
        daemon
    }

    fn spawn(place: &TestDir, args: &[&str]) -> Self {
        let mut command = place.tare(&["blk", "--name", "disk"]);
        command.args(args);
        command.stdout(std::process::Stdio::null());
        Self::of(place, command.spawn().unwrap())
    }

    /// The daemon named `disk` that `child` is or becomes.
    pub(crate) fn of(place: &TestDir, child: Child) -> Self {
        let control = place.run_root().join("disk/control.sock");
        Self {
            child: Some(child),
            control,
        }
    }

    pub(crate) fn stats(&self) -> Option<Stats> {
        Client::new(&self.control).stats().ok()
    }

    /// A counter now; zero before it first counts.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        let stats = self.stats().unwrap();
        stats.devices[0].counters.get(name).copied().unwrap_or(0)
    }

    /// Waits for statistics such that.
    pub(crate) fn until(&self, what: &str, such: impl Fn(&Stats) -> bool) {
        let begin = Instant::now();
        while !self.stats().is_some_and(|stats| such(&stats)) {
            assert!(begin.elapsed() < Duration::from_secs(60), "waiting: {what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// SIGKILL, as the kernel does when memory is short.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Asks it to end with that signal.
    pub(crate) fn signal(&mut self, signal: rustix::process::Signal) -> CommandOutput {
        self.ask(signal);
        self.ended()
    }

    /// Sends it a signal.
    pub(crate) fn ask(&self, signal: rustix::process::Signal) {
        let child = self.child.as_ref().unwrap();
        let pid = rustix::process::Pid::from_child(child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits for an end that another process requested.
    pub(crate) fn ended(&mut self) -> CommandOutput {
        end(self.child.take().unwrap())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
