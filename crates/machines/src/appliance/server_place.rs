//! The directory of a server of the host, and its container.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;
use tare_host::child::ends_with_us;
use tare_host::owned_directory;
use tare_platform::Journal;
use tare_platform::container_engine::ContainerEngine;
use tare_platform::journal::{self, Change};

use super::ApplianceError;
use super::spec::Runtime;

impl Runtime {
    /// Its program.
    const fn program(self) -> &'static str {
        match self {
            Self::Runc => "runc",
            Self::Runsc => "runsc",
        }
    }

    /// Its command line with the directory of its state.
    fn command(self, state: &Path) -> Command {
        let mut command = Command::new(self.program());
        if self == Self::Runsc {
            command.arg("--network=host");
        }
        command.arg("--root").arg(state);
        command
    }
}

/// A server's own directory, for its configuration or its bundle. Gone with it, also if this
/// process is killed: the journal says so.
#[derive(Debug)]
pub(super) struct ServerPlace {
    /// The server's name, which the directory and its container have.
    name: String,
    path: PathBuf,
    journal: Journal,
    /// What runs its container, if it has one.
    container: Option<Runtime>,
}

impl ServerPlace {
    pub(super) fn new(what: &str, port: u16) -> Result<Self, ApplianceError> {
        let name = format!("tare-lab-{what}-{}-{port}", std::process::id());
        let path = journal::directory()?.with_file_name(&name);
        let mut journal = Journal::of_a_weighing()?;
        journal.note(Change::Directory { path: path.clone() })?;
        owned_directory::create(&path).map_err(ApplianceError::Prepare)?;
        Ok(Self {
            name,
            path,
            journal,
            container: None,
        })
    }

    /// The server's name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// A file of the server.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// What runs a container with this configuration.
    pub(super) fn contain(
        &mut self,
        runtime: Runtime,
        config: &Value,
    ) -> Result<Command, ApplianceError> {
        let (bundle, state) = (self.bundle(), self.state());
        fs::create_dir_all(&bundle)
            .and_then(|()| fs::write(bundle.join("config.json"), config.to_string()))
            .map_err(ApplianceError::Prepare)?;
        let mut command = runtime.command(&state);
        command
            .args(["run", "--bundle"])
            .arg(bundle)
            .arg(&self.name);
        match runtime {
            Runtime::Runc => {
                let (engine, id) = (ContainerEngine::Runc, self.name.clone());
                self.journal.note(Change::Container { engine, state, id })?;
            }
            // Its sandbox ends with it.
            Runtime::Runsc => {
                ends_with_us(&mut command, Signal::KILL);
            }
        }
        self.container = Some(runtime);
        Ok(command)
    }

    /// Where the runtime keeps what it knows of its containers.
    fn state(&self) -> PathBuf {
        self.path.join("state")
    }

    /// The container's bundle.
    pub(super) fn bundle(&self) -> PathBuf {
        self.path.join("bundle")
    }

    /// Ends its container, if it has one.
    pub(super) fn delete_container(&self) {
        if let Some(runtime) = self.container {
            let delete = ["delete", "--force", &self.name];
            let _ = runtime.command(&self.state()).args(delete).output();
        }
    }
}
