//! The cargo commands that compile Tare's programs and images.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{
    StepError, at_lower_priority, cargo, run, target_dir, without_flags_of_environment,
};
use crate::{CoreLibrary, GUEST_TARGET};

/// The profile that guest images and programs of Linux guests are built with.
const GUEST_PROFILE: &str = "guest";
/// The host's target.
const HOST: &str = "x86_64-unknown-linux-gnu";
/// Profiles of the programs beside which images and programs of guests are put.
const HOST_PROFILES: [&str; 2] = ["debug", "release"];

/// A program of a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bin<'a> {
    /// The package.
    pub package: &'a str,
    /// The program.
    pub name: &'a str,
}

/// First process of Linux guests.
pub const INIT: Bin<'static> = Bin {
    package: "tare-init",
    name: "tare-init",
};
/// Observer in Linux guests, which only `tare profile` starts.
pub const OBSERVER: Bin<'static> = Bin {
    package: "tare-probe",
    name: "tare-observe",
};

/// Downloads the dependencies of all programs, so that a build beside this one does not wait
/// for them later.
pub fn fetch() -> Result<(), StepError> {
    run(&mut cargo(&[
        "fetch", "--quiet", "--locked", "--target", HOST,
    ]))
}

/// How a build runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Alone: cargo prints its progress.
    Usual,
    /// Beside another build, with the smaller share of the CPUs: cargo prints warnings and errors.
    Low,
}

/// `target/release/tare`, `tare-monitor`, and the programs of other packages.
pub fn host(others: &[&str]) -> Result<(), StepError> {
    let mut command = cargo(&["build", "--locked", "--release", "-p", "tare"]);
    command.args(["-p", "tare-monitor"]);
    for package in others {
        command.args(["-p", package]);
    }
    run(&mut command)
}

