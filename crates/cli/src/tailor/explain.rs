//! Exit codes of `tare tailor`.

use tare_control::exit::ExitCode;
use tare_tailor::build::BuildError;
use tare_tailor::counts::CountsError;
use tare_tailor::cves::RecordsError;
use tare_tailor::kconfig::KconfigError;
use tare_tailor::kernel::MakeError;
use tare_tailor::lock::LockError;
use tare_tailor::prove::ProveError;
use tare_tailor::root::{HostFilesError, RootError};
use tare_tailor::starter::Excess;
use tare_tailor::tailoring::TailorError;
use tare_tailor::training::TrainError;
use tare_tailor::tuning::bench::BenchError;
use tare_tailor::tuning::elimination::SearchError;

use crate::failure::Explain;

impl Explain for MakeError {
    fn code(&self) -> ExitCode {
        match self {
            Self::Obtain(_) | Self::Source(_) | Self::Patch(_) => ExitCode::KernelSources,
            Self::OtherSources { .. } | Self::OtherPatch(_) => ExitCode::KernelSources,
            Self::OtherFlags | Self::LockConfig(_) => ExitCode::KernelSources,
            Self::Kconfig(KconfigError::Interrupted) => ExitCode::Interrupted,
            Self::Kconfig(_) => ExitCode::KernelConfig,
            Self::Build(BuildError::Interrupted) => ExitCode::Interrupted,
            Self::Build(
                BuildError::Full { .. }
                | BuildError::Excess {
                    excess: Excess::Free(_),
                    ..
                },
            ) => ExitCode::Output,
            Self::Build(_) | Self::NoLlvm(_) => ExitCode::KernelBuild,
            Self::NoCounts | Self::OtherCounts { .. } | Self::CountsOfOtherPlace { .. } => {
                ExitCode::KernelSources
            }
            Self::Counts(CountsError::File { .. }) => ExitCode::Output,
            Self::Counts(_) => ExitCode::KernelSources,
            Self::Lock(error) => error.code(),
            Self::Busy(_) => ExitCode::NameInUse,
            Self::Dir { .. } | Self::Space { .. } => ExitCode::Output,
        }
    }

    fn hint(&self) -> Option<String> {
        let excess = match self {
            Self::Build(BuildError::Excess { excess, .. }) => excess,
            Self::Kconfig(KconfigError::Excess(excess)) => excess,
            _ => return None,
        };
        let hint = match excess {
            Excess::Time(_) => "give it more time (--minutes): the build resumes",
            Excess::Memory(_) => {
                "give it more memory (--build-memory), or start fewer compilers (--jobs): the build resumes"
            }
            Excess::Space(_) => "give it more space (--space), or remove that directory",
            Excess::Free(_) => "free some and run the same command again: the build resumes",
            Excess::File(_) | Excess::Cpu(_) => {
                "no kernel build needs that: use other sources (--source)"
            }
        };
        Some(hint.to_owned())
    }
}

impl Explain for RecordsError {
    fn code(&self) -> ExitCode {
        ExitCode::ProfileUnusable
    }
}

impl Explain for LockError {
    fn code(&self) -> ExitCode {
        match self {
            Self::Json { .. } | Self::Schema { .. } | Self::Read { .. } => ExitCode::KernelSources,
            Self::File { .. } => ExitCode::Output,
        }
    }
}

impl Explain for ProveError {
    fn code(&self) -> ExitCode {
        match self {
            Self::Guest(error) => error.code(),
            Self::Pack(_) => ExitCode::RootMissing,
            Self::Machine(_) => ExitCode::NoEngine,
            Self::Dir { .. } => ExitCode::Output,
            Self::Interrupted => ExitCode::Interrupted,
        }
    }
}

impl Explain for TailorError {
    fn code(&self) -> ExitCode {
        match self {
            Self::Make(error) => error.code(),
            Self::Prove(error) => error.code(),
            Self::OutOfTime { .. } | Self::Control { .. } => ExitCode::NotProven,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Make(error) => error.hint(),
            Self::Control { .. } => Some(
                "fix the command, its files (--root) or the --check; --cmdline gives boot \
                 parameters that the application needs"
                    .to_owned(),
            ),
            Self::Prove(_) | Self::OutOfTime { .. } => None,
        }
    }
}

