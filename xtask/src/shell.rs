//! Running other programs.

use std::process::Command;

use anyhow::{Context, Result, bail};
use tare_toolchain::command::{self, describe};
pub(crate) use tare_toolchain::command::{cargo, root, target_dir};

/// Runs a command to its end; an error if it fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    Ok(command::run(command)?)
}

/// What a command prints on standard output; an error if it fails.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("cannot run {}", describe(command)))?;
    if !output.status.success() {
        bail!(
            "{} ended with {}: {}",
            describe(command),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8(output.stdout)?)
}
