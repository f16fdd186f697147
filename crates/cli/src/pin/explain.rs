//! Exit codes and hints for the errors of `crates/pin`.

use rustix::io::Errno;
use tare_control::exit::ExitCode;
use tare_pin::{HostError, PinError, PlanError, StoreError, TargetError};

use crate::failure::Explain;

impl Explain for TargetError {
    fn code(&self) -> ExitCode {
        match self {
            Self::Nothing(_) => ExitCode::NoSuchTarget,
            Self::Vm(error) => error.code(),
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Nothing(_) => Some(
                "give a process ID, a cgroup's path, or a name that tare top --once, runc list or \
                 podman ps shows"
                    .to_owned(),
            ),
            Self::Vm(error) => error.hint(),
        }
    }
}

impl Explain for HostError {
    fn code(&self) -> ExitCode {
        ExitCode::Internal
    }
}

impl Explain for PlanError {
    fn code(&self) -> ExitCode {
        match self {
            Self::NoThread(_) => ExitCode::NoSuchTarget,
            _ => ExitCode::CpuSet,
        }
    }
}

impl Explain for StoreError {
    fn code(&self) -> ExitCode {
        match self {
            Self::Nothing(_) => ExitCode::NoSuchTarget,
            Self::Held { .. } | Self::Busy { .. } => ExitCode::PinRefused,
            Self::Io { .. } | Self::NotOurs(_) | Self::NoHome => ExitCode::PinJournal,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Io { .. } | Self::NotOurs(_) | Self::NoHome => {
                Some("nothing was changed; set TARE_STATE_DIR to your own directory".to_owned())
            }
            Self::Held { .. } => Some("end that process".to_owned()),
            Self::Busy { .. } => {
                Some("end that process, or put its placement back with --undo".to_owned())
            }
            Self::Nothing(_) => None,
        }
    }
}

impl Explain for PinError {
    fn code(&self) -> ExitCode {
        match self {
            Self::Journal(error) => error.code(),
            Self::Refused {
                source: Errno::PERM,
                ..
            } => ExitCode::ObservePermission,
            Self::Cpuset { source, .. }
                if source.kind() == std::io::ErrorKind::PermissionDenied =>
            {
                ExitCode::ObservePermission
            }
            Self::Ended(_) => ExitCode::NoSuchTarget,
            Self::Interrupted => ExitCode::Interrupted,
            Self::Refused { .. }
            | Self::Changed { .. }
            | Self::Cpuset { .. }
            | Self::Restless(_) => ExitCode::PinRefused,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Journal(error) => error.hint(),
            Self::Ended(_) | Self::Interrupted => None,
            _ if self.code() == ExitCode::ObservePermission => {
                Some("it belongs to another user: become root".to_owned())
            }
            _ => Some("moved threads are restored".to_owned()),
        }
    }
}