impl Explain for TrainError {
    fn code(&self) -> ExitCode {
        match self {
            Self::Prove(error) => error.code(),
            Self::Failed { .. } => ExitCode::NotProven,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Prove(_) => None,
            Self::Failed { .. } => Some("leave out --cut pgo, or give another --load".to_owned()),
        }
    }
}

impl Explain for BenchError {
    fn code(&self) -> ExitCode {
        match self {
            Self::Guest(error) => error.code(),
            Self::Pack(_) => ExitCode::RootMissing,
            Self::Machine(_) => ExitCode::NoEngine,
            Self::Counter(_) => ExitCode::WeighFailed,
            Self::Journal(_) => ExitCode::Output,
            Self::File { .. } => ExitCode::ImageUnreadable,
            Self::Interrupted => ExitCode::Interrupted,
        }
    }
}

impl Explain for SearchError<BenchError> {
    fn code(&self) -> ExitCode {
        match self {
            Self::Default(_) => ExitCode::NotProven,
            Self::Budget { .. } => ExitCode::Usage,
            Self::Trials(error) => error.code(),
        }
    }
}

impl Explain for RootError {
    fn code(&self) -> ExitCode {
        match self {
            Self::NoCommand | Self::NoCheck(_) => ExitCode::Usage,
            Self::Host(HostFilesError::TooLarge { .. }) => ExitCode::RootTooLarge,
            Self::Host(_) | Self::NotPublic(_) => ExitCode::RootMissing,
            Self::Root(error) => error.code(),
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Host(HostFilesError::TooLarge { .. }) => {
                Some("use --root DIR with only the files that the application needs".to_owned())
            }
            // Neither --memory nor --root-disk is an option here.
            Self::Root(_) if self.code() == ExitCode::RootTooLarge => {
                Some("remove files that the application does not need".to_owned())
            }
            Self::Root(error) => error.hint(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use tare_rootfs::oci::{ImageError, LimitError};
    use tare_rootfs::root::ReadRootError;
    use tare_rootfs::walk::WalkError;

    use super::*;

    #[test]
    fn a_kernel_that_a_signal_ended_is_interrupted_whatever_was_made() {
        for error in [
            MakeError::Kconfig(KconfigError::Interrupted),
            MakeError::Build(BuildError::Interrupted),
        ] {
            assert_eq!(error.code(), ExitCode::Interrupted, "{error}");
        }
    }

    #[test]
    fn a_root_fails_with_the_codes_that_it_has_in_a_run() {
        let directory = |error| RootError::Root(ReadRootError::Directory(error));
        let image = |source| {
            let path = PathBuf::from("a.tar");
            RootError::Root(ReadRootError::Image { path, source })
        };
        let large = WalkError::TooLarge {
            root: PathBuf::from("root"),
            limit_bytes: 1,
        };
        let limit = || LimitError::Bytes { limit_bytes: 1 };
        let files = HostFilesError::TooLarge {
            file: PathBuf::from("/srv/film"),
            bytes: 2,
            limit_bytes: 1,
            largest: Vec::new(),
        };
        for (error, code) in [
            (directory(large), ExitCode::RootTooLarge),
            (image(ImageError::Limit(limit())), ExitCode::RootTooLarge),
            (RootError::Host(files), ExitCode::RootTooLarge),
            (
                directory(WalkError::Missing(PathBuf::from("root"))),
                ExitCode::RootMissing,
            ),
            (image(ImageError::Nested), ExitCode::RootImage),
        ] {
            assert_eq!(error.code(), code, "{error}");
            let hint = error.hint().unwrap_or_default();
            assert!(!hint.contains("--memory"), "{hint}");
            assert_eq!(hint.is_empty(), code != ExitCode::RootTooLarge, "{hint}");
        }
        let several = image(ImageError::Several { known: Vec::new() });
        assert!(
            several
                .hint()
                .is_some_and(|hint| hint.ends_with("--root a.tar:NAME"))
        );
    }
}
