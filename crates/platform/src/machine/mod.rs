//! A virtual machine that takes steps over its console: `tare run` on hardware KVM,
//! QEMU where KVM emulates or is missing, as `tare run` chooses.

mod qmp;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use tare_pin::Pinned;

use crate::autogroup;
use crate::journal::{Change, Journal};
use crate::output::{OutputReader, Report, Watch};
use crate::pin::Pins;
use crate::place::Mode;
use crate::processes;
use crate::root::Root;
use crate::step::{StatusLine, Step, StepError};

/// A machine translated instruction by instruction takes its time.
const BOOT: Duration = Duration::from_secs(120);
/// And so does ending what a step left, and writing its files, on a busy host.
const SETTLE: Duration = Duration::from_secs(180);
/// WordPress under 1,000 users has 0.8 GiB before the first of them is done. What a guest
/// does not touch costs the host nothing.
pub(crate) const MEMORY: &str = "2G";
/// Size of the disk for what runs write; sparse.
const SCRATCH_BYTES: u64 = 2 << 30;

/// What executes a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Tare's monitor on hardware KVM.
    Tare,
    /// QEMU's translator: slower than any hardware.
    QemuTcg,
}

impl Engine {
    /// As reports say it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tare => "Tare's monitor on KVM",
            Self::QemuTcg => "QEMU's translator (TCG)",
        }
    }
}

/// What runs in the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// The step itself.
    Step,
    /// A container around it.
    Container,
}

/// A machine that runs.
#[derive(Debug)]
pub struct BootedMachine {
    child: Child,
    stdin: ChildStdin,
    output: OutputReader,
    /// The process with the virtual CPUs.
    pid: u32,
    engine: Engine,
    cpus: u32,
    vcpus: Vec<u32>,
    control: PathBuf,
    name: String,
    pinned: Option<Pinned>,
}

