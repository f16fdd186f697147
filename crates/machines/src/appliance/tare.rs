//! Real machines: `tare run` in the foreground, in its own process group,
//! so that Ctrl-C reaches the lab and not the machine under test. A machine ends with
//! the lab also when that is killed.

use std::collections::BTreeMap;
use std::env;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::Signal;
use tare_control::rundir::{RunDir, default_root};
use tare_host::child::ends_with_us;
use tare_qemu::free_port;
use tare_rootfs::Cache;

use super::guest::{self, Guest, GuestSpec, ServedGuest};
use super::machine::{Kind, Machine};
use super::packaged::{self, Root};
use super::served::{self, Served};
use super::words::run_words;
use super::{
    Appliance, ApplianceError, Executor, Packaging, ServerKind, Spec, contained, elsewhere,
};
use crate::linux::catalog::App;
use crate::linux::{files, own_program};
use crate::versions::Versions;

/// Tries to find a port that stays free until the machine binds it.
const PORT_TRIES: usize = 5;

/// Starts machines with the `tare` executable.
#[derive(Debug)]
pub struct TareRun {
    executable: PathBuf,
    /// Roots of the applications that were packaged.
    roots: BTreeMap<String, Root>,
}

impl TareRun {
    /// Machines of that executable.
    pub fn new(executable: PathBuf) -> Self {
        Self {
            executable,
            roots: BTreeMap::new(),
        }
    }

    /// Starts an application in a packaging, on its own port.
    fn package(&mut self, app: &App, packaging: Packaging) -> Result<Machine, ApplianceError> {
        let port = free_port().map_err(ApplianceError::Prepare)?;
        let app = packaged::on_port(app, port);
        if !self.roots.contains_key(&app.name) {
            self.bring(&app)?;
        }
        let root = &self.roots[&app.name];
        root.write(&app).map_err(ApplianceError::Prepare)?;
        match packaging {
            Packaging::Process => contained::bare(&app, root.path()),
            Packaging::Container(runtime) => contained::in_container(&app, root.path(), runtime),
            Packaging::Tare(_) | Packaging::Linux(_) | Packaging::Tailored(_) => {
                let words = |name: &str| packaged::tare_args(&app, packaging, name, root.path());
                let mut machine = execute(&self.executable, &app.name, port, words)?;
                machine.image_bytes = packaged::image_bytes(&app, packaging, &self.executable);
                Ok(machine)
            }
        }
    }
}

/// Executes `tare` in its own process group.
fn execute(
    executable: &Path,
    label: &str,
    port: u16,
    arguments: impl FnOnce(&str) -> Vec<String>,
) -> Result<Machine, ApplianceError> {
    static COUNT: AtomicU32 = AtomicU32::new(1);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("weigh-{}-{count}-{label}", std::process::id());
    let mut command = Command::new(executable);
    command.args(arguments(&name)).process_group(0);
    ends_with_us(&mut command, Signal::TERM);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let kind = Kind::tare(RunDir::at(default_root().join(&name)));
    Machine::start(command, address, kind)
}

/// Starts an image that serves, which is started again when another program takes its port.
fn start_image(executable: &Path, spec: &Spec, tries: usize) -> Result<Machine, ApplianceError> {
    let port = free_port().map_err(ApplianceError::Prepare)?;
    let words = |name: &str| arguments(spec, name, port);
    let mut machine = execute(executable, &spec.label, port, words)?;
    machine.image = Some(spec.image.clone().into());
    if tries > 1 {
        let (executable, spec) = (executable.to_owned(), spec.clone());
        machine.again = Some(Box::new(move || start_image(&executable, &spec, tries - 1)));
    }
    Ok(machine)
}

impl Executor for TareRun {
    fn start(&mut self, target: ServerKind<'_>) -> Result<Box<dyn Appliance>, ApplianceError> {
        let port = || free_port().map_err(ApplianceError::Prepare);
        Ok(Box::new(match target {
            ServerKind::Image(spec) => start_image(&self.executable, spec, PORT_TRIES)?,
            ServerKind::Elsewhere(monitor, spec) => elsewhere::start(monitor, spec)?,
            ServerKind::WebServer(root) => contained::lighttpd(port()?, root)?,
            ServerKind::Memcached(memory_mib) => contained::memcached(port()?, memory_mib)?,
            ServerKind::App(app, packaging) => self.package(app, packaging)?,
        }))
    }

    fn bring(&mut self, app: &App) -> Result<u64, ApplianceError> {
        let root = Root::of(app).map_err(|error| ApplianceError::Files(Box::new(error)))?;
        let bytes = root.bytes();
        self.roots.insert(app.name.clone(), root);
        Ok(bytes)
    }

    fn versions_of(&self, app: &App) -> Versions {
        Cache::open_default().map_or_else(|_| Versions::new(), |cache| files::versions(app, &cache))
    }

    fn measure(&mut self, spec: &GuestSpec) -> Result<Box<dyn Guest>, ApplianceError> {
        let words = |name: &str| guest::arguments(spec, name);
        Ok(Box::new(execute(&self.executable, &spec.label, 0, words)?))
    }

    fn fill(&mut self, root: &Path, program: &'static str) -> Result<String, ApplianceError> {
        own_program::fill(root, program).map_err(|error| ApplianceError::Files(Box::new(error)))
    }

    fn serve(&mut self, spec: &ServedGuest) -> Result<Box<dyn Guest>, ApplianceError> {
        let socket = tempfile::tempdir().map_err(ApplianceError::Prepare)?;
        let words = |name: &str| served::arguments(spec, name, &socket);
        let disk = execute(&self.executable, &spec.label, 0, words)?;
        let own = env::current_exe().map_err(ApplianceError::Prepare)?;
        Ok(Box::new(Served::start(&own, spec, disk, socket)?))
    }
}

fn arguments(spec: &Spec, name: &str, port: u16) -> Vec<String> {
    let root = spec.root.as_ref().map(|root| root.to_string_lossy());
    let (cpus, memory) = (spec.cpus.to_string(), format!("{}M", spec.memory_mib));
    let publish = format!("127.0.0.1:{port}:{}", spec.port);
    let mut options = vec![("--name", name)];
    options.extend(root.as_ref().map(|root| ("--root", &**root)));
    if !spec.cmdline.is_empty() {
        options.push(("--cmdline", &spec.cmdline));
    }
    options.extend([
        ("--engine", spec.engine),
        ("--ring", spec.ring),
        ("--idle", spec.idle),
        ("--cpus", &cpus),
        ("--memory", &memory),
        ("--publish", &publish),
    ]);
    run_words(Some(&spec.image), options, &[])
}

#[cfg(test)]
mod tests;
