//! What a test of whole machines needs, and what it prints where that is missing:
//! SKIP, or a failure with TARE_REQUIRE_KVM=1.

use std::path::{Path, PathBuf};

use super::installed;

pub(crate) use tare_vmtest::skip;

/// Whether machines can run here.
pub(crate) fn kvm() -> bool {
    if !tare_vmtest::kvm() {
        return false;
    }
    let tare = Path::new(env!("CARGO_BIN_EXE_tare"));
    tare.with_file_name("tare-monitor").is_file() || skip("tare-monitor is not built")
}

/// Whether machines can have a network here.
pub(crate) fn passt() -> bool {
    kvm() && (installed("passt") || skip("passt is not installed"))
}

/// An image of the library OS, if it is built.
pub(crate) fn built(name: &str) -> Option<PathBuf> {
    let set = std::env::var_os("TARE_IMAGES").map(PathBuf::from);
    let set = set.map(|dir| dir.join(name)).filter(|path| path.is_file());
    let found = set.or_else(|| beside(name));
    if found.is_none() {
        skip(format!(
            "the {name} image is not built (cargo xtask guests)"
        ));
    }
    found
}

/// An image that was built where `tare` was.
pub(crate) fn beside(name: &str) -> Option<PathBuf> {
    let tare = Path::new(env!("CARGO_BIN_EXE_tare")).parent()?;
    ["images", "../x86_64-unknown-none/guest"]
        .map(|directory| tare.join(directory).join(name))
        .into_iter()
        .find(|path| path.is_file())
}
