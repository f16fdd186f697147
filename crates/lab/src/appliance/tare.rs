//! Real machines: `tare run` in the foreground, in a process group of its own,
//! so that Ctrl-C reaches the lab and not the machine under test. A machine ends with
//! the lab also when that is killed.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tare_control::client::{Client, ClientError};
use tare_control::exit::ExitCode;
use tare_control::rundir::{RunDir, default_root};
use tare_control::settings::{Settings, SettingsChange};
use tare_control::stats::Stats;
use tare_host::child::ends_with_us;
use tare_qemu::free_port;

use super::console::Console;
use super::contained::Contained;
use super::guest::{self, Guest, GuestSpec};
use super::served::{self, Served, ServedGuest};
use super::{Appliance, ApplianceError, Executor, Spec};
use crate::interrupt::{Interrupt, SLICE};
use crate::observe::{CpuReading, descendants, helpers_with};

/// How long a machine has to end after SIGTERM, before it is killed.
const GRACE: Duration = Duration::from_secs(3);
/// Tries to find a port that stays free until the machine binds it.
const PORT_TRIES: usize = 5;

/// Starts machines with the `tare` executable.
#[derive(Debug)]
pub(crate) struct TareRun {
    executable: PathBuf,
    count: u32,
}

impl TareRun {
    /// Machines of that executable.
    pub(crate) fn new(executable: PathBuf) -> Self {
        Self {
            executable,
            count: 0,
        }
    }

    fn try_start(&mut self, spec: &Spec) -> Result<Machine, ApplianceError> {
        let port = free_port().map_err(ApplianceError::Prepare)?;
        self.execute(&spec.label, port, |name| arguments(spec, name, port))
    }

    fn execute(
        &mut self,
        label: &str,
        port: u16,
        arguments: impl FnOnce(&str) -> Vec<String>,
    ) -> Result<Machine, ApplianceError> {
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
        let mut machine = Machine {
            child,
            console: Console::default(),
            started,
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            directory: RunDir::at(default_root().join(&name)),
            control: Control::Unknown,
            helpers: Vec::new(),
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

    fn contain(&mut self, memory_mib: u32) -> Result<Box<dyn Appliance>, ApplianceError> {
        let port = free_port().map_err(ApplianceError::Prepare)?;
        Ok(Box::new(Contained::start(port, memory_mib)?))
    }

    fn measure(&mut self, spec: &GuestSpec) -> Result<Box<dyn Guest>, ApplianceError> {
        let machine = self.execute(&spec.label, 0, |name| guest::arguments(spec, name))?;
        Ok(Box::new(machine))
    }

    fn serve(&mut self, spec: &ServedGuest) -> Result<Box<dyn Guest>, ApplianceError> {
        let socket = tempfile::tempdir().map_err(ApplianceError::Prepare)?;
        let arguments = |name: &str| served::arguments(spec, name, &socket);
        let disk = self.execute(&spec.label, 0, arguments)?;
        Ok(Box::new(Served::start(spec, disk, socket)?))
    }
}

/// The words after `tare`.
fn arguments(spec: &Spec, name: &str, port: u16) -> Vec<String> {
    let mut words: Vec<String> = ["run", &spec.image, "--name", name]
        .map(str::to_owned)
        .into();
    if let Some(root) = &spec.root {
        words.extend(["--root".into(), root.to_string_lossy().into_owned()]);
    }
    if !spec.cmdline.is_empty() {
        words.extend(["--cmdline".into(), spec.cmdline.clone()]);
    }
    words.extend(["--engine", spec.engine, "--ring", spec.ring].map(str::to_owned));
    words.extend(["--idle", spec.idle].map(str::to_owned));
    words.extend(["--cpus".into(), spec.cpus.to_string()]);
    words.extend(["--memory".into(), format!("{}M", spec.memory_mib)]);
    words.extend([
        "--publish".into(),
        format!("127.0.0.1:{port}:{}", spec.port),
    ]);
    words
}

/// Whether a machine answers on its control socket.
#[derive(Debug)]
enum Control {
    /// Not asked yet.
    Unknown,
    /// It does.
    Speaking(Client),
    /// It does not (QEMU).
    Mute,
}

/// A running `tare run`.
pub(super) struct Machine {
    child: Child,
    pub(super) console: Console,
    started: Instant,
    address: SocketAddr,
    directory: RunDir,
    control: Control,
    /// Network helpers that are not the child's descendants.
    helpers: Vec<u32>,
}

impl Machine {
    /// `Err` if it has ended.
    pub(super) fn check(&mut self) -> Result<(), ApplianceError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => {
                self.console.drain();
                Err(ApplianceError::Ended {
                    code: code(status),
                    said: self.console.last(),
                })
            }
            Err(error) => Err(ApplianceError::Prepare(error)),
        }
    }

