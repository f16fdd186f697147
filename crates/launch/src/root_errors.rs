//! `--root`: maps the errors of `rootfs` to exit codes.

use tare_control::exit::ExitCode;
use tare_rootfs::cpio::PackError;
use tare_rootfs::oci::{ImageError, LimitError};
use tare_rootfs::root::ReadRootError;
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

impl Explain for ReadRootError {
    fn code(&self) -> ExitCode {
        use ImageError as Because;
        let source = match self {
            Self::Directory(error) => return error.code(),
            Self::Image { source, .. } => source,
        };
        match source {
            Because::Open { .. } => ExitCode::RootMissing,
            Because::Limit(_) => ExitCode::RootTooLarge,
            Because::Spool(_) => ExitCode::Output,
            Because::Confine(_) => ExitCode::Internal,
            _ => ExitCode::RootImage,
        }
    }

    fn hint(&self) -> Option<String> {
        let (path, source) = match self {
            Self::Directory(error) => return error.hint(),
            Self::Image { path, source } => (path, source),
        };
        match source {
            ImageError::Limit(LimitError::Header | LimitError::Layers) => None,
            ImageError::Limit(_) => {
                Some("give the guest more space with --memory or --root-disk".to_owned())
            }
            ImageError::Several { .. } => Some(format!(
                "write the one to run behind it: --root {}:NAME",
                path.display()
            )),
            _ => None,
        }
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
