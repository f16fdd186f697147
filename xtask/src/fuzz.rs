//! `cargo xtask fuzz`: each target of `fuzz/` for a bounded time.
//!
//! The stable compiler and plain cargo do: `fuzz/.cargo/config.toml` turns on
//! coverage, which cargo finds since it runs in `fuzz/`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::shell::{self, cargo, root};

/// Runs every target for `seconds`; the first crash is an error and its input
/// stays in `fuzz/artifacts/`.
pub(crate) fn run(seconds: u32) -> Result<()> {
    shell::run(&mut in_fuzz(&["build", "--release", "--bins"]))?;
    targets()?
        .iter()
        .try_for_each(|name| run_target(name, seconds))
}

/// New inputs go to a directory that is thrown away: the corpus is made by hand.
fn run_target(name: &str, seconds: u32) -> Result<()> {
    let found = shell::target_dir().join("fuzz-found").join(name);
    let artifacts = fuzz_dir().join("artifacts").join(name);
    for dir in [&found, &artifacts] {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    let mut command = in_fuzz(&["run", "--quiet", "--release", "--bin", name, "--"]);
    command
        .arg(&found)
        .arg(format!("corpus/{name}"))
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .args(["-timeout=10", "-verbosity=0", "-print_final_stats=1"]);
    shell::run(&mut command)
}

/// Names of the targets: each is a file.
fn targets() -> Result<Vec<String>> {
    let dir = fuzz_dir().join("fuzz_targets");
    let mut names = Vec::new();
    for entry in fs::read_dir(&dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let path = entry?.path();
        names.extend(
            path.file_stem()
                .map(|name| name.to_string_lossy().into_owned()),
        );
    }
    names.sort();
    Ok(names)
}

fn in_fuzz(args: &[&str]) -> Command {
    let mut command = cargo(args);
    command.current_dir(fuzz_dir());
    command
}

fn fuzz_dir() -> PathBuf {
    root().join("fuzz")
}
