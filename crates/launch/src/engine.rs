//! What executes the guest: Tare's own monitor on KVM, or QEMU.

use std::env;
use std::path::{Path, PathBuf};

use tare_control::config::GuestKind;
use tare_control::exit::ExitCode;
use tare_host::program::find_program;
use tare_hv::{Kvm, KvmKind, OpenError, Probe};
use tare_qemu::{self as qemu, Accelerator};

use crate::failure::Explain;

/// Tare's monitor.
const MONITOR: &str = "tare-monitor";

/// The engine, as asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineChoice {
    /// Tare's monitor, or QEMU where there is no KVM.
    Auto,
    /// Tare's monitor.
    Tare,
    /// QEMU's translator, without KVM.
    Qemu,
    /// QEMU with KVM.
    QemuKvm,
}

/// The engine that a run uses.
#[derive(Debug)]
pub(crate) enum Engine {
    /// `tare-monitor` at this path.
    Tare(PathBuf),
    /// QEMU at this path.
    Qemu {
        /// The program.
        program: PathBuf,
        /// `tare-monitor`, which serves the guest's network; `None` if it is not at its place.
        monitor: Option<PathBuf>,
        /// How QEMU executes the guest.
        accelerator: Accelerator,
        /// Why QEMU, if the user did not ask for it.
        because: Option<String>,
    },
}

impl Engine {
    /// `tare-monitor`, if it is at its place.
    pub(crate) fn monitor(&self) -> Option<&Path> {
        match self {
            Self::Tare(monitor) => Some(monitor),
            Self::Qemu { monitor, .. } => monitor.as_deref(),
        }
    }
}

/// Which devices a machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Devices {
    /// Those that every engine has.
    Any,
    /// Some that only QEMU has: shared directories.
    QemusAlone,
}

/// No engine for the run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EngineError {
    /// KVM cannot be used.
    #[error("cannot use KVM")]
    Kvm(#[source] OpenError),
    /// More CPUs than KVM gives.
    #[error("{asked} CPUs: KVM on this host allows at most {most} for a machine")]
    TooManyCpus {
        /// Requested.
        asked: u32,
        /// Allowed.
        most: usize,
    },
    /// Shared directories, with the monitor.
    #[error("--volume needs QEMU: Tare's own monitor shares no directories")]
    Volumes,
    /// Neither KVM nor QEMU.
    #[error("neither KVM nor QEMU is available: {0}")]
    Nothing(String),
    /// QEMU was requested and is missing.
    #[error("{} is not installed", qemu::PROGRAM)]
    NoQemu,
    /// The monitor is not at its place.
    #[error("{MONITOR} is not beside tare{}", at(.0))]
    NoMonitor(Option<PathBuf>),
}

fn at(path: &Option<PathBuf>) -> String {
    path.as_ref()
        .map(|path| format!(" at {}", path.display()))
        .unwrap_or_default()
}

impl Explain for EngineError {
    fn code(&self) -> ExitCode {
        match self {
            Self::Kvm(OpenError::NoPermission) => ExitCode::KvmPermission,
            Self::Kvm(_) => ExitCode::KvmUnsupported,
            Self::TooManyCpus { .. } => ExitCode::Cpus,
            Self::Volumes => ExitCode::Usage,
            Self::Nothing(_) | Self::NoQemu => ExitCode::NoEngine,
            Self::NoMonitor(_) => ExitCode::Internal,
        }
    }

    fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Kvm(_) => "or use --engine qemu, which needs no KVM",
            Self::TooManyCpus { .. } => return None,
            Self::Volumes => "use --engine qemu-kvm or qemu, or leave --engine out",
            Self::Nothing(_) | Self::NoQemu => "install QEMU (Debian: qemu-system-x86)",
            Self::NoMonitor(_) => "install it there, or set TARE_MONITOR to its path",
        };
        Some(text.to_owned())
    }
}

