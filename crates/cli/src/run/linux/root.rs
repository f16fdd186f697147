//! The root of a Linux guest: a directory with our first process in it.

use std::path::{Path, PathBuf};

use tare_control::exit::ExitCode;
use tare_rootfs::guest::{self, GuestError};
use tare_rootfs::modules::{Module, ModuleError, Modules};
use tare_rootfs::oci::{self, Image, ImageError};
use tare_rootfs::walk::{Links, Listing, WalkError, walk};
use tare_rootfs::{Task, Tree};

use super::kernel::OpenKernel;
use crate::failure::{Explain, Failure};

/// Files of a Linux guest.
#[derive(Debug)]
pub(crate) struct LinuxRoot {
    /// All of them, the first process included.
    pub(crate) tree: Tree,
    /// What was passed over, one sentence each.
    pub(crate) warnings: Vec<String>,
}

/// A root without a command.
#[derive(Debug, thiserror::Error)]
#[error("{} says no command; write it after --, as in: -- /bin/sh", .0.display())]
struct NoCommand(PathBuf);

impl Explain for NoCommand {
    fn code(&self) -> ExitCode {
        ExitCode::Usage
    }
}

impl Explain for GuestError {
    fn code(&self) -> ExitCode {
        match self {
            Self::Read { .. } | Self::Name(_) => ExitCode::RootMissing,
            Self::NoInit | Self::Task(_) => ExitCode::Internal,
        }
    }
}

/// A container image that cannot be a root.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the image {}", path.display())]
struct RootImageError {
    path: PathBuf,
    source: ImageError,
}

impl Explain for RootImageError {
    fn code(&self) -> ExitCode {
        use ImageError as Because;
        match self.source {
            Because::Open { .. } => ExitCode::RootMissing,
            Because::TooLarge { .. } => ExitCode::RootTooLarge,
            Because::Spool(_) => ExitCode::Output,
            _ => ExitCode::RootImage,
        }
    }

    fn way_out(&self) -> Option<String> {
        matches!(self.source, ImageError::TooLarge { .. })
            .then(|| "give the guest more memory with --memory".to_owned())
    }
}

impl Explain for ModuleError {
    fn code(&self) -> ExitCode {
        ExitCode::ImageUnreadable
    }
}

/// Lists the files of a guest that runs `command`.
pub(super) fn gather(
    from: &Path,
    command: &[String],
    kernel: &OpenKernel,
    limit_bytes: u64,
) -> Result<LinuxRoot, Failure> {
    let (mut tree, task, warnings) = match from.is_file() || oci::is_layout(from) {
        true => of_image(from, command, limit_bytes)?,
        false => of_directory(from, command, limit_bytes)?,
    };
    if task.command.is_empty() {
        return Err(NoCommand(from.to_owned()).into());
    }
    guest::add_init(&mut tree, task, &modules(kernel)?, &guest::find_init()?)?;
    Ok(LinuxRoot { tree, warnings })
}

type Parts = (Tree, Task, Vec<String>);

fn of_directory(from: &Path, command: &[String], limit_bytes: u64) -> Result<Parts, WalkError> {
    let Listing { tree, warnings, .. } = walk(from, Links::Kept, limit_bytes)?;
    let task = Task {
        command: command.to_vec(),
        ..Task::default()
    };
    Ok((tree, task, warnings))
}

fn of_image(from: &Path, command: &[String], limit_bytes: u64) -> Result<Parts, RootImageError> {
    let read = oci::read(from, limit_bytes).map_err(|source| RootImageError {
        path: from.to_owned(),
        source,
    });
    let Image { tree, settings } = read?;
    let task = Task {
        command: settings.command(command),
        environment: settings.env,
        working_directory: settings.working_dir,
        user: settings.user,
        ..Task::default()
    };
    Ok((tree, task, Vec::new()))
}

/// Those that the machine's devices need, of a kernel that has modules.
fn modules(kernel: &OpenKernel) -> Result<Vec<Module>, ModuleError> {
    match &kernel.modules {
        None => Ok(Vec::new()),
        Some(dir) => Modules::open(dir)?.closure(guest::MACHINE_MODULES),
    }
}
