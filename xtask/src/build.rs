//! Building and testing: host programs, guest images, every test.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use tare_scaffold::{CoreLibrary, GUEST_TARGET};

use crate::shell::{cargo, root, run, target_dir};
use crate::workspace;

/// The profile that guest images are built with.
const GUEST_PROFILE: &str = "guest";

/// What a build is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Purpose {
    /// Everything that `make install` copies.
    All,
    /// What `make run` starts: the HTTP appliance, and Linux guests where QEMU is installed; and the
    /// image for static programs.
    Run,
}

/// The image that `make run` boots, and the one for the programs that it proposes to try next.
const RUN_IMAGES: [&str; 2] = ["http", "linux"];

/// `target/release/tare`, `tare-monitor` and `target/release/images/*`.
pub(crate) fn release(purpose: Purpose) -> Result<()> {
    let mut host = cargo(&["build", "--locked", "--release", "-p", "tare"]);
    host.args(["-p", "tare-monitor"]);
    if purpose == Purpose::All {
        // `tare-rr` and others, which experiments start beside tare.
        host.args(["-p", "tare-lab"]);
    }
    run(&mut host)?;
    if purpose == Purpose::All || qemu_is_installed() {
        init(purpose)?;
    }
    match purpose {
        Purpose::All => guests(),
        Purpose::Run => images(|name| RUN_IMAGES.contains(&name)),
    }
}

/// Whether `make run` can compare with Linux, whose guests need the programs of [`init`].
fn qemu_is_installed() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join("qemu-system-x86_64").is_file())
}

/// Programs of Linux guests, linked statically, put into `linux` beside both the debug and the
/// release programs: the first process, and the observer, which only `tare profile` starts. Their
/// target is named so that cargo keeps what it builds apart from the host's.
pub(crate) fn init(purpose: Purpose) -> Result<()> {
    const TARGET: &str = "x86_64-unknown-linux-gnu";
    const INIT: (&str, &str) = ("tare-init", "tare-init");
    const OBSERVER: (&str, &str) = ("tare-probe", "tare-observe");
    let programs: &[_] = match purpose {
        Purpose::All => &[INIT, OBSERVER],
        Purpose::Run => &[INIT],
    };
    let mut command = cargo(&["build", "--locked", "--profile", GUEST_PROFILE]);
    command.args(["--target", TARGET]);
    for (package, program) in programs {
        command.args(["-p", package, "--bin", program]);
    }
    run(command.env("RUSTFLAGS", "-Ctarget-feature=+crt-static"))?;
    let built = target_dir().join(TARGET).join(GUEST_PROFILE);
    for profile in ["debug", "release"] {
        let linux = target_dir().join(profile).join("linux");
        for (_, program) in programs {
            install(&built.join(program), &linux)?;
        }
    }
    Ok(())
}

/// All guest images, put beside both the debug and the release programs.
pub(crate) fn guests() -> Result<()> {
    images(|_| true)
}

/// The guest images that are `wanted`, by name.
fn images(wanted: impl Fn(&str) -> bool) -> Result<()> {
    let packages = workspace::guests()?;
    let names: Vec<(&str, &str)> = packages
        .iter()
        .flat_map(|package| package.bins().map(|bin| (package.name.as_str(), bin)))
        .filter(|(_, bin)| wanted(bin))
        .collect();
    let mut command = guest_cargo()?;
    for (package, bin) in &names {
        command.args(["-p", package, "--bin", bin]);
    }
    run(&mut command)?;
    let built = target_dir().join(GUEST_TARGET).join(GUEST_PROFILE);
    for profile in ["debug", "release"] {
        let images = target_dir().join(profile).join("images");
        for (_, name) in &names {
            install(&built.join(name), &images)?;
        }
    }
    Ok(())
}

/// Every test: host crates, guest crates on the host, whole machines.
pub(crate) fn test() -> Result<()> {
    guests()?;
    // Tests of whole machines start the programs by their place.
    run(&mut cargo(&["build", "--locked"]))?;
    init(Purpose::All)?;
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

/// `cargo build` for the guest's target.
fn guest_cargo() -> Result<Command> {
    let mut command = cargo(&["build", "--locked", "--profile", GUEST_PROFILE]);
    match CoreLibrary::find(root()) {
        Ok(core) => core.prepare(&mut command),
        Err(error) => {
            let hint = error.hint().unwrap_or("run `make build`");
            return Err(anyhow::Error::new(error).context(hint));
        }
    }
    Ok(command)
}

fn install(image: &Path, images: &Path) -> Result<()> {
    std::fs::create_dir_all(images).with_context(|| format!("cannot make {}", images.display()))?;
    let name = image.file_name().context("an image without a name")?;
    std::fs::copy(image, images.join(name)).with_context(|| {
        let shown = image.strip_prefix(root()).unwrap_or(image);
        format!("cannot copy {}", shown.display())
    })?;
    Ok(())
}
