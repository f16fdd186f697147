//! `cargo xtask ci`: everything that is checked before the tests.

use anyhow::Result;

use crate::shell::{cargo, run};
use crate::{advisories, licences, tidy, workspace};

/// Format, tidy, licences, advisories, clippy, docs; stops at the first that fails.
pub(crate) fn ci() -> Result<()> {
    run(&mut cargo(&["fmt", "--all", "--check"]))?;
    tidy::run()?;
    licences::check()?;
    advisories::check()?;
    clippy()?;
    docs()
}

fn clippy() -> Result<()> {
    let guests = workspace::guests()?;
    let mut host = cargo(&["clippy", "--locked", "--workspace", "--all-targets"]);
    for package in &guests {
        host.args(["--exclude", &package.name]);
    }
    run(host.args(["--", "-Dwarnings"]))?;
    let mut guest = cargo(&["clippy", "--locked", "--target", "x86_64-unknown-none"]);
    guest.args(["-p", "tare-hal", "-p", "tare-libos"]);
    guest.args(["--features", "tare-libos/embedded-io"]);
    for package in &guests {
        guest.args(["-p", &package.name]);
    }
    run(guest.args(["--", "-Dwarnings"]))
}

fn docs() -> Result<()> {
    run(cargo(&["doc", "--locked", "--no-deps"]).env("RUSTDOCFLAGS", "-Dwarnings"))
}
