//! Appliances of the user's own: `tare new`, `tare build`.

use std::path::PathBuf;

use clap::Args;

/// `tare new`.
#[derive(Debug, Args)]
pub(crate) struct NewArgs {
    /// Directory to create; its last component is the crate's name
    #[arg(value_name = "NAME")]
    pub(crate) path: PathBuf,
    /// Tare's sources, which contain the library OS: a directory, or the URL of a git
    /// repository [default: those that came with tare]
    #[arg(long, value_name = "DIR|URL")]
    pub(crate) tare: Option<PathBuf>,
}

/// `tare build`.
#[derive(Debug, Args)]
pub(crate) struct BuildArgs {
    /// Directory of the crate
    #[arg(value_name = "DIR", default_value = ".")]
    pub(crate) directory: PathBuf,
}
