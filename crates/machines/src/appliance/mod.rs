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
#[cfg(any(test, feature = "fake"))]
pub mod fake;
mod guest;
mod machine;
mod packaged;
mod served;
mod server_place;
mod spec;
pub mod tare;
mod words;

pub use error::ApplianceError;
pub use guest::{Guest, GuestSpec, LinuxGuest, ServedGuest};
pub(crate) use packaged::PORT;
pub use spec::{Monitor, Packaging, Runtime, ServerKind, Spec};

/// Starts machines.
pub trait Executor {
    /// Starts what serves and returns at once; it need not serve yet.
    fn start(&mut self, target: ServerKind<'_>) -> Result<Box<dyn Appliance>, ApplianceError>;

    /// Gets an application's files, which all its packagings share; their bytes.
    fn bring(&mut self, app: &App) -> Result<u64, ApplianceError>;

    /// Versions of what an application is made of, once it was brought.
    fn versions_of(&self, _app: &App) -> Versions {
        Versions::new()
    }

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
pub trait Appliance {
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
