//! A Linux guest in QEMU whose disk is `tare blk`'s: what people have who keep
//! their machines and take Tare's disk. It prints figures on its serial line, as
//! images do; settings and statistics are the disk's.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use tare_control::settings::{Settings, SettingsChange};
use tare_control::stats::Stats;
use tare_host::child::ends_with_us;
use tare_qemu::{self as qemu, Accelerator, CommandLine, GuestSystem, MachineType};
use tempfile::TempDir;

use super::ApplianceError;
use super::console::Console;
use super::guest::Guest;
use super::process::{TareProcess, code};
use crate::interrupt::{Interrupt, SLICE};
use crate::observe::CpuReading;

/// How long the disk may take to be served.
const PATIENCE: Duration = Duration::from_secs(10);

/// What to start.
#[derive(Clone, Debug)]
pub(crate) struct ServedGuest {
    /// For people: part of the disk's name.
    pub(crate) label: String,
    /// The disk, as `tare blk --disk` takes it.
    pub(crate) disk: String,
    /// The kernel.
    pub(crate) kernel: PathBuf,
    /// Its first files.
    pub(crate) initramfs: PathBuf,
    /// Its command line.
    pub(crate) cmdline: String,
    /// What executes it.
    pub(crate) accelerator: Accelerator,
    /// vCPUs.
    pub(crate) cpus: u8,
    /// Memory.
    pub(crate) memory_mib: u32,
}

/// QEMU and its disk. Dropping it ends both, QEMU first.
pub(super) struct Served {
    qemu: Qemu,
    disk: TareProcess,
    _socket: TempDir,
}

impl Served {
    /// Starts QEMU once `disk` is served on `socket`.
    pub(super) fn start(
        spec: &ServedGuest,
        mut disk: TareProcess,
        socket: TempDir,
    ) -> Result<Self, ApplianceError> {
        let path = socket_in(&socket);
        let begun = Instant::now();
        while !path.exists() {
            disk.check()?;
            if begun.elapsed() > PATIENCE {
                return Err(ApplianceError::NotServing(PATIENCE));
            }
            std::thread::sleep(SLICE);
        }
        let qemu = Qemu::start(spec, &path)?;
        Ok(Self {
            qemu,
            disk,
            _socket: socket,
        })
    }
}

/// The words after `tare` for the disk.
pub(super) fn arguments(spec: &ServedGuest, name: &str, socket: &TempDir) -> Vec<String> {
    let socket = socket_in(socket).to_string_lossy().into_owned();
    let words = [
        "blk", "--socket", &socket, "--disk", &spec.disk, "--name", name,
    ];
    words.map(str::to_owned).into()
}

fn socket_in(directory: &TempDir) -> PathBuf {
    directory.path().join("disk.sock")
}

impl Guest for Served {
    fn record(
        &mut self,
        timeout: Duration,
        interrupt: &Interrupt,
    ) -> Result<Option<Value>, ApplianceError> {
        let deadline = Instant::now() + timeout;
        loop {
            interrupt.check()?;
            while let Some(line) = self.qemu.console.record() {
                if let Ok(value) = serde_json::from_str(&line) {
                    return Ok(Some(value));
                }
            }
            self.disk.check()?;
            match self.qemu.check() {
                Ok(()) => {}
                // What came last may have been read meanwhile.
                Err(_) if self.qemu.console.has_records() => continue,
                Err(error) => return Err(error),
            }
            if Instant::now() > deadline {
                return Err(ApplianceError::Silent(timeout));
            }
            self.qemu.console.wait_record(SLICE);
        }
    }

    fn cpu(&mut self) -> Result<CpuReading, ApplianceError> {
        self.qemu.check()?;
        let disk = [self.disk.pid()];
        CpuReading::read(self.qemu.child.id(), &disk).map_err(ApplianceError::Cpu)
    }

    fn set(&mut self, change: &SettingsChange) -> Result<Option<Settings>, ApplianceError> {
        self.disk.check()?;
        self.disk.set(change)
    }

    fn stats(&mut self) -> Result<Option<Stats>, ApplianceError> {
        self.disk.check()?;
        self.disk.stats()
    }
}

/// QEMU, killed when dropped.
struct Qemu {
    child: Child,
    console: Console,
}

impl Qemu {
    fn start(spec: &ServedGuest, socket: &Path) -> Result<Self, ApplianceError> {
        let (reader, writer) = std::io::pipe().map_err(ApplianceError::Prepare)?;
        let errors = writer.try_clone().map_err(ApplianceError::Prepare)?;
        let mut command = Command::new(qemu::PROGRAM);
        command_line(spec, socket)
            .apply(&mut command)
            .stdin(Stdio::null())
            .stdout(writer)
            .stderr(errors);
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = ends_with_us(&mut command, Signal::KILL)
            .spawn()
            .map_err(|source| ApplianceError::Execute {
                path: qemu::PROGRAM.into(),
                source,
            })?;
        // From here on the guard is there.
        let mut qemu = Self {
            child,
            console: Console::default(),
        };
        drop(command);
        qemu.console = Console::read(reader).map_err(ApplianceError::Prepare)?;
        Ok(qemu)
    }

    fn check(&mut self) -> Result<(), ApplianceError> {
        match self.child.try_wait().map_err(ApplianceError::Prepare)? {
            None => Ok(()),
            Some(status) => {
                self.console.drain();
                Err(ApplianceError::Ended {
                    code: code(status),
                    said: self.console.last(),
                })
            }
        }
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command_line(spec: &ServedGuest, socket: &Path) -> CommandLine {
    let (accelerator, cpus) = (spec.accelerator, spec.cpus);
    let mut line = CommandLine::new(MachineType::Q35, accelerator, GuestSystem::Linux, cpus);
    line.memory_in_memfd(spec.memory_mib, true)
        .serial("stdio")
        .kernel(&spec.kernel)
        .initrd(&spec.initramfs)
        .append(&spec.cmdline)
        .option(
            "-chardev",
            format!("socket,id=disk,path={}", qemu::escaped(socket)),
        )
        .virtio("vhost-user-blk", "chardev=disk,num-queues=1");
    line
}
