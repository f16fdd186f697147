//! The root of a Linux guest: a directory with our first process in it.

use std::path::{Path, PathBuf};

use tare_control::exit::ExitCode;
use tare_rootfs::guest::{self, GuestError};
use tare_rootfs::modules::{Module, ModuleError, Modules};
use tare_rootfs::walk::{Links, Listing, walk};
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
    let Listing {
        mut tree, warnings, ..
    } = walk(from, Links::Kept, limit_bytes)?;
    let task = Task {
        command: command.to_vec(),
        ..Task::default()
    };
    if task.command.is_empty() {
        return Err(NoCommand(from.to_owned()).into());
    }
    guest::add_init(&mut tree, task, &modules(kernel)?, &guest::find_init()?)?;
    Ok(LinuxRoot { tree, warnings })
}

/// Those that the machine's devices need, of a kernel that has modules.
fn modules(kernel: &OpenKernel) -> Result<Vec<Module>, ModuleError> {
    match &kernel.modules {
        None => Ok(Vec::new()),
        Some(dir) => Modules::open(dir)?.closure(guest::MACHINE_MODULES),
    }
}