/// Chooses the engine for a machine of `cpus` vCPUs. Also returns the KVM probe where Linux runs on
/// KVM, since Linux must avoid what this KVM lacks.
pub(crate) fn choose(
    asked: EngineChoice,
    cpus: u32,
    guest: GuestKind,
    devices: Devices,
) -> Result<(Engine, Option<Probe>), EngineError> {
    let probed = |kvm: &Kvm| match guest {
        GuestKind::Linux => Probe::run(kvm).ok(),
        GuestKind::LibraryOs | GuestKind::Program => None,
    };
    match asked {
        EngineChoice::Qemu => Ok((qemu(Accelerator::Tcg, None)?, None)),
        EngineChoice::QemuKvm => {
            let kvm = Kvm::open().map_err(EngineError::Kvm)?;
            allows(&kvm, cpus)?;
            Ok((qemu(Accelerator::Kvm, None)?, probed(&kvm)))
        }
        EngineChoice::Tare if devices == Devices::QemusAlone => Err(EngineError::Volumes),
        EngineChoice::Tare => {
            let kvm = Kvm::open().map_err(EngineError::Kvm)?;
            Ok((tare(&kvm, cpus)?, probed(&kvm)))
        }
        EngineChoice::Auto => match Kvm::open() {
            Ok(kvm) => match probed(&kvm) {
                Some(probe) if probe.kind == KvmKind::Emulated => {
                    // It delivers no SYSCALL: Linux would only reach its first process.
                    let because =
                        "this KVM emulates the kernel's instructions and cannot run Linux";
                    Ok((qemu(Accelerator::Tcg, Some(because.to_owned()))?, None))
                }
                probe if devices == Devices::QemusAlone => {
                    allows(&kvm, cpus)?;
                    Ok((qemu(Accelerator::Kvm, None)?, probe))
                }
                probe => Ok((tare(&kvm, cpus)?, probe)),
            },
            Err(error) => Ok((without_kvm(error)?, None)),
        },
    }
}

fn tare(kvm: &Kvm, cpus: u32) -> Result<Engine, EngineError> {
    allows(kvm, cpus)?;
    monitor().map(Engine::Tare)
}

fn allows(kvm: &Kvm, cpus: u32) -> Result<(), EngineError> {
    let most = kvm.max_vcpus();
    if usize::try_from(cpus).is_ok_and(|asked| asked <= most) {
        return Ok(());
    }
    Err(EngineError::TooManyCpus { asked: cpus, most })
}

/// QEMU where there is no KVM at all. A KVM that this user may not open, or
/// that is too old, is for the user to decide.
fn without_kvm(error: OpenError) -> Result<Engine, EngineError> {
    let because = match &error {
        OpenError::Missing => "there is no /dev/kvm".to_owned(),
        OpenError::Open(source) => format!("/dev/kvm does not work ({source})"),
        _ => return Err(EngineError::Kvm(error)),
    };
    qemu(Accelerator::Tcg, Some(because.clone())).map_err(|_| EngineError::Nothing(because))
}

fn qemu(accelerator: Accelerator, because: Option<String>) -> Result<Engine, EngineError> {
    Ok(Engine::Qemu {
        program: find_program(qemu::PROGRAM).map_err(|_| EngineError::NoQemu)?,
        monitor: monitor().ok(),
        accelerator,
        because,
    })
}

/// The monitor: `$TARE_MONITOR`, else beside this program.
fn monitor() -> Result<PathBuf, EngineError> {
    if let Some(path) = env::var_os("TARE_MONITOR").filter(|path| !path.is_empty()) {
        return Ok(path.into());
    }
    let beside = env::current_exe()
        .ok()
        .and_then(|tare| Some(tare.parent()?.join(MONITOR)));
    match beside {
        Some(path) if path.is_file() => Ok(path),
        other => Err(EngineError::NoMonitor(other)),
    }
}