    /// Asks for statistics; `None` where the machine has no control interface.
    pub(super) fn stats(&mut self) -> Result<Option<Stats>, ApplianceError> {
        let socket = self.directory.control_socket();
        let mut client = match std::mem::replace(&mut self.control, Control::Mute) {
            Control::Mute => return Ok(None),
            Control::Speaking(client) => client,
            // QEMU's own socket greets its clients, which is not HTTP.
            Control::Unknown => match Client::new(socket).stats() {
                Ok(_) => Client::new(self.directory.control_socket()),
                Err(ClientError::BadResponse(_) | ClientError::Connect { .. }) => return Ok(None),
                Err(error) => return Err(error.into()),
            },
        };
        let stats = client.stats()?;
        self.control = Control::Speaking(client);
        Ok(Some(stats))
    }

    /// Its process.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// CPU time of all its threads and helpers.
    pub(super) fn cpu(&self) -> Result<CpuReading, ApplianceError> {
        CpuReading::read(self.child.id(), &self.helpers).map_err(ApplianceError::Cpu)
    }

    /// Changes settings; `None` where the machine has no control interface.
    pub(super) fn set(
        &mut self,
        change: &SettingsChange,
    ) -> Result<Option<Settings>, ApplianceError> {
        // Finds out whether anybody does.
        self.stats()?;
        match &mut self.control {
            Control::Speaking(client) => Ok(Some(client.set(change)?)),
            _ => Ok(None),
        }
    }

    /// Finds the network helper, which `tare run` detaches from itself.
    fn find_helpers(&mut self) {
        if self.helpers.is_empty() {
            self.helpers = helpers_with(&format!("/{}:", self.address.port()));
        }
    }

    fn stop(&mut self) {
        self.find_helpers();
        let mut helpers = descendants(self.child.id());
        helpers.extend(&self.helpers);
        signal(self.child.id(), Signal::TERM);
        let deadline = Instant::now() + GRACE;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        end_helpers(&helpers);
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Kills what the machine left running: helpers end by themselves when their
/// socket closes, this is for those that do not.
fn end_helpers(helpers: &[u32]) {
    let deadline = Instant::now() + Duration::from_millis(300);
    while helpers.iter().any(|pid| is_alive(*pid)) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    for pid in helpers.iter().filter(|pid| is_alive(**pid)) {
        signal(*pid, Signal::KILL);
    }
}

/// Whether a process runs: one that only waits to be reaped does not.
fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The state follows the name, which may hold anything but ends with `)`.
    let state = stat
        .rsplit_once(") ")
        .map(|(_, rest)| rest.starts_with(['Z', 'X']));
    state == Some(false)
}

fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // A process that has ended meanwhile needs none.
        let _ = kill_process(pid, signal);
    }
}

pub(super) fn code(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| -status.signal().unwrap_or(1))
}

/// A machine that is started again when somebody else took its port between
/// choosing it and using it.
struct Restarting {
    machine: Machine,
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
            interrupt.check()?;
            if let Some(ready) = self.machine.console.ready() {
                self.machine.find_helpers();
                return Ok(ready.duration_since(self.machine.started));
            }
            match self.machine.check() {
                Err(ApplianceError::Ended { code, .. })
                    if code == ExitCode::PortInUse as i32 && self.tries > 1 =>
                {
                    self.tries -= 1;
                    self.machine = self.executor.try_start(&self.spec)?;
                }
                other => other?,
            }
            if self.machine.started.elapsed() > timeout {
                return Err(ApplianceError::NotServing(timeout));
            }
            self.machine.console.wait(SLICE);
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
#[allow(clippy::unwrap_used)]
mod tests;