impl BootedMachine {
    /// Boots a machine of `cpus` CPUs and waits until it takes steps. Its files are
    /// below `dir`.
    pub fn start(
        journal: &mut Journal,
        tare: &Path,
        root: &Root,
        dir: &Path,
        cpus: u32,
        watch: &dyn Watch,
    ) -> Result<Self, StepError> {
        let name = format!("lab{cpus}");
        let failed = |source| StepError::Start {
            what: "a virtual machine".to_owned(),
            source,
        };
        let run_root = dir.join("run");
        fs::create_dir_all(&run_root).map_err(failed)?;
        let scratch = scratch_disk(dir, &name).map_err(failed)?;
        let errors = dir.join(format!("{name}.err"));
        let parameters = format!(
            "rdinit=/.tare/init quiet nowatchdog {}",
            autogroup::GUEST_WORD
        );
        let mut child = Command::new(tare)
            .args(["run", "--kernel"])
            .arg(root.kernel())
            .arg("--initrd")
            .arg(root.initramfs())
            .arg("--disk")
            .arg(format!("{},ro", root.disk().display()))
            .arg("--disk")
            .arg(&scratch)
            .args(["--net", "none", "--memory", MEMORY, "--name", &name])
            .args(["--cpus", &cpus.to_string()])
            .args(["--cmdline", &parameters])
            .env("TARE_RUN_ROOT", &run_root)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&errors).map_err(failed)?)
            .spawn()
            .map_err(failed)?;
        let pid = child.id();
        if let Some(start) = processes::start_time(pid) {
            journal.note(Change::Process { pid, start })?;
        }
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(StepError::GivenUp);
        };
        let mut machine = Self {
            child,
            stdin,
            output: OutputReader::on(stdout, "the virtual machine"),
            pid,
            engine: Engine::Tare,
            cpus,
            vcpus: Vec::new(),
            control: run_root.join(&name).join("control.sock"),
            name,
            pinned: None,
        };
        machine.boot(watch).map_err(|error| match error {
            // What it said before there was a console.
            StepError::Ended { what, last } if last.is_empty() => StepError::Ended {
                what,
                last: last_line(&errors),
            },
            other => other,
        })?;
        if machine.pid != pid
            && let Some(start) = processes::start_time(machine.pid)
        {
            let pid = machine.pid;
            journal.note(Change::Process { pid, start })?;
        }
        Ok(machine)
    }

    fn boot(&mut self, watch: &dyn Watch) -> Result<(), StepError> {
        loop {
            match self.output.next(BOOT, watch)? {
                StatusLine::Ready => break,
                StatusLine::Broken(why) => {
                    return Err(StepError::Ended {
                        what: "the virtual machine".to_owned(),
                        last: why,
                    });
                }
                _ => {}
            }
        }
        let is_qemu = |pid: &u32| {
            let exe = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
            let name = exe.file_name().unwrap_or_default();
            name.to_string_lossy().starts_with("qemu-system")
        };
        let tree = processes::tree(self.child.id());
        if let Some(pid) = tree.iter().copied().find(is_qemu) {
            self.pid = pid;
            self.engine = Engine::QemuTcg;
            self.vcpus = qmp::vcpu_threads(&self.control, pid);
            return Ok(());
        }
        // The monitor is a child of the process that was started, where it has a PID namespace.
        for pid in tree {
            let vcpus = named_vcpus(pid);
            if !vcpus.is_empty() {
                (self.pid, self.vcpus) = (pid, vcpus);
            }
        }
        Ok(())
    }

    /// What executes it.
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// Where Tare's monitor answers, if it is what executes the machine.
    pub fn control(&self) -> Option<&Path> {
        (self.engine == Engine::Tare).then_some(self.control.as_path())
    }

    /// The process with its virtual CPUs.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Places its threads. Pinned: a virtual CPU on each of `cpus`, all others on any
    /// of them; vanilla: where they were.
    pub fn place(&mut self, pins: &Pins, mode: Mode, cpus: &[u32]) -> Result<(), StepError> {
        match (mode, &self.pinned) {
            (Mode::Vanilla, _) => self.pinned = None,
            (Mode::Pinned, Some(_)) => {}
            (Mode::Pinned, None) => {
                self.pinned = Some(pins.machine(&self.name, self.pid, &self.vcpus, cpus)?);
            }
        }
        Ok(())
    }

    /// Lets the guest's time stand still, where that is possible: a machine that
    /// waits for its turn takes nothing from the others.
    pub fn freeze(&self) {
        if self.engine == Engine::QemuTcg {
            qmp::command(&self.control, "stop");
        }
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        if self.engine == Engine::QemuTcg {
            qmp::command(&self.control, "cont");
        }
    }

    /// Runs a step in it. After an error but [`StepError::NoVerdict`] the machine is of no use
    /// any more.
    pub fn run(
        &mut self,
        inside: Payload,
        step: &Step,
        watch: &mut dyn Watch,
    ) -> Result<Report, StepError> {
        let kind = match inside {
            Payload::Step => "vm",
            Payload::Container => "container",
        };
        let cpus = match self.cpus {
            1 => "0".to_owned(),
            n => format!("0-{}", n - 1),
        };
        let line = format!("{kind} {cpus} {}\n", step.word());
        self.stdin
            .write_all(line.as_bytes())
            .and_then(|()| self.stdin.flush())
            .map_err(|source| StepError::Start {
                what: "a step in the virtual machine".to_owned(),
                source,
            })?;
        let report = self.output.follow(step, watch)?;
        while self.output.next(SETTLE, watch)? != StatusLine::Over {}
        Ok(report)
    }
}

impl Drop for BootedMachine {
    fn drop(&mut self) {
        if let Some(start) = processes::start_time(self.child.id()) {
            processes::end_tree(self.child.id(), start);
        }
        let _ = self.child.wait();
    }
}

fn last_line(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().next_back().unwrap_or_default().to_owned()
}

/// Tare's monitor names its threads.
fn named_vcpus(pid: u32) -> Vec<u32> {
    let mut vcpus: Vec<(u32, u32)> = processes::threads(pid)
        .into_iter()
        .filter_map(|(tid, name)| Some((name.strip_prefix("vcpu")?.parse().ok()?, tid)))
        .collect();
    vcpus.sort_unstable();
    vcpus.into_iter().map(|(_, tid)| tid).collect()
}

/// An empty ext4 for what runs write.
fn scratch_disk(dir: &Path, name: &str) -> std::io::Result<PathBuf> {
    let path = dir.join(format!("{name}.img"));
    fs::File::create(&path)?.set_len(SCRATCH_BYTES)?;
    let made = Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-E", "nodiscard"])
        .arg(&path)
        .output()?;
    if made.status.success() {
        Ok(path)
    } else {
        Err(std::io::Error::other(
            String::from_utf8_lossy(&made.stderr).trim().to_owned(),
        ))
    }
}
