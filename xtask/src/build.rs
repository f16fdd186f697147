//! Building and testing: host programs, guest images, every test.

use anyhow::{Error, Result};
use tare_toolchain::build::{self, Bin, INIT, OBSERVER, Priority};
use tare_toolchain::command::StepError;

use crate::shell::{cargo, run};
use crate::workspace;

/// Everything that `make install` copies: `target/release/tare`, `tare-monitor`, and programs
/// and images of guests beside them. `make run` builds only a part of it (`tare-toolchain`).
pub(crate) fn release() -> Result<()> {
    // `tare-rr` and others, which experiments start beside tare.
    build::host(&["tare-lab"])?;
    init()?;
    guests()
}

/// Programs of Linux guests: the first process, and the observer.
pub(crate) fn init() -> Result<()> {
    Ok(build::linux(&[INIT, OBSERVER])?)
}

/// All guest images, put beside both the debug and the release programs.
pub(crate) fn guests() -> Result<()> {
    let packages = workspace::guests()?;
    let images: Vec<Bin<'_>> = packages
        .iter()
        .flat_map(|package| {
            let package_name = package.name.as_str();
            package.bins().map(move |name| Bin {
                package: package_name,
                name,
            })
        })
        .collect();
    build::images(&images, Priority::Usual).map_err(with_hint)
}

fn with_hint(error: StepError) -> Error {
    match error.hint() {
        Some(hint) => Error::new(error).context(hint),
        None => error.into(),
    }
}

/// Every test: host crates, guest crates on the host, whole machines.
pub(crate) fn test() -> Result<()> {
    guests()?;
    // Tests of whole machines start the programs by their place.
    run(&mut cargo(&["build", "--locked"]))?;
    init()?;
    let packages = workspace::guests()?;
    let mut all = cargo(&["test", "--locked", "--workspace", "--no-fail-fast"]);
    for package in &packages {
        all.args(["--exclude", &package.name]);
    }
    run(&mut all)?;
    let mut guest_libs = cargo(&["test", "--locked", "--lib", "--tests"]);
    for package in packages.iter().filter(|package| package.has_lib()) {
        guest_libs.args(["-p", &package.name]);
    }
    run(&mut guest_libs)
}
