//! Machines under test, behind a trait: [`tare`] starts real ones through
//! `tare run`, the tests' fake answers from a thread.
//!
//! An [`Appliance`] ends when it is dropped, whatever way its owner left.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;
use tare_control::client::ClientError;
use tare_control::exit::ExitCode;
use tare_control::stats::Stats;

use crate::interrupt::{Interrupt, Interrupted};
use crate::observe::CpuReading;

mod console;
mod contained;
#[cfg(test)]
pub(crate) mod fake;
mod guest;
mod served;
pub(crate) mod tare;

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

/// Starts machines.
pub(crate) trait Executor {
    /// Starts a machine and returns at once; it need not serve yet.
    fn start(&mut self, spec: &Spec) -> Result<Box<dyn Appliance>, ApplianceError>;

    /// Starts memcached in a container of its own.
    fn contain(&mut self, memory_mib: u32) -> Result<Box<dyn Appliance>, ApplianceError>;

    /// Starts a machine whose image measures and prints.
    fn measure(&mut self, spec: &GuestSpec) -> Result<Box<dyn Guest>, ApplianceError>;

    /// Starts a Linux guest in QEMU over `tare blk` that measures and prints.
    fn serve(&mut self, spec: &ServedGuest) -> Result<Box<dyn Guest>, ApplianceError>;

    /// What an arm measured without a machine, from a record that is read back.
    fn recorded(&mut self, _arm: &str, _sample: &str) -> Option<Value> {
        None
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

    /// Its image file.
    fn image(&self) -> Option<PathBuf> {
        None
    }

    /// Size of its image file.
    fn image_bytes(&self) -> Option<u64> {
        Some(fs::metadata(self.image()?).ok()?.len())
    }
}

/// What went wrong with a machine.
#[derive(Debug, thiserror::Error)]
pub enum ApplianceError {
    /// `tare run` could not be executed.
    #[error("cannot execute {}", .path.display())]
    Execute {
        /// The executable.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// No port, pipe or thread for it.
    #[error("cannot prepare a machine")]
    Prepare(#[source] io::Error),
    /// It ended by itself.
    #[error("the machine ended with exit code {code}: {said}")]
    Ended {
        /// Exit code of `tare run`; -1 for a signal.
        code: i32,
        /// The last lines that it said.
        said: String,
    },
    /// It did not come to serve.
    #[error("the machine did not serve within {0:?}")]
    NotServing(Duration),
    /// It printed nothing more.
    #[error("the machine printed no figures for {0:?}")]
    Silent(Duration),
    /// Its control socket failed.
    #[error("the machine's statistics are not available")]
    Control(#[from] ClientError),
    /// Its threads could not be read.
    #[error("the machine's CPU time cannot be read")]
    Cpu(#[source] io::Error),
    /// A signal came meanwhile.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

impl ApplianceError {
    /// The exit code that fits.
    pub(crate) fn exit_code(&self) -> ExitCode {
        let known = |code: i32| {
            let all = ExitCode::ALL.iter().map(|(known, _)| *known);
            all.filter(|known| *known != ExitCode::Success)
                .find(|known| i32::from(*known as u8) == code)
        };
        match self {
            Self::Execute { .. } | Self::Prepare(_) | Self::Cpu(_) => ExitCode::Internal,
            Self::Ended { code, .. } => known(*code).unwrap_or(ExitCode::WeighFailed),
            Self::NotServing(_) | Self::Silent(_) => ExitCode::WeighFailed,
            Self::Control(_) => ExitCode::ControlFailed,
            Self::Interrupted(interrupted) => interrupted.exit_code(),
        }
    }
}
