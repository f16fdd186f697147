//! Machines under test, behind a trait: [`tare`] starts real ones through
//! `tare run`, the tests' fake answers from a thread.
//!
//! An [`Appliance`] ends when it is dropped, whatever way its owner left.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use tare_control::stats::Stats;
use tare_host::tap_namespace::TapNamespace;

use crate::linux::catalog::App;
use crate::observe::CpuReading;
use crate::versions::Versions;
use tare_load::interrupt::Interrupt;

mod console;
mod contained;
mod elsewhere;
mod error;
#[cfg(test)]
pub(crate) mod fake;
mod guest;
mod packaged;
mod process;
mod served;
pub(crate) mod tare;

pub(crate) use elsewhere::Monitor;
pub(crate) use error::ApplianceError;
pub(crate) use guest::{Guest, GuestSpec, LinuxGuest};
pub(crate) use served::ServedGuest;

/// What to start.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    /// For people: part of the machine's name.
    pub(crate) label: String,
    /// Image name or path.
    pub(crate) image: String,
    /// Directory that it serves, if it serves files.
    pub(crate) root: Option<PathBuf>,
    /// Port on which it serves.
    pub(crate) port: u16,
    /// Words for the guest.
    pub(crate) cmdline: String,
    /// What executes it, as `tare run --engine` takes it.
    pub(crate) engine: &'static str,
    /// Processor ring of the image, as `tare run --ring` takes it.
    pub(crate) ring: &'static str,
    /// How the library OS waits, as `tare run --idle` takes it.
    pub(crate) idle: &'static str,
    /// vCPUs.
    pub(crate) cpus: u8,
    /// Guest memory.
    pub(crate) memory_mib: u32,
}

/// How an application is packaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packaging {
    /// A process of the host.
    Process,
    /// A container of the host.
    Container(Runtime),
    /// The library OS, on an engine as `tare run --engine` takes it.
    Tare(&'static str),
    /// A Linux guest with Debian's kernel, on an engine.
    Linux(&'static str),
    /// A Linux guest with the application's own kernel ([`App::kernel`]), on an engine.
    Tailored(&'static str),
}

/// What starts containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runtime {
    /// Containers on the host's kernel.
    Runc,
    /// gVisor: containers on a kernel in user space.
    Runsc,
}

/// Starts machines.
pub(crate) trait Executor {
    /// Starts a machine and returns at once; it need not serve yet.
    fn start(&mut self, spec: &Spec) -> Result<Box<dyn Appliance>, ApplianceError>;

    /// Starts a web server of the host (lighttpd) that serves `root`.
    fn native(&mut self, root: &Path) -> Result<Box<dyn Appliance>, ApplianceError>;

    /// Starts the image of `spec` with its files in another program's virtual machine monitor.
    fn elsewhere(
        &mut self,
        monitor: Monitor,
        spec: &Spec,
    ) -> Result<Box<dyn Appliance>, ApplianceError>;

    /// Starts memcached in its own container.
    fn contain(&mut self, memory_mib: u32) -> Result<Box<dyn Appliance>, ApplianceError>;

    /// Gets an application's files, which all its packagings share; their bytes.
    fn bring(&mut self, app: &App) -> Result<u64, ApplianceError>;

    /// Versions of what an application is made of, once it was brought.
    fn versions_of(&self, _app: &App) -> Versions {
        Versions::new()
    }

    /// Starts an application in a packaging, on its own port. It need not serve yet, and
    /// does not report when it does.
    fn package(
        &mut self,
        app: &App,
        packaging: Packaging,
    ) -> Result<Box<dyn Appliance>, ApplianceError>;

    /// Starts a machine whose image measures and prints.
    fn measure(&mut self, spec: &GuestSpec) -> Result<Box<dyn Guest>, ApplianceError>;

    /// Fills `root` for a [`LinuxGuest`] with a program that is beside `tare`, and its libraries;
    /// gives the program's path there. Nothing where no machine is started.
    fn fill(&mut self, _root: &Path, _program: &'static str) -> Result<String, ApplianceError> {
        Ok(String::new())
    }

    /// Starts a Linux guest in QEMU over `tare blk` that measures and prints.
    fn serve(&mut self, spec: &ServedGuest) -> Result<Box<dyn Guest>, ApplianceError>;

    /// What an arm measured without a machine, from a record that is read back.
    fn recorded(&mut self, _arm: &str, _sample: &str) -> Option<Value> {
        None
    }

    /// Whether it has machines of an arm: a record of an earlier version lacks later arms.
    fn has(&self, _arm: &str) -> bool {
        true
    }

    /// Whether it hands out a record instead of starting machines.
    fn is_replay(&self) -> bool {
        false
    }
}

/// A machine that was started. Dropping it ends it.
pub(crate) trait Appliance {
    /// When its start began: just before `tare run` was executed.
    fn started(&self) -> Instant;

    /// Where it answers.
    fn address(&self) -> SocketAddr;

    /// The network namespace that it is reached in, if that is not this process's.
    fn network(&self) -> Option<TapNamespace> {
        None
    }

    /// Waits until the machine says that it serves; then the time since
    /// [`Appliance::started`].
    fn wait_serving(
        &mut self,
        timeout: Duration,
        interrupt: &Interrupt,
    ) -> Result<Duration, ApplianceError>;

    /// Its statistics; `None` where it has none (QEMU). Wakes its I/O thread.
    fn stats(&mut self) -> Result<Option<Stats>, ApplianceError>;

    /// CPU time of its threads; costs it nothing.
    fn cpu(&mut self) -> Result<CpuReading, ApplianceError>;

    /// Resident memory of all its processes and helpers; `None` where it cannot be read.
    fn resident_bytes(&mut self) -> Option<u64> {
        None
    }

    /// Its image file.
    fn image(&self) -> Option<PathBuf> {
        None
    }

    /// Size of its image file.
    fn image_bytes(&self) -> Option<u64> {
        Some(fs::metadata(self.image()?).ok()?.len())
    }
}
