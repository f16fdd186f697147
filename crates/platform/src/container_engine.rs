//! The programs that start containers on this host, and how they remove one.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What starts containers on the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContainerEngine {
    /// runc alone.
    #[default]
    Runc,
    /// podman, conmon and runc.
    Podman,
}

impl ContainerEngine {
    /// Its program, and its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Runc => "runc",
            Self::Podman => "podman",
        }
    }

    /// Its command line with the directory of its state.
    pub(crate) fn command(self, state: &Path, id: &str) -> Command {
        let mut command = Command::new(self.name());
        match self {
            Self::Runc => command.arg("--root").arg(state),
            Self::Podman => command
                .args(["--runtime", "runc", "--cgroup-manager", "cgroupfs"])
                .args(["--events-backend", "none", "--storage-driver", "vfs"])
                .arg("--root")
                .arg(state.join("root"))
                .arg("--runroot")
                .arg(run_directory(id))
                .arg("--tmpdir")
                .arg(run_directory(id).join("tmp")),
        };
        command
    }

    /// Removes a container, running or not.
    pub fn delete(self, state: &Path, id: &str) {
        let args: &[&str] = match self {
            Self::Runc => &["delete", "--force"],
            Self::Podman => &["rm", "--force", "--time", "0"],
        };
        if self.has(state, id) {
            let _ = self.command(state, id).args(args).arg(id).output();
        }
    }

    /// Whether there may be such a container.
    pub(crate) fn has(self, state: &Path, id: &str) -> bool {
        let state_of = match self {
            Self::Runc => state.join(id),
            Self::Podman => state.join("root"),
        };
        state_of.exists()
    }
}

/// Where podman keeps what does not outlive a boot: it refuses long paths there.
pub(crate) fn run_directory(id: &str) -> PathBuf {
    Path::new("/run").join(id)
}

/// A name that is not an engine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown container engine: use runc or podman")]
pub struct UnknownEngine;

impl FromStr for ContainerEngine {
    type Err = UnknownEngine;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut all = [Self::Runc, Self::Podman].into_iter();
        all.find(|engine| engine.name() == text)
            .ok_or(UnknownEngine)
    }
}
