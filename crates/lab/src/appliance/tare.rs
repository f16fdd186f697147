//! Real machines: `tare run` in the foreground, in its own process group,
//! so that Ctrl-C reaches the lab and not the machine under test. A machine ends with
//! the lab also when that is killed.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tare_control::exit::ExitCode;
use tare_control::rundir::{RunDir, default_root};
use tare_control::stats::Stats;
use tare_host::child::ends_with_us;
use tare_qemu::free_port;
use tare_rootfs::Cache;

use super::console::Console;
use super::contained::Contained;
use super::elsewhere::{Elsewhere, Monitor};
use super::guest::{self, Guest, GuestSpec};
use super::packaged::{self, MachineAppliance, Root};
use super::process::{Control, TareProcess};
use super::served::{self, Served, ServedGuest};
use super::{Appliance, ApplianceError, Executor, Packaging, Spec};
use crate::linux::catalog::App;
use crate::linux::{files, own_program};
use crate::observe::CpuReading;
use crate::versions::Versions;
use tare_load::interrupt::Interrupt;

/// Tries to find a port that stays free until the machine binds it.
const PORT_TRIES: usize = 5;

/// Starts machines with the `tare` executable.
#[derive(Debug)]
pub(crate) struct TareRun {
    executable: PathBuf,
    count: u32,
    /// Roots of the applications that were packaged.
    roots: BTreeMap<&'static str, Root>,
}

impl TareRun {
    /// Machines of that executable.
    pub(crate) fn new(executable: PathBuf) -> Self {
        Self {
            executable,
            count: 0,
            roots: BTreeMap::new(),
        }
    }

    fn try_start(&mut self, spec: &Spec) -> Result<TareProcess, ApplianceError> {
        let port = free_port().map_err(ApplianceError::Prepare)?;
        self.execute(&spec.label, port, |name| arguments(spec, name, port))
    }

    fn execute(
        &mut self,
        label: &str,
        port: u16,
        arguments: impl FnOnce(&str) -> Vec<String>,
    ) -> Result<TareProcess, ApplianceError> {
        self.count += 1;
        let name = format!("weigh-{}-{}-{label}", std::process::id(), self.count);
        let (reader, writer) = io::pipe().map_err(ApplianceError::Prepare)?;
        let errors = writer.try_clone().map_err(ApplianceError::Prepare)?;
        let mut command = Command::new(&self.executable);
        command
            .args(arguments(&name))
            .stdin(Stdio::null())
            .stdout(writer)
            .stderr(errors)
            .process_group(0);
        let started = Instant::now();
        let child = ends_with_us(&mut command, Signal::TERM)
            .spawn()
            .map_err(|source| ApplianceError::Execute {
                path: self.executable.clone(),
                source,
            })?;
        // From here on the machine's guard is there.
        let mut machine = TareProcess {
            child,
            console: Console::default(),
            started,
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            directory: RunDir::at(default_root().join(&name)),
            control: Control::Unknown,
            helpers: None,
        };
        drop(command);
        machine.console = Console::read(reader).map_err(ApplianceError::Prepare)?;
        Ok(machine)
    }
}

impl Executor for TareRun {
    fn start(&mut self, spec: &Spec) -> Result<Box<dyn Appliance>, ApplianceError> {
        Ok(Box::new(Restarting {
            machine: self.try_start(spec)?,
            executor: Self::new(self.executable.clone()),
            spec: spec.clone(),
            tries: PORT_TRIES,
        }))
    }

    fn native(&mut self, root: &Path) -> Result<Box<dyn Appliance>, ApplianceError> {
        let port = free_port().map_err(ApplianceError::Prepare)?;
        Ok(Box::new(Contained::lighttpd(port, root)?))
    }

    fn elsewhere(
        &mut self,
        monitor: Monitor,
        spec: &Spec,
    ) -> Result<Box<dyn Appliance>, ApplianceError> {
        Ok(Box::new(Elsewhere::start(monitor, spec)?))
    }

    fn contain(&mut self, memory_mib: u32) -> Result<Box<dyn Appliance>, ApplianceError> {
        let port = free_port().map_err(ApplianceError::Prepare)?;
        Ok(Box::new(Contained::memcached(port, memory_mib)?))
    }

    fn bring(&mut self, app: &App) -> Result<u64, ApplianceError> {
        let root = Root::of(app).map_err(|error| ApplianceError::Files(Box::new(error)))?;
        let bytes = root.bytes();
        self.roots.insert(app.name, root);
        Ok(bytes)
    }

    fn versions_of(&self, app: &App) -> Versions {
        Cache::open_default().map_or_else(|_| Versions::new(), |cache| files::versions(app, &cache))
    }

