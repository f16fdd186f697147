//! Starts what kernel sources execute: `make`, and through it their scripts and the compilers.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use tare_launch::building;

/// Who starts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Starter {
    /// This program `tare`, in a jail ([`building`]).
    Tare(PathBuf),
    /// The test, whose sources are its own.
    #[cfg(test)]
    Test,
}

impl Starter {
    /// `make` for sources, which writes below `objects` only.
    pub(crate) fn make(&self, sources: &Path, objects: &Path) -> io::Result<Command> {
        let mut make = match self {
            Self::Tare(tare) => building::command(tare, sources, objects, "make")?,
            #[cfg(test)]
            Self::Test => Command::new("make"),
        };
        make.arg("-C")
            .arg(sources)
            .arg(format!("O={}", objects.display()))
            .arg("ARCH=x86_64")
            .env("LC_ALL", "C")
            .env_remove("MAKEFLAGS")
            .stdin(std::process::Stdio::null());
        Ok(make)
    }
}

/// Whether a status says that `make` is missing.
pub(crate) fn is_missing(status: ExitStatus) -> bool {
    status.code() == Some(building::MISSING)
}

/// Whether a signal ended `make`, or what started it.
pub(crate) fn is_signaled(status: ExitStatus) -> bool {
    status.code().is_none_or(|code| code > 128)
}
