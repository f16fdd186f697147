//! Building an appliance's image with cargo.

use std::fs;
use std::io::{self, BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{ChildStdout, Command, Stdio};

use serde::Deserialize;
use tare_host::program::find_program;
use tare_toolchain::command::without_flags_of_environment;
use tare_toolchain::{CoreLibrary, ToolchainError};

use crate::appliance::Appliance;

/// An image that was built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The file.
    pub path: PathBuf,
    /// Its length in bytes.
    pub bytes: u64,
}

/// Why an image was not built. cargo's own messages are on standard error.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// No compiler for it.
    #[error(transparent)]
    Toolchain(#[from] ToolchainError),
    /// cargo does not start.
    #[error("cannot run cargo")]
    NoCargo(#[source] io::Error),
    /// It did not compile.
    #[error("cargo could not build {}", .0.display())]
    Failed(PathBuf),
    /// It was not linked.
    #[error("cargo could not build {}: the linker {} is not installed", .0.display(), .1)]
    NoLinker(PathBuf, &'static str),
    /// Not exactly one program.
    #[error("the crate in {} builds {} programs: an appliance must have exactly one", .0.display(), .1)]
    NotOne(PathBuf, usize),
    /// The program cannot be read.
    #[error("cannot read the image {}", .0.display())]
    Read(PathBuf, #[source] io::Error),
}

impl BuildError {
    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Toolchain(error) => error.hint(),
            Self::NoCargo(_) => Some("install Rust (https://rustup.rs)"),
            Self::NoLinker(_, "ld.lld") => Some("run `apt-get install lld`"),
            Self::NoLinker(..) => Some("install the toolchain again, or a package with lld"),
            Self::Failed(_) | Self::NotOne(..) | Self::Read(..) => None,
        }
    }
}

/// A line of cargo's, as far as it matters here.
#[derive(Deserialize)]
struct Message {
    reason: String,
    executable: Option<PathBuf>,
}

impl Appliance {
    /// Builds the image with the crate's release profile.
    pub fn build(&self) -> Result<Image, BuildError> {
        let directory = self.directory();
        let core = CoreLibrary::find(directory)?;
        let mut cargo = Command::new("cargo");
        cargo.args(["build", "--release", "--bins"]);
        cargo.arg("--message-format=json-render-diagnostics");
        core.prepare(&mut cargo);
        without_flags_of_environment(&mut cargo);
        cargo.current_dir(directory).stdin(Stdio::null());
        let mut child = cargo
            .stdout(Stdio::piped())
            .spawn()
            .map_err(BuildError::NoCargo)?;
        let programs = child.stdout.take().map(programs).unwrap_or_default();
        let status = child.wait().map_err(BuildError::NoCargo)?;
        if !status.success() {
            let directory = directory.to_owned();
            return Err(match missing_linker(&core) {
                Some(linker) => BuildError::NoLinker(directory, linker),
                None => BuildError::Failed(directory),
            });
        }
        let [path] = programs.as_slice() else {
            return Err(BuildError::NotOne(directory.to_owned(), programs.len()));
        };
        match fs::metadata(path) {
            Ok(file) => Ok(Image {
                path: path.clone(),
                bytes: file.len(),
            }),
            Err(error) => Err(BuildError::Read(path.clone(), error)),
        }
    }
}

/// The linker for the guest's target, if it is missing.
fn missing_linker(core: &CoreLibrary) -> Option<&'static str> {
    let (name, is_here) = match core {
        CoreLibrary::Installed(sysroot) => {
            let entries = sysroot.join("lib/rustlib").read_dir();
            let mut hosts = entries.into_iter().flatten().filter_map(Result::ok);
            (
                "rust-lld",
                hosts.any(|host| host.path().join("bin/rust-lld").is_file()),
            )
        }
        CoreLibrary::Sources => ("ld.lld", false),
    };
    (!is_here && find_program(name).is_err()).then_some(name)
}

/// The programs that cargo reports, to its end.
fn programs(output: ChildStdout) -> Vec<PathBuf> {
    let lines = BufReader::new(output).lines().map_while(Result::ok);
    lines.filter_map(|line| program(&line)).collect()
}

fn program(line: &str) -> Option<PathBuf> {
    let message: Message = serde_json::from_str(line).ok()?;
    message
        .executable
        .filter(|_| message.reason == "compiler-artifact")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_told_from_other_messages() {
        let line = |reason: &str, executable: &str| {
            format!(r#"{{"reason":"{reason}","target":{{}},"executable":{executable}}}"#)
        };
        let built = program(&line("compiler-artifact", r#""/a/b""#));
        assert_eq!(built, Some(PathBuf::from("/a/b")));
        assert_eq!(program(&line("compiler-artifact", "null")), None);
        assert_eq!(program(&line("other", r#""/a/b""#)), None);
        assert_eq!(
            program(r#"{"reason":"build-finished","success":true}"#),
            None
        );
        assert_eq!(program("warning: text"), None);
    }
}
