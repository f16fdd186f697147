//! `--root DIR`: maps the errors of `rootfs` to exit codes.

use tare_control::exit::ExitCode;
use tare_rootfs::cpio::PackError;
use tare_rootfs::walk::WalkError;

use crate::failure::Explain;

impl Explain for WalkError {
    fn code(&self) -> ExitCode {
        match self {
            Self::TooLarge { .. } => ExitCode::RootTooLarge,
            _ => ExitCode::RootMissing,
        }
    }

    fn hint(&self) -> Option<String> {
        matches!(self, Self::TooLarge { .. })
            .then(|| "give the guest more memory with --memory".to_owned())
    }
}

impl Explain for PackError {
    fn code(&self) -> ExitCode {
        match self {
            Self::Read { .. } | Self::Changed(_) => ExitCode::RootMissing,
            Self::FileTooLarge(_) => ExitCode::RootTooLarge,
            Self::Write(_) => ExitCode::Memory,
        }
    }

    fn hint(&self) -> Option<String> {
        matches!(self, Self::Changed(_)).then(|| "try again".to_owned())
    }
}
