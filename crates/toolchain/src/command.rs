//! Running other programs in the workspace's root.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::OnceLock;

/// Why a step of a build failed.
#[derive(Debug)]
pub enum StepError {
    /// The program cannot be started.
    Start(String, io::Error),
    /// The program ended with another status than 0.
    Failed(String, ExitStatus),
    /// A file that was built cannot be copied.
    Copy(PathBuf, io::Error),
    /// Code for the guest's target cannot be compiled here.
    Toolchain(crate::ToolchainError),
}

impl StepError {
    /// The exit code for the program that reports this: that of the failed command, else 1.
    pub fn code(&self) -> u8 {
        match self {
            Self::Failed(_, status) => status
                .code()
                .and_then(|code| u8::try_from(code).ok())
                .unwrap_or(1),
            Self::Start(..) | Self::Copy(..) | Self::Toolchain(_) => 1,
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Toolchain(error) => error.hint(),
            Self::Start(..) | Self::Failed(..) | Self::Copy(..) => None,
        }
    }
}

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(command, error) => write!(f, "cannot run {command}: {error}"),
            Self::Failed(command, status) => write!(f, "{command} ended with {status}"),
            Self::Copy(file, error) => write!(f, "cannot copy {}: {error}", file.display()),
            Self::Toolchain(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for StepError {}

/// This crate's manifest below the workspace's root.
const OWN: &str = "crates/toolchain/Cargo.toml";

/// The workspace's root: that of the package which cargo runs, since a tree that was copied or moved
/// with what it built has programs that were compiled elsewhere. Without cargo it is where this
/// program was compiled.
pub fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| root_of(std::env::var_os("CARGO_MANIFEST_DIR")))
}

/// The root above the package that runs, else above the one that was compiled, if it is there.
fn root_of(runs: Option<OsString>) -> PathBuf {
    const COMPILED: &str = env!("CARGO_MANIFEST_DIR");
    let packages = runs.map(PathBuf::from).into_iter();
    let mut roots = packages
        .chain([PathBuf::from(COMPILED)])
        .filter_map(|package| {
            let mut above = package.ancestors();
            above
                .find(|dir| dir.join(OWN).is_file())
                .map(Path::to_owned)
        });
    roots.next().unwrap_or_else(|| PathBuf::from("."))
}

/// Where cargo puts what it builds, as cargo says: `CARGO_TARGET_DIR`, `CARGO_BUILD_TARGET_DIR` and
/// `build.target-dir` of its configurations count.
pub fn target_dir() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let asked = asked_for_target_dir(&mut metadata());
        asked.unwrap_or_else(|| root().join("target"))
    })
}

fn metadata() -> Command {
    cargo(&[
        "metadata",
        "--no-deps",
        "--offline",
        "--format-version",
        "1",
    ])
}

fn asked_for_target_dir(metadata: &mut Command) -> Option<PathBuf> {
    let output = metadata.stderr(Stdio::null()).output().ok()?;
    let json = String::from_utf8(output.stdout).ok()?;
    let (_, rest) = json.split_once(r#""target_directory":""#)?;
    let mut path = String::new();
    let mut chars = rest.chars();
    loop {
        match chars.next()? {
            '"' => return Some(PathBuf::from(path)),
            // Of the escapes of JSON, those of characters that a path has.
            '\\' => path.push(chars.next()?),
            c => path.push(c),
        }
    }
}

/// The cargo that runs this program, in the workspace's root.
pub fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(cargo_program());
    command.current_dir(root()).args(args);
    command
}

fn cargo_program() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Compiler flags of the environment would replace those of `.cargo/config.toml` and of `--config`,
/// without which no guest image is linked. For every build of what guests run.
pub fn without_flags_of_environment(cargo: &mut Command) -> &mut Command {
    cargo.env_remove("RUSTFLAGS");
    // This one would also replace a `RUSTFLAGS` that is set.
    cargo.env_remove("CARGO_ENCODED_RUSTFLAGS")
}

/// The same command with less of the CPUs than what runs beside it, about a quarter, so that both end
/// at the same time.
pub fn at_lower_priority(command: &Command) -> Command {
    let mut lower = Command::new("nice");
    lower.args(["-n", "4"]).arg(command.get_program());
    lower.args(command.get_args());
    if let Some(directory) = command.get_current_dir() {
        lower.current_dir(directory);
    }
    lower
}

/// The script that installs what a goal needs.
pub fn setup(goal: &str) -> Command {
    let mut command = Command::new(root().join("scripts/setup.sh"));
    command.arg(goal);
    command
}

/// Prints a line on standard error, unless that cannot be written.
pub fn say(line: impl fmt::Display) {
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// Prints a command on standard error and runs it to its end; an error if it fails.
pub fn run(command: &mut Command) -> Result<(), StepError> {
    let shown = describe(command);
    say(format_args!("+ {shown}"));
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(StepError::Failed(shown, status)),
        Err(error) => Err(StepError::Start(shown, error)),
    }
}

/// A command as a person would type it, without directories of programs.
pub fn describe(command: &Command) -> String {
    let cargo = cargo_program();
    let args = command.get_args();
    let args = args.map(|word| if word == cargo { last(word) } else { word });
    std::iter::once(last(command.get_program()))
        .chain(args)
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

/// A program's path without its directory.
fn last(path: &OsStr) -> &OsStr {
    Path::new(path).file_name().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_has_the_workspaces_manifest() {
        assert!(root().join("Cargo.lock").is_file());
    }

    #[test]
    fn a_copied_tree_is_its_own_root() {
        let copy = tempfile::tempdir().unwrap();
        let manifest = copy.path().join(OWN);
        std::fs::create_dir_all(manifest.parent().unwrap()).unwrap();
        std::fs::write(&manifest, "").unwrap();
        // As cargo runs xtask, and this crate's program.
        for package in ["xtask", "crates/toolchain"] {
            let package = copy.path().join(package);
            assert_eq!(root_of(Some(package.into())), copy.path());
        }
        // Other projects' packages are none of it.
        let other = tempfile::tempdir().unwrap();
        for runs in [None, Some(other.path().into())] {
            assert_eq!(root_of(runs), root());
        }
    }

    #[test]
    fn cargo_is_asked_where_it_builds() {
        for (name, dir) in [
            ("CARGO_TARGET_DIR", "/else/where"),
            ("CARGO_BUILD_TARGET_DIR", "/a \"b\""),
        ] {
            let mut command = metadata();
            command.env_remove("CARGO_TARGET_DIR").env(name, dir);
            assert_eq!(
                asked_for_target_dir(&mut command),
                Some(dir.into()),
                "{name}"
            );
        }
        let mut none = Command::new("true");
        assert_eq!(asked_for_target_dir(&mut none), None);
        assert!(target_dir().is_absolute());
    }

    #[test]
    fn a_command_at_lower_priority_is_the_same_command() {
        let lower = at_lower_priority(&cargo(&["build", "--locked"]));
        assert_eq!(lower.get_current_dir(), Some(root()));
        assert_eq!(describe(&lower), "nice -n 4 cargo build --locked");
    }

    #[test]
    fn the_status_of_a_failed_command_becomes_the_exit_code() {
        let failed = run(Command::new("sh").args(["-c", "exit 7"])).unwrap_err();
        assert_eq!(failed.code(), 7);
        assert!(failed.to_string().starts_with("sh -c exit 7 ended with"));
        let missing = run(&mut Command::new("/no/such/program")).unwrap_err();
        assert_eq!(missing.code(), 1);
    }
}
