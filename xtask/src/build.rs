//! Building and testing: host programs, guest images, every test.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::shell::{cargo, output, root, run, target_dir};
use crate::workspace::{self, Package};

/// The guest's target.
const GUEST_TARGET: &str = "x86_64-unknown-none";
/// The profile that guest images are built with.
const GUEST_PROFILE: &str = "guest";

/// `target/release/tare`, `tare-monitor` and `target/release/images/*`.
pub fn release() -> Result<()> {
    run(&mut cargo(&[
        "build",
        "--locked",
        "--release",
        "-p",
        "tare",
        "-p",
        "tare-monitor",
        // `tare-rr` and its like, which the weighings run beside tare.
        "-p",
        "tare-lab",
    ]))?;
    init()?;
    guests()
}

/// The first process of Linux guests and the observer there, linked statically, put into `linux`
/// beside both the debug and the release programs. Its target is named so that cargo keeps
/// what it builds apart from the host's.
pub fn init() -> Result<()> {
    const TARGET: &str = "x86_64-unknown-linux-gnu";
    run(cargo(&[
        "build",
        "--locked",
        "--profile",
        GUEST_PROFILE,
        "--target",
        TARGET,
        "-p",
        "tare-init",
        "-p",
        "tare-probe",
        "--bins",
    ])
    .env("RUSTFLAGS", "-Ctarget-feature=+crt-static"))?;
    let built = target_dir().join(TARGET).join(GUEST_PROFILE);
    for profile in ["debug", "release"] {
        let linux = target_dir().join(profile).join("linux");
        install(&built.join("tare-init"), &linux)?;
        install(&built.join("tare-observe"), &linux)?;
    }
    Ok(())
}

/// The guest images, put beside both the debug and the release programs.
pub fn guests() -> Result<()> {
    let packages = workspace::guests()?;
    let mut command = guest_cargo()?;
    for package in &packages {
        command.args(["-p", &package.name]);
    }
    run(&mut command)?;
    let built = target_dir().join(GUEST_TARGET).join(GUEST_PROFILE);
    for profile in ["debug", "release"] {
        let images = target_dir().join(profile).join("images");
        for name in packages.iter().flat_map(Package::bins) {
            install(&built.join(name), &images)?;
        }
    }
    Ok(())
}

/// Every test: host crates, guest crates on the host, whole machines.
pub fn test() -> Result<()> {
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

/// `cargo build` for the guest's target: with rustup's core library where it is
/// installed, else with core built from Debian's rust-web-src.
fn guest_cargo() -> Result<Command> {
    let mut command = cargo(&[
        "build",
        "--locked",
        "--profile",
        GUEST_PROFILE,
        "--target",
        GUEST_TARGET,
    ]);
    let sysroot = output(Command::new("rustc").args(["--print", "sysroot"]))?;
    let core = Path::new(sysroot.trim())
        .join("lib/rustlib")
        .join(GUEST_TARGET);
    if !core.is_dir() {
        command
            .args([
                "-Zbuild-std=core,alloc,compiler_builtins",
                "-Zbuild-std-features=compiler-builtins-mem",
                "--config",
                "target.x86_64-unknown-none.rustflags=['-Clinker-flavor=ld.lld']",
            ])
            .env("RUSTC", "/usr/bin/rustc")
            .env("RUSTC_BOOTSTRAP", "1")
            .env("CARGO_TARGET_X86_64_UNKNOWN_NONE_LINKER", "ld.lld");
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
