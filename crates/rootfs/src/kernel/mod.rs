//! Kernels to boot.

pub mod debian;

use std::path::PathBuf;

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
