//! A Linux guest in QEMU whose disk is `tare blk`'s: what people have who keep
//! their machines and take Tare's disk. It prints figures on its serial line, as
//! images do; settings and statistics are the disk's.
//!
//! QEMU is in the jail of `tare run`'s machines, and gets its disk's socket connected.

use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;
use tare_control::settings::{Settings, SettingsChange};
use tare_control::stats::Stats;
use tare_launch::jailed_guest::{JailedGuest, RunningGuest};
use tare_qemu::{GuestSystem, MachineType};
use tempfile::TempDir;

use super::ApplianceError;
use super::console::Console;
use super::guest::{Guest, ServedGuest};
use super::machine::Machine;
use crate::linux::LinuxError;
use crate::linux::jailed_qemu::Prepared;
use crate::observe::CpuReading;
use tare_load::interrupt::{Interrupt, SLICE};

/// How long the disk may take to be served.
const SERVE_TIMEOUT: Duration = Duration::from_secs(10);

/// QEMU and its disk. Dropping it ends both, QEMU first.
pub(super) struct Served {
    qemu: Qemu,
    disk: Machine,
    _socket: TempDir,
}

impl Served {
    /// Starts QEMU once `disk` is served on `socket`. `tare` confines it.
    pub(super) fn start(
        tare: &Path,
        spec: &ServedGuest,
        mut disk: Machine,
        socket: TempDir,
    ) -> Result<Self, ApplianceError> {
        let path = socket_in(&socket);
        let begun = Instant::now();
        while !path.exists() {
            disk.check()?;
            if begun.elapsed() > SERVE_TIMEOUT {
                return Err(ApplianceError::NotServing(SERVE_TIMEOUT));
            }
            std::thread::sleep(SLICE);
        }
        let qemu = Qemu::start(tare, spec, &path)?;
        Ok(Self {
            qemu,
            disk,
            _socket: socket,
        })
    }

    /// QEMU's process.
    pub(super) fn pid(&self) -> u32 {
        self.qemu.guest.id()
    }
}

/// The arguments of `tare` for the disk.
pub(super) fn arguments(spec: &ServedGuest, name: &str, socket: &TempDir) -> Vec<String> {
    let socket = socket_in(socket).to_string_lossy().into_owned();
    let args = [
        "blk", "--socket", &socket, "--disk", &spec.disk, "--name", name,
    ];
    args.map(str::to_owned).into()
}

fn socket_in(directory: &TempDir) -> PathBuf {
    directory.path().join("disk.sock")
}

impl Guest for Served {
    fn record(
        &mut self,
        timeout: Duration,
        interrupt: &Interrupt,
    ) -> Result<Value, ApplianceError> {
        let console = self.qemu.console.clone();
        console.next_record(timeout, interrupt, || {
            self.disk.check()?;
            self.qemu.check()
        })
    }

    fn cpu(&mut self) -> Result<CpuReading, ApplianceError> {
        self.qemu.check()?;
        let disk = [self.disk.pid()];
        CpuReading::read(self.pid(), &disk).map_err(ApplianceError::Cpu)
    }

    fn set(&mut self, change: &SettingsChange) -> Result<Option<Settings>, ApplianceError> {
        self.disk.set(change)
    }

    fn stats(&mut self) -> Result<Option<Stats>, ApplianceError> {
        Guest::stats(&mut self.disk)
    }
}

/// QEMU, killed when dropped.
struct Qemu {
    guest: RunningGuest,
    console: Console,
}

impl Qemu {
    fn start(tare: &Path, spec: &ServedGuest, socket: &Path) -> Result<Self, ApplianceError> {
        let (reader, writer) = io::pipe().map_err(ApplianceError::Prepare)?;
        let errors = writer.try_clone().map_err(ApplianceError::Prepare)?;
        // Open until QEMU has it.
        let disk = UnixStream::connect(socket).map_err(ApplianceError::Prepare)?;
        let started = guest(spec, &disk).and_then(|guest| {
            guest.start(tare, |command| {
                command.stdin(Stdio::null()).stdout(writer).stderr(errors);
            })
        });
        Ok(Self {
            guest: started.map_err(|error| ApplianceError::Qemu(Box::new(error)))?,
            console: Console::read(reader).map_err(ApplianceError::Prepare)?,
        })
    }

    fn check(&mut self) -> Result<(), ApplianceError> {
        match self.guest.try_wait().map_err(ApplianceError::Prepare)? {
            None => Ok(()),
            Some(status) => Err(self.console.ended(status)),
        }
    }
}

fn guest(spec: &ServedGuest, disk: &UnixStream) -> Result<Prepared, LinuxError> {
    let (machine, system) = (MachineType::Q35, GuestSystem::Linux);
    let guest = JailedGuest::new(machine, spec.accelerator, system, spec.cpus);
    let initramfs = File::open(&spec.initramfs).map_err(LinuxError::file(&spec.initramfs))?;
    let mut prepared = Prepared::boot(guest, &spec.kernel, initramfs)?;
    let disk = prepared.guest.hand(disk).map_err(LinuxError::Jail)?;
    prepared
        .guest
        .line()
        .memory_in_memfd(spec.memory_mib, true)
        .append(&spec.cmdline)
        .option("-chardev", format!("socket,id=disk,fd={disk}"))
        .virtio("vhost-user-blk", "chardev=disk,num-queues=1");
    Ok(prepared)
}
