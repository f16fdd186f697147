//! What a test of whole machines needs, and what it prints where that is missing:
//! SKIP, or a failure with TARE_REQUIRE_KVM=1.

use std::path::{Path, PathBuf};

use super::installed;

use tare_vmtest::{built_image, or_skip};

pub(crate) use tare_vmtest::skip;

/// Whether machines can run here.
pub(crate) fn kvm() -> bool {
    if !tare_vmtest::kvm() {
        return false;
    }
    let tare = Path::new(env!("CARGO_BIN_EXE_tare"));
    tare.with_file_name("tare-monitor").is_file() || skip("tare-monitor is not built")
}

/// Whether machines can run in QEMU's translator here.
pub(crate) fn qemu() -> bool {
    let is_there = installed("qemu-system-x86_64");
    if !is_there {
        tare_vmtest::lacks("QEMU is not installed");
    }
    is_there
}

/// Whether machines can have a network here.
pub(crate) fn passt() -> bool {
    kvm() && (installed("passt") || skip("passt is not installed"))
}

/// An image of the library OS, if it is built.
pub(crate) fn built(name: &str) -> Option<PathBuf> {
    or_skip(tare_vmtest::image(name))
}

/// The one that was built with `tare`.
pub(crate) fn beside(name: &str) -> Option<PathBuf> {
    built_image(name).ok()
}
