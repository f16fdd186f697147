//! `cargo xtask fuzz`: each target of `fuzz/` for a bounded time.

use anyhow::{Context, Result};

use crate::shell::{self, cargo, output, root};

/// Runs every target for `seconds`; the first crash is an error and its input
/// stays in `fuzz/artifacts/`.
fn run_target(name: &str, seconds: u32) -> Result<()> {
    let limit = format!("-max_total_time={seconds}");
    shell::run(fuzz(&["run", name, "--", &limit, "-timeout=10"]).env("RUSTC_BOOTSTRAP", "1"))
}

/// Every target in turn.
pub fn run(seconds: u32) -> Result<()> {
    let listed = output(fuzz(&["list"]).env("RUSTC_BOOTSTRAP", "1"))
        .context("is cargo-fuzz installed? cargo install --locked cargo-fuzz")?;
    listed
        .lines()
        .try_for_each(|name| run_target(name, seconds))
}

fn fuzz(args: &[&str]) -> std::process::Command {
    let mut command = cargo(&["fuzz"]);
    command.args(args).current_dir(root());
    command
}
