//! `run.json` in the run directory: what `tare ps` and `tare stop` need to know
//! of a machine, whichever engine executes it.

use std::fs;
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tare_control::rundir::RunDir;
use tare_host::process;
use tare_host::process::ProcessHandle;

/// A machine, as it was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// What executes the guest.
    pub engine: EngineName,
    /// The process whose end is the machine's.
    pub pid: u32,
    /// Path of the image.
    pub image: String,
    /// When that process started, in clock ticks since boot: with the number it
    /// names one process. Absent in records of older versions.
    #[serde(default)]
    pub start_time: Option<u64>,
    /// vCPUs.
    pub cpus: u8,
    /// Guest memory.
    pub memory_mib: u32,
    /// Port forwards, `ADDR:HOST:GUEST/PROTOCOL`.
    pub ports: Vec<String>,
    /// The user that it became, if not the one who started it.
    #[serde(default)]
    pub user: Option<u32>,
    /// When it was started, seconds since 1970.
    pub started_s: u64,
    /// How often it was started again after a failure.
    #[serde(default)]
    pub restarts: u32,
    /// The process that starts it again, if `--restart` applies.
    #[serde(default)]
    pub keeper: Option<ProcessName>,
    /// The exit code after which it waits for its next start. [`Self::pid`] is the keeper's.
    #[serde(default)]
    pub waits_after: Option<u8>,
    /// How it can get another root at run time, if it can (`tare run --reload`).
    #[serde(default)]
    pub reload: Option<Reloadable>,
    /// Whether [`Self::process`] passes signals on to the command of a guest in QEMU.
    #[serde(default)]
    pub passes_signals: bool,
}

/// What `tare reload` needs to know of a machine whose engine has no command for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reloadable {
    /// The number of the disk by which it gets the root.
    pub disk: u32,
    /// Whether its root has rules, which a root without rules would remove.
    pub has_site: bool,
}

/// A process, identified also after its number is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessName {
    /// Its number.
    pub pid: u32,
    /// When it started, in clock ticks since boot.
    pub start_time: u64,
}

impl ProcessName {
    /// This process.
    pub(crate) fn own() -> Option<Self> {
        let pid = std::process::id();
        let start_time = process::start_time(pid)?;
        Some(Self { pid, start_time })
    }

    /// The process, unless it has ended.
    pub fn open(self) -> Option<ProcessHandle> {
        ProcessHandle::open(self.pid, self.start_time)
    }
}

/// What executes the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EngineName {
    /// `tare-monitor`.
    Tare,
    /// QEMU's translator.
    Qemu,
    /// QEMU with KVM.
    QemuKvm,
    /// No guest: `tare blk` serves a disk to another monitor.
    Blk,
}

impl EngineName {
    /// Whether it serves Tare's control socket.
    pub fn answers(self) -> bool {
        matches!(self, Self::Tare | Self::Blk)
    }

    /// What confines the process that executes the guest: a filter of system calls, and for `files`
    /// also Landlock rules.
    pub fn confinement(self) -> &'static str {
        match self {
            Self::Tare | Self::Blk => "seccomp+files",
            Self::Qemu | Self::QemuKvm => "seccomp",
        }
    }

    /// The name as `--engine` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tare => "tare",
            Self::Qemu => "qemu",
            Self::QemuKvm => "qemu-kvm",
            Self::Blk => "blk",
        }
    }
}

impl Record {
    /// Writes the record of the machine in `dir` atomically.
    pub fn write(&self, dir: &RunDir) -> io::Result<()> {
        dir.write_record(&serde_json::to_vec_pretty(self)?)
    }

    /// What confines the process that executes the guest: [`EngineName::confinement`], in a jail
    /// also its own user and namespaces. For a running QEMU what it has of these: `+ns` for
    /// namespaces with an empty root, `+user` for the user.
    pub fn confinement(&self) -> &'static str {
        let engine = self.engine.confinement();
        match (self.engine, self.user) {
            (EngineName::Tare | EngineName::Blk, Some(_)) => "jail",
            (EngineName::Tare | EngineName::Blk, None) => engine,
            (EngineName::Qemu | EngineName::QemuKvm, user) => {
                match (self.qemu_has_namespaces(), user) {
                    (true, Some(_)) => "jail",
                    (true, None) => "seccomp+ns",
                    (false, Some(_)) => "seccomp+user",
                    (false, None) => engine,
                }
            }
        }
    }

    /// Whether the process's child QEMU has its own mounts and an empty root.
    fn qemu_has_namespaces(&self) -> bool {
        if self.process().is_none() {
            return false;
        }
        let mut started = process::children(self.pid)
            .into_iter()
            .map(process::inside_of);
        let qemu = started.find(|pid| {
            fs::read_to_string(format!("/proc/{pid}/comm"))
                .is_ok_and(|name| name.starts_with("qemu"))
        });
        qemu.is_some_and(|pid| has_empty_root(&self.pid.to_string(), &pid.to_string()))
    }

    /// The process that the record names, unless it has ended.
    pub fn process(&self) -> Option<ProcessHandle> {
        ProcessHandle::open(self.pid, self.start_time?)
    }

    /// Whether that process is one that passes signals on now: a keeper between two attempts is not.
    pub fn takes_signals(&self) -> bool {
        self.passes_signals && self.waits_after.is_none()
    }

    /// Sets the process whose end is the machine's.
    pub(crate) fn set_process(&mut self, pid: u32) {
        self.pid = pid;
        self.start_time = process::start_time(pid);
    }

    /// Reads the record of the machine in `dir`.
    pub fn read(dir: &RunDir) -> io::Result<Self> {
        Ok(serde_json::from_slice(&dir.read_record()?)?)
    }
}

/// Whether a process has other mounts than its parent, and an empty root. A kernel may grant a
/// mount namespace and then refuse the root (Landlock, AppArmor).
fn has_empty_root(parent: &str, pid: &str) -> bool {
    let mounts = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    let is_separate = matches!(
        (mounts(parent), mounts(pid)),
        (Some(parents), Some(own)) if parents != own
    );
    let root = fs::read_dir(format!("/proc/{pid}/root"));
    is_separate && root.is_ok_and(|mut entries| entries.next().is_none())
}

/// Now, in seconds since 1970.
pub fn now_s() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use std::io::BufRead as _;
    use std::process::{Command, Stdio};

    use super::*;

    /// The result of [`has_empty_root`] for a shell that ran this script in its own mounts.
    fn has_empty_root_after(script: &str) -> Option<bool> {
        let mut shell = Command::new("unshare")
            .args(["--mount", "--map-root-user", "sh", "-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        let mut ready = String::new();
        let said = io::BufReader::new(shell.stdout.take().unwrap()).read_line(&mut ready);
        let parent = std::process::id().to_string();
        let result = has_empty_root(&parent, &shell.id().to_string());
        drop(shell.stdin.take());
        shell.wait().unwrap();
        (said.is_ok() && ready == "ready\n").then_some(result)
    }

    #[test]
    fn mounts_of_its_own_are_no_empty_root() {
        let Some(result) = has_empty_root_after("echo ready; read end") else {
            tare_vmtest::lacks("this user may make no namespaces");
            return;
        };
        assert!(!result);
    }
}