    fn package(
        &mut self,
        app: &App,
        packaging: Packaging,
    ) -> Result<Box<dyn Appliance>, ApplianceError> {
        let port = free_port().map_err(ApplianceError::Prepare)?;
        let app = packaged::on_port(app, port);
        if !self.roots.contains_key(app.name) {
            self.bring(&app)?;
        }
        let root = &self.roots[app.name];
        root.write(&app).map_err(ApplianceError::Prepare)?;
        let root = root.path().to_owned();
        let started: Box<dyn Appliance> = match packaging {
            Packaging::Process => Box::new(Contained::bare(&app, &root)?),
            Packaging::Container(runtime) => {
                Box::new(Contained::in_container(&app, &root, runtime)?)
            }
            Packaging::Tare(_) | Packaging::Linux(_) | Packaging::Tailored(_) => {
                Box::new(MachineAppliance {
                    process: self.execute(app.name, port, |name| {
                        packaged::tare_args(&app, packaging, name, &root)
                    })?,
                    image_bytes: packaged::image_bytes(&app, packaging, &self.executable),
                })
            }
        };
        Ok(started)
    }

    fn measure(&mut self, spec: &GuestSpec) -> Result<Box<dyn Guest>, ApplianceError> {
        let machine = self.execute(&spec.label, 0, |name| guest::arguments(spec, name))?;
        Ok(Box::new(machine))
    }

    fn fill(&mut self, root: &Path, program: &'static str) -> Result<String, ApplianceError> {
        own_program::fill(root, program).map_err(|error| ApplianceError::Files(Box::new(error)))
    }

    fn serve(&mut self, spec: &ServedGuest) -> Result<Box<dyn Guest>, ApplianceError> {
        let socket = tempfile::tempdir().map_err(ApplianceError::Prepare)?;
        let arguments = |name: &str| served::arguments(spec, name, &socket);
        let disk = self.execute(&spec.label, 0, arguments)?;
        let own = env::current_exe().map_err(ApplianceError::Prepare)?;
        Ok(Box::new(Served::start(&own, spec, disk, socket)?))
    }
}

/// The words after `tare`.
fn arguments(spec: &Spec, name: &str, port: u16) -> Vec<String> {
    let mut args: Vec<String> = ["run", &spec.image, "--name", name]
        .map(str::to_owned)
        .into();
    if let Some(root) = &spec.root {
        args.extend(["--root".into(), root.to_string_lossy().into_owned()]);
    }
    if !spec.cmdline.is_empty() {
        args.extend(["--cmdline".into(), spec.cmdline.clone()]);
    }
    args.extend(["--engine", spec.engine, "--ring", spec.ring].map(str::to_owned));
    args.extend(["--idle", spec.idle].map(str::to_owned));
    args.extend(["--cpus".into(), spec.cpus.to_string()]);
    args.extend(["--memory".into(), format!("{}M", spec.memory_mib)]);
    args.extend([
        "--publish".into(),
        format!("127.0.0.1:{port}:{}", spec.port),
    ]);
    args
}

/// A machine that is started again when another program took its port between
/// choosing it and using it.
struct Restarting {
    machine: TareProcess,
    executor: TareRun,
    spec: Spec,
    tries: usize,
}

impl Appliance for Restarting {
    fn started(&self) -> Instant {
        self.machine.started
    }

    fn address(&self) -> SocketAddr {
        self.machine.address
    }

    fn wait_serving(
        &mut self,
        timeout: Duration,
        interrupt: &Interrupt,
    ) -> Result<Duration, ApplianceError> {
        loop {
            match self.machine.wait_serving(timeout, interrupt) {
                Err(ApplianceError::Ended { code, .. })
                    if code == ExitCode::PortInUse as i32 && self.tries > 1 =>
                {
                    self.tries -= 1;
                    self.machine = self.executor.try_start(&self.spec)?;
                }
                other => return other,
            }
        }
    }

    fn stats(&mut self) -> Result<Option<Stats>, ApplianceError> {
        self.machine.check()?;
        self.machine.stats()
    }

    fn cpu(&mut self) -> Result<CpuReading, ApplianceError> {
        self.machine.check()?;
        self.machine.cpu()
    }

    fn image(&self) -> Option<PathBuf> {
        let json = fs::read(self.machine.directory.machine_json()).unwrap_or_default();
        let config: serde_json::Value = serde_json::from_slice(&json).unwrap_or_default();
        let recorded = config.get("image_path").and_then(|path| path.as_str());
        Some(recorded.unwrap_or(&self.spec.image).into())
    }
}

#[cfg(test)]
mod tests;
