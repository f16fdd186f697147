//! cargo on a crate of a test's own: without a registry, and with what it compiles kept
//! from run to run.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tare_toolchain::CoreLibrary;

use super::needs::skip;
use super::output;

/// Longest time of a command that compiles the library OS.
pub(crate) const COMPILING: Duration = Duration::from_secs(900);

/// Where compiled crates stay.
pub(crate) fn target_dir() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("own-appliance")
}

/// The command with an environment for cargo.
pub(crate) fn offline(command: &mut Command) -> &mut Command {
    command
        .env("CARGO_NET_OFFLINE", "true")
        .env("CARGO_TARGET_DIR", target_dir())
        // The library OS is not what is tested on the host.
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "0")
}

/// Whether images can be compiled here, without a registry.
pub(crate) fn compiles() -> bool {
    if let Err(error) = CoreLibrary::find(Path::new(".")) {
        return skip(error.to_string());
    }
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../guest/web/Cargo.toml");
    let args = [
        "tree",
        "--offline",
        "--locked",
        "--edges",
        "normal",
        "--manifest-path",
        manifest,
    ];
    output("cargo", &args).status.success() || skip("the guest's crates are not fetched")
}
