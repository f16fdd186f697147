//! An application with its files and its proof's terms.

use std::path::PathBuf;

use tare_tailor::prove::ProofConfig;
use tare_tailor::root::Application;

/// An application, ready for its proof.
pub(super) struct Subject {
    pub(super) name: String,
    pub(super) application: Application,
    pub(super) terms: ProofConfig,
    /// Directory of its consoles.
    pub(super) logs: PathBuf,
}
