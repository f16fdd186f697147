//! Kernels to boot.

pub mod debian;

use std::path::PathBuf;

use crate::guest::MACHINE_MODULES;
use crate::modules::{Module, ModuleError, Modules};

/// A kernel with its modules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Release, as `uname -r` says it: `6.1.0-49-cloud-amd64`.
    pub release: String,
    /// Version of the package; empty for a kernel that came without one.
    pub version: String,
    /// The bzImage.
    pub image: PathBuf,
    /// The directory of its modules, `lib/modules/RELEASE`.
    pub modules: PathBuf,
    /// Its configuration.
    pub config: PathBuf,
}

impl Kernel {
    /// The modules that virtual hardware needs, and `besides`, in the order of loading.
    pub fn machine_modules(&self, besides: &[&str]) -> Result<Vec<Module>, ModuleError> {
        Modules::open(&self.modules)?.closure(&[MACHINE_MODULES, besides].concat())
    }
}
