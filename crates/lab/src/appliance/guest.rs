//! Images that measure something inside and print it, a JSON object a line.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;
use tare_account::Account;
use tare_control::settings::{Settings, SettingsChange};
use tare_control::stats::Stats;
use tare_probe::vm::{self, Vm};

use super::ApplianceError;
use super::process::TareProcess;
use crate::observe::{CpuReading, descendants};
use tare_load::interrupt::{Interrupt, SLICE};

/// What to start.
#[derive(Clone, Debug)]
pub(crate) struct GuestSpec {
    /// For people: part of the machine's name.
    pub(crate) label: String,
    /// Index of this turn among those of its arm, from 0, by which a record is read back.
    pub(crate) round: usize,
    /// Image name or path.
    pub(crate) image: String,
    /// vCPUs.
    pub(crate) cpus: u8,
    /// Words for the guest.
    pub(crate) cmdline: String,
    /// What executes it, as `tare run --engine` takes it.
    pub(crate) engine: &'static str,
    /// How a halted vCPU waits, as `tare run --halt` takes it.
    pub(crate) halt: &'static str,
    /// Processor ring of the image, as `tare run --ring` takes it.
    pub(crate) ring: &'static str,
    /// A program for Linux instead of the image.
    pub(crate) linux: Option<LinuxGuest>,
    /// Disks, as `tare run --disk` takes them.
    pub(crate) disks: Vec<String>,
}

/// A program for Linux in a machine.
#[derive(Clone, Debug)]
pub(crate) struct LinuxGuest {
    /// The kernel, as `tare run --kernel` takes it; without one the library OS runs the program.
    pub(crate) kernel: Option<&'static str>,
    /// Directory of its files.
    pub(crate) root: PathBuf,
    /// What it runs.
    pub(crate) command: Vec<String>,
}

/// A machine that was started with such an image. Dropping it ends it.
pub(crate) trait Guest {
    /// The next line that is a JSON object; `None` when the machine has ended
    /// with status 0.
    fn record(
        &mut self,
        timeout: Duration,
        interrupt: &Interrupt,
    ) -> Result<Option<Value>, ApplianceError>;

    /// CPU time so far of all threads that execute it.
    fn cpu(&mut self) -> Result<CpuReading, ApplianceError>;

    /// Changes settings while it runs; `None` where it has none (QEMU).
    fn set(&mut self, change: &SettingsChange) -> Result<Option<Settings>, ApplianceError>;

    /// Its statistics; `None` where it has none (QEMU). Wakes its I/O thread.
    fn stats(&mut self) -> Result<Option<Stats>, ApplianceError>;

    /// What was seen from outside, from a record that is read back.
    fn account(&mut self) -> Option<Account> {
        None
    }

    /// The machine as this host's KVM has it; `None` where it has none.
    fn vm(&self) -> Option<Vm> {
        None
    }
}

/// The arguments of `tare`.
pub(super) fn arguments(spec: &GuestSpec, name: &str) -> Vec<String> {
    let cpus = spec.cpus.to_string();
    if let Some(linux) = &spec.linux {
        return linux_arguments(spec, linux, name, &cpus);
    }
    let mut args: Vec<String> = [
        "run",
        &spec.image,
        "--name",
        name,
        "--net",
        "none",
        "--cpus",
        &cpus,
        "--engine",
        spec.engine,
        "--ring",
        spec.ring,
        "--halt",
        spec.halt,
        "--cmdline",
        &spec.cmdline,
    ]
    .map(str::to_owned)
    .into();
    for disk in &spec.disks {
        args.extend(["--disk".to_owned(), disk.clone()]);
    }
    args
}

fn linux_arguments(spec: &GuestSpec, linux: &LinuxGuest, name: &str, cpus: &str) -> Vec<String> {
    let root = linux.root.to_string_lossy();
    let kernel = linux.kernel.map(|kernel| ["--kernel", kernel]);
    let args = [&["run"][..], kernel.as_ref().map_or(&[][..], |it| &it[..])].concat();
    let machine = [
        "--name",
        name,
        "--net",
        "none",
        "--cpus",
        cpus,
        "--engine",
        spec.engine,
        "--root",
        &root,
        "--",
    ];
    let args = args.into_iter().chain(machine).map(str::to_owned);
    args.chain(linux.command.iter().cloned()).collect()
}

impl Guest for TareProcess {
    fn record(
        &mut self,
        timeout: Duration,
        interrupt: &Interrupt,
    ) -> Result<Option<Value>, ApplianceError> {
        let deadline = Instant::now() + timeout;
        loop {
            interrupt.check()?;
            while let Some(line) = self.console.record() {
                if let Ok(value) = serde_json::from_str(&line) {
                    return Ok(Some(value));
                }
            }
            match self.check() {
                Ok(()) => {}
                // What came last may have been read meanwhile.
                Err(_) if self.console.has_records() => continue,
                Err(ApplianceError::Ended { code: 0, .. }) => return Ok(None),
                Err(error) => return Err(error),
            }
            if Instant::now() > deadline {
                return Err(ApplianceError::Silent(timeout));
            }
            self.console.wait_record(SLICE);
        }
    }

    fn cpu(&mut self) -> Result<CpuReading, ApplianceError> {
        self.check()?;
        TareProcess::cpu(self)
    }

    fn set(&mut self, change: &SettingsChange) -> Result<Option<Settings>, ApplianceError> {
        self.check()?;
        TareProcess::set(self, change)
    }

    fn stats(&mut self) -> Result<Option<Stats>, ApplianceError> {
        self.check()?;
        TareProcess::stats(self)
    }

    fn vm(&self) -> Option<Vm> {
        let below = descendants(self.pid());
        let mut all = std::iter::once(self.pid()).chain(below);
        all.find_map(|pid| vm::of_pid(pid).ok())
    }
}