/// Programs of Linux guests, linked statically, put into `linux` beside the host's programs.
/// Their target is named so that cargo keeps what it builds apart from the host's.
pub fn linux(programs: &[Bin<'_>], priority: Priority) -> Result<(), StepError> {
    run(&mut linux_build(programs, priority))?;
    install(programs, HOST, "linux")
}

fn linux_build(programs: &[Bin<'_>], priority: Priority) -> Command {
    let mut command = guest_build(priority);
    command.args(["--target", HOST]);
    bins(&mut command, programs);
    command.env("RUSTFLAGS", "-Ctarget-feature=+crt-static");
    command
}

/// Guest images, put into `images` beside the host's programs.
pub fn images(images: &[Bin<'_>], priority: Priority) -> Result<(), StepError> {
    let mut command = guest_build(priority);
    CoreLibrary::find(crate::command::root())
        .map_err(StepError::Toolchain)?
        .prepare(&mut command);
    let dependencies = cargo_home().map(|home| sources_below(&home));
    command.args([
        "--config",
        &relative_paths(&dependencies.unwrap_or_default()),
    ]);
    bins(&mut command, images);
    run(&mut command)?;
    install(images, GUEST_TARGET, "images")
}

fn cargo_home() -> Option<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    home.or_else(|| Some(std::env::home_dir()?.join(".cargo")))
}

/// Where cargo has unpacked dependencies, a directory for each registry.
fn sources_below(cargo_home: &Path) -> Vec<PathBuf> {
    let sources = fs::read_dir(cargo_home.join("registry/src"));
    let entries = sources.into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Compiler flags for guests, beside those of `.cargo/config.toml`: panics name files of
/// dependencies without these directories, so that an image is the same whoever builds it.
fn relative_paths(directories: &[PathBuf]) -> String {
    let flags = directories
        .iter()
        .filter_map(|directory| directory.to_str())
        .map(|directory| format!("{:?}", format!("--remap-path-prefix={directory}/=")));
    let flags: Vec<_> = flags.collect();
    format!("target.{GUEST_TARGET}.rustflags=[{}]", flags.join(", "))
}

fn guest_build(priority: Priority) -> Command {
    let args = ["build", "--locked", "--profile", GUEST_PROFILE];
    let mut command = match priority {
        Priority::Usual => cargo(&args),
        Priority::Low => {
            let mut command = at_lower_priority(&cargo(&args));
            command.arg("--quiet");
            command
        }
    };
    without_flags_of_environment(&mut command);
    command
}

fn bins(command: &mut Command, bins: &[Bin<'_>]) {
    for bin in bins {
        command.args(["-p", bin.package, "--bin", bin.name]);
    }
}

/// Copies programs that were built for `target` into `directory` beside the host's programs.
fn install(bins: &[Bin<'_>], target: &str, directory: &str) -> Result<(), StepError> {
    let built = target_dir().join(target).join(GUEST_PROFILE);
    for profile in HOST_PROFILES {
        let directory = target_dir().join(profile).join(directory);
        for bin in bins {
            copy(&built.join(bin.name), &directory)?;
        }
    }
    Ok(())
}

fn copy(file: &Path, directory: &Path) -> Result<(), StepError> {
    let name = file.file_name().unwrap_or_default();
    fs::create_dir_all(directory)
        .and_then(|()| fs::copy(file, directory.join(name)))
        .map_err(|error| StepError::Copy(file.to_owned(), error))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn each_program_is_named_with_its_package() {
        let mut command = Command::new("cargo");
        bins(&mut command, &[INIT, OBSERVER]);
        let args: Vec<_> = command.get_args().collect();
        let expected = "-p tare-init --bin tare-init -p tare-probe --bin tare-observe";
        assert_eq!(args, expected.split(' ').collect::<Vec<_>>());
    }

    #[test]
    fn builds_for_guests_take_no_flags_of_the_environment() {
        for priority in [Priority::Usual, Priority::Low] {
            let image = guest_build(priority);
            let removed = [("CARGO_ENCODED_RUSTFLAGS", None), ("RUSTFLAGS", None)];
            assert_eq!(environment(&image), removed);
            let program = linux_build(&[INIT], priority);
            let set = ("RUSTFLAGS", Some("-Ctarget-feature=+crt-static"));
            assert_eq!(environment(&program), [removed[0], set]);
        }
    }

    /// The variables that a command sets or removes, by name.
    fn environment(command: &Command) -> Vec<(&str, Option<&str>)> {
        fn text(text: &OsStr) -> &str {
            text.to_str().unwrap()
        }
        let variables = command.get_envs();
        let as_text = variables.map(|(name, value)| (text(name), value.map(text)));
        as_text.collect()
    }

    #[test]
    fn files_of_dependencies_are_named_without_their_directories() {
        let directories = ["/a/registry/src/index-1", "/b \"c\"/index-2"].map(PathBuf::from);
        let expected = r#"target.x86_64-unknown-none.rustflags=["--remap-path-prefix=/a/registry/src/index-1/=", "--remap-path-prefix=/b \"c\"/index-2/="]"#;
        assert_eq!(relative_paths(&directories), expected);
        assert_eq!(
            relative_paths(&[]),
            "target.x86_64-unknown-none.rustflags=[]"
        );
        let home = tempfile::tempdir().unwrap();
        assert!(sources_below(home.path()).is_empty());
        let sources = home.path().join("registry/src/index-1");
        fs::create_dir_all(&sources).unwrap();
        assert_eq!(sources_below(home.path()), [sources]);
    }

    #[test]
    fn a_file_that_cannot_be_copied_is_named() {
        let place = tempfile::tempdir().unwrap();
        let error = copy(&place.path().join("missing"), place.path()).unwrap_err();
        assert!(error.to_string().contains("/missing: "), "{error}");
        fs::write(place.path().join("built"), "x").unwrap();
        copy(&place.path().join("built"), &place.path().join("a/b")).unwrap();
        assert!(place.path().join("a/b/built").is_file());
    }
}
