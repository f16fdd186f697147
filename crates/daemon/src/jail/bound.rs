//! Files and directories of the host in the root of a jail, at their paths on the host.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::mount::{mount_bind, mount_bind_recursive};

use super::{JailError, failed, failed_io, restricted};

/// The access to a bound file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Read and execute, with everything mounted below.
    Read,
    /// Change files; without what is mounted below.
    Change,
    /// It is a device.
    Device,
}

#[derive(Debug)]
struct Bound {
    file: OwnedFd,
    below: PathBuf,
    is_directory: bool,
    access: Access,
}

/// What a root receives, already open: the new root may cover the originals.
#[derive(Debug, Default)]
pub(super) struct BoundFiles {
    bound: Vec<Bound>,
    /// Symbolic links and their targets.
    links: Vec<(PathBuf, PathBuf)>,
}

impl BoundFiles {
    /// Adds the file at a path, if there is one. To be called in the new mount namespace.
    pub(super) fn add(&mut self, path: &Path, access: Access) -> Result<(), JailError> {
        let below = below_root(path);
        match fs::symlink_metadata(path) {
            Ok(found) if found.is_symlink() => {
                let target = fs::read_link(path).map_err(failed_io("read a link"))?;
                self.links.push((below, target));
            }
            Ok(found) => self.bound.push(Bound {
                file: open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
                    .map_err(failed("open a program's files"))?,
                below,
                is_directory: found.is_dir(),
                access,
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed_io("find a program's files")(error)),
        }
        Ok(())
    }

    /// Fills the working directory, the new root.
    pub(super) fn provide(&self) -> Result<(), JailError> {
        for bound in &self.bound {
            bound.bind().map_err(failed("mount a program's files"))?;
        }
        for (below, target) in &self.links {
            symlink(target, below).map_err(failed_io("make a link"))?;
        }
        Ok(())
    }
}

impl Bound {
    fn bind(&self) -> Result<(), Errno> {
        let made = if self.is_directory {
            fs::create_dir_all(&self.below)
        } else {
            make_file(&self.below)
        };
        made.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        match self.access {
            Access::Read => {
                mount_bind_recursive(path, &self.below)?;
                restricted::make(&self.below)
            }
            Access::Change => {
                mount_bind(path, &self.below)?;
                restricted::make_changeable(&self.below)
            }
            Access::Device => mount_bind(path, &self.below),
        }
    }
}

pub(super) fn below_root(path: &Path) -> PathBuf {
    path.strip_prefix("/").unwrap_or(path).to_owned()
}

/// Makes an empty file, over which another is mounted.
pub(super) fn make_file(path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    File::create(path).map(drop)
}
