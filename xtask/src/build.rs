//! Building and testing: host programs, guest images, every test.

use anyhow::{Error, Result};
use tare_toolchain::build::{self, Bin, INIT, OBSERVER, Priority};
use tare_toolchain::command::StepError;

use crate::shell::{cargo, run};
use crate::{test_programs, workspace};

/// Everything that `make install` copies: `target/release/tare`, `tare-monitor`, and programs
/// and images of guests beside them. `make run` builds only a part of it (`tare-toolchain`).
pub(crate) fn release() -> Result<()> {
    // `tare-rr` and others, which experiments start beside tare.
    build::host(&["tare-load", "tare-machines"])?;
    init()?;
    guests()
}

/// Programs of Linux guests: the first process, and the observer.
pub(crate) fn init() -> Result<()> {
    Ok(build::linux(&[INIT, OBSERVER], Priority::Usual)?)
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
///
/// All packages are selected in each step, with their tests: cargo compiles a library anew for
/// each set of features, and that set depends on what is selected.
pub(crate) fn test() -> Result<()> {
    guests()?;
    init()?;
    let packages = workspace::members()?;
    let selected = |subcommand: &str| {
        let mut command = cargo(&[subcommand, "--locked", "--workspace"]);
        // A guest's programs compile for guests only, its library for the host too.
        for package in packages.iter().filter(|it| it.is_guest() && !it.has_lib()) {
            command.args(["--exclude", &package.name]);
        }
        command
    };
    let mut programs = selected("build");
    programs.arg("--tests");
    for package in packages.iter().filter(|it| !it.is_guest()) {
        programs.args(package.bins().flat_map(|name| ["--bin", name]));
    }
    // Tests of whole machines start the programs by their place.
    run(&mut programs)?;
    let passed = test_programs::run(selected("test").args(["--lib", "--bins", "--tests"]));
    run(selected("test").arg("--doc")).and(passed)
}
