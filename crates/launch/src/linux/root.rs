//! The root of a Linux guest: a directory with our first process in it.

use std::path::{Path, PathBuf};

use tare_control::exit::ExitCode;
use tare_rootfs::guest::{self, GuestError};
use tare_rootfs::modules::{Module, ModuleError, Modules};
use tare_rootfs::oci::{self, Image, ImageError, ImageRef, LimitError, Limits};
use tare_rootfs::walk::{Links, Listing, WalkError, walk};
use tare_rootfs::{Task, Tree};

use super::kernel::OpenKernel;
use super::root_disk::{self, RootDisk};
use crate::failure::{Explain, Failure};

/// Files of a Linux guest.
#[derive(Debug)]
pub(crate) struct LinuxRoot {
    /// Those of the initramfs, the first process included.
    pub(crate) tree: Tree,
    /// All others, if they go on a disk.
    pub(crate) disk: Option<RootDisk>,
    /// What was passed over, one sentence each.
    pub(crate) warnings: Vec<String>,
}

/// Where a guest keeps its files.
#[derive(Clone, Copy, Debug)]
pub(super) enum Store {
    /// In the initramfs.
    Memory {
        /// Most bytes.
        room_bytes: u64,
    },
    /// On a disk.
    Disk {
        /// Its size.
        bytes: u64,
    },
}

/// A root without a command.
#[derive(Debug, thiserror::Error)]
#[error("{} names no command; write one after --, as in: -- /bin/sh", .0.display())]
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
            Because::Limit(_) => ExitCode::RootTooLarge,
            Because::Spool(_) => ExitCode::Output,
            _ => ExitCode::RootImage,
        }
    }

    fn hint(&self) -> Option<String> {
        match self.source {
            ImageError::Limit(LimitError::Header | LimitError::Layers) => None,
            ImageError::Limit(_) => {
                Some("give the guest more space with --memory or --root-disk".to_owned())
            }
            ImageError::Several { .. } => Some(format!(
                "write the one to run behind it: --root {}:NAME",
                self.path.display()
            )),
            _ => None,
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
    store: Store,
) -> Result<LinuxRoot, Failure> {
    let limit_bytes = match store {
        Store::Memory { room_bytes } => room_bytes,
        // Making the disk finds out how much fits; this bounds what is read.
        Store::Disk { bytes } => 2 * bytes,
    };
    let (tree, mut task, warnings) = parts(from, command, limit_bytes)?;
    let (mut tree, disk) = match store {
        Store::Memory { .. } => (tree, None),
        Store::Disk { bytes } => (Tree::new(), Some(RootDisk { tree, bytes })),
    };
    let mut wanted = guest::MACHINE_MODULES.to_vec();
    if disk.is_some() {
        task.root = root_disk::root();
        wanted.push(root_disk::FILE_SYSTEM);
    }
    let modules = modules(kernel, &wanted)?;
    guest::add_init(&mut tree, task, &modules, &guest::find_init()?)?;
    Ok(LinuxRoot {
        tree,
        disk,
        warnings,
    })
}

/// A root's files, its task, and what was passed over.
pub(crate) type Parts = (Tree, Task, Vec<String>);

/// Reads a directory or a container image, and what is to be run there.
pub fn parts(from: &Path, command: &[String], limit_bytes: u64) -> Result<Parts, Failure> {
    let parts = files(from, command, limit_bytes)?;
    if parts.1.command.is_empty() {
        return Err(NoCommand(from.to_owned()).into());
    }
    Ok(parts)
}

/// [`parts`], whose task may have no command.
pub(crate) fn files(from: &Path, command: &[String], limit_bytes: u64) -> Result<Parts, Failure> {
    let place = ImageRef::of(from);
    if place.path.is_file() || oci::is_layout(&place.path) {
        Ok(of_image(&place, command, limit_bytes)?)
    } else {
        Ok(of_directory(from, command, limit_bytes)?)
    }
}

fn of_directory(from: &Path, command: &[String], limit_bytes: u64) -> Result<Parts, WalkError> {
    let Listing { tree, warnings, .. } = walk(from, Links::Kept, limit_bytes)?;
    let task = Task {
        command: command.to_vec(),
        ..Task::default()
    };
    Ok((tree, task, warnings))
}

fn of_image(
    place: &ImageRef,
    command: &[String],
    limit_bytes: u64,
) -> Result<Parts, RootImageError> {
    let read = oci::read(place, Limits::of_bytes(limit_bytes)).map_err(|source| RootImageError {
        path: place.path.clone(),
        source,
    });
    let Image {
        tree,
        settings,
        warnings,
    } = read?;
    let task = Task {
        command: settings.command(command),
        environment: settings.env,
        working_directory: settings.working_dir,
        user: settings.user,
        ..Task::default()
    };
    Ok((tree, task, warnings))
}

/// Those that the machine's devices need, of a kernel that has modules.
fn modules(kernel: &OpenKernel, wanted: &[&str]) -> Result<Vec<Module>, ModuleError> {
    match &kernel.modules {
        None => Ok(Vec::new()),
        Some(dir) => Modules::open(dir)?.closure(wanted),
    }
}
