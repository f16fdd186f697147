//! The kernel: a file, or Debian's.

use std::path::{Path, PathBuf};

use tare_control::exit::ExitCode;
use tare_rootfs::cache::{Cache, CacheError};
use tare_rootfs::kernel::debian::{self, ObtainError};

use crate::Terminal;
use crate::failure::{Explain, Failure};
use crate::image::{self, Image};

/// The name of Debian's cloud kernel.
const DEBIAN: &str = "debian";

impl Explain for CacheError {
    fn code(&self) -> ExitCode {
        ExitCode::Output
    }
}

impl Explain for ObtainError {
    fn code(&self) -> ExitCode {
        match self {
            Self::Cache(error) => error.code(),
            _ => ExitCode::ImageUnreadable,
        }
    }
}

/// An open kernel.
#[derive(Debug)]
pub(super) struct OpenKernel {
    /// The file.
    pub(super) image: Image,
    /// The directory of its modules, if it came with one.
    pub(super) modules: Option<PathBuf>,
}

/// Opens a kernel's file, or the newest Debian kernel that is available.
pub(super) fn open(kernel: &Path, terminal: &dyn Terminal) -> Result<OpenKernel, Failure> {
    if kernel != Path::new(DEBIAN) {
        // A kernel is not one of our images: its argument is a path.
        let path = Path::new(".").join(kernel);
        let image = image::open(if kernel.is_absolute() { kernel } else { &path })?;
        return Ok(OpenKernel {
            image,
            modules: None,
        });
    }
    let cache = Cache::open_default()?;
    let kernel = match debian::find(&cache) {
        Some(kernel) => kernel,
        None => {
            terminal.warn("downloading Debian's cloud kernel, once");
            debian::obtain(&cache)?
        }
    };
    Ok(OpenKernel {
        image: image::open(&kernel.image)?,
        modules: Some(kernel.modules),
    })
}
