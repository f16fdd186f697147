//! Images that measure something inside and print it, a JSON object a line.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use tare_account::Account;
use tare_control::settings::{Settings, SettingsChange};
use tare_control::stats::Stats;
use tare_probe::vm::Vm;
use tare_qemu::Accelerator;

use super::ApplianceError;
use super::words::run_words;
use crate::observe::CpuReading;
use tare_load::interrupt::Interrupt;

/// What to start.
#[derive(Clone, Debug)]
pub struct GuestSpec {
    /// For people: part of the machine's name.
    pub label: String,
    /// Index of this turn among those of its arm, from 0, by which a record is read back.
    pub round: usize,
    /// Image name or path.
    pub image: String,
    /// vCPUs.
    pub cpus: u8,
    /// Words for the guest.
    pub cmdline: String,
    /// What executes it, as `tare run --engine` takes it.
    pub engine: &'static str,
    /// How a halted vCPU waits, as `tare run --halt` takes it.
    pub halt: &'static str,
    /// Processor ring of the image, as `tare run --ring` takes it.
    pub ring: &'static str,
    /// A program for Linux instead of the image.
    pub linux: Option<LinuxGuest>,
    /// Disks, as `tare run --disk` takes them.
    pub disks: Vec<String>,
}

/// A program for Linux in a machine.
#[derive(Clone, Debug)]
pub struct LinuxGuest {
    /// The kernel, as `tare run --kernel` takes it; without one the library OS runs the program.
    pub kernel: Option<&'static str>,
    /// Directory of its files.
    pub root: PathBuf,
    /// What it runs.
    pub command: Vec<String>,
}

/// A Linux guest in QEMU over a disk of `tare blk`.
#[derive(Clone, Debug)]
pub struct ServedGuest {
    /// For people: part of the disk's name.
    pub label: String,
    /// The disk, as `tare blk --disk` takes it.
    pub disk: String,
    /// The kernel.
    pub kernel: PathBuf,
    /// Its first files.
    pub initramfs: PathBuf,
    /// Its command line.
    pub cmdline: String,
    /// What executes it.
    pub accelerator: Accelerator,
    /// vCPUs.
    pub cpus: u8,
    /// Memory.
    pub memory_mib: u32,
}

/// A machine that was started with such an image. Dropping it ends it.
pub trait Guest {
    /// The next line that is a JSON object. A machine that has ended gives none.
    fn record(&mut self, timeout: Duration, interrupt: &Interrupt)
    -> Result<Value, ApplianceError>;

    /// CPU time so far of all threads that execute it.
    fn cpu(&mut self) -> Result<CpuReading, ApplianceError>;

    /// Changes settings while it runs; `None` where it has none (QEMU).
    fn set(&mut self, _change: &SettingsChange) -> Result<Option<Settings>, ApplianceError> {
        Ok(None)
    }

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
    let machine = [
        ("--name", name),
        ("--net", "none"),
        ("--cpus", &cpus),
        ("--engine", spec.engine),
    ];
    if let Some(linux) = &spec.linux {
        let root = linux.root.to_string_lossy();
        let kernel = linux.kernel.map(|kernel| ("--kernel", kernel));
        let options = kernel.into_iter().chain(machine);
        return run_words(None, options.chain([("--root", &*root)]), &linux.command);
    }
    let image = [
        ("--ring", spec.ring),
        ("--halt", spec.halt),
        ("--cmdline", &spec.cmdline),
    ];
    let disks = spec.disks.iter().map(|disk| ("--disk", disk.as_str()));
    let options = machine.into_iter().chain(image).chain(disks);
    run_words(Some(&spec.image), options, &[])
}
