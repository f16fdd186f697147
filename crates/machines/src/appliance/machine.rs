//! A machine under test as a process: `tare run` or `tare blk`, another program's monitor, or a
//! server of the host. Its console, control socket and helpers, and its end.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tare_control::client::{Client, ClientError};
use tare_control::exit::ExitCode;
use tare_control::rundir::RunDir;
use tare_control::settings::{Settings, SettingsChange};
use tare_control::stats::Stats;
use tare_host::child::ended_within;
use tare_host::tap_namespace::TapNamespace;
use tare_probe::vm::{self, Vm};
use tempfile::TempDir;

use super::console::Console;
use super::guest::Guest;
use super::server_place::ServerPlace;
use super::{Appliance, ApplianceError};
use crate::observe::{CpuReading, Helper, descendants, helpers_with, resident_bytes};
use tare_load::interrupt::{Interrupt, SLICE};

/// How long a machine has to end after SIGTERM, before it is killed.
pub(super) const GRACE: Duration = Duration::from_secs(3);

/// A machine that was started. Dropping it ends it.
pub(super) struct Machine {
    child: Child,
    console: Console,
    started: Instant,
    address: SocketAddr,
    pub(super) kind: Kind,
    /// Its image file, if it has one that is known.
    pub(super) image: Option<PathBuf>,
    /// What is added to an application's files, where that is not an image file alone.
    pub(super) image_bytes: Option<u64>,
    /// Starts it anew where another program took its port between choosing it and using it.
    pub(super) again: Option<Box<dyn FnOnce() -> Result<Self, ApplianceError>>>,
}

/// What a machine has besides its process, by what it is.
pub(super) enum Kind {
    /// `tare run` or `tare blk`.
    Tare(TareControl),
    /// Another program's monitor, with the network and the files of its guest.
    Elsewhere {
        network: TapNamespace,
        _files: TempDir,
    },
    /// A server of the host, with its own place if it needs one. It does not report when it serves.
    Server(Option<ServerPlace>),
}

/// The control socket and helpers of a process of Tare.
pub(super) struct TareControl {
    directory: RunDir,
    control: Control,
    /// Network helpers that are not the child's descendants; none were looked for yet.
    pub(super) helpers: Option<Vec<Helper>>,
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

impl Kind {
    /// A process of Tare with its run directory.
    pub(super) fn tare(directory: RunDir) -> Self {
        Self::Tare(TareControl {
            directory,
            control: Control::Unknown,
            helpers: None,
        })
    }
}

impl Machine {
    /// Executes `command`, and reads what it says.
    pub(super) fn start(
        mut command: Command,
        address: SocketAddr,
        kind: Kind,
    ) -> Result<Self, ApplianceError> {
        let (reader, writer) = io::pipe().map_err(ApplianceError::Prepare)?;
        let errors = writer.try_clone().map_err(ApplianceError::Prepare)?;
        command.stdin(Stdio::null()).stdout(writer).stderr(errors);
        let started = Instant::now();
        let child = match &kind {
            Kind::Elsewhere { network, .. } => network
                .within(|| command.spawn())
                .map_err(ApplianceError::Prepare)?,
            Kind::Tare(_) | Kind::Server(_) => command.spawn(),
        };
        let child = child.map_err(|source| ApplianceError::Execute {
            path: command.get_program().into(),
            source,
        })?;
        // From here on the machine is ended by its drop.
        let mut machine = Self {
            child,
            console: Console::default(),
            started,
            address,
            kind,
            image: None,
            image_bytes: None,
            again: None,
        };
        // The pipe ends with the machine's own copies.
        drop(command);
        machine.console = Console::read(reader).map_err(ApplianceError::Prepare)?;
        Ok(machine)
    }

    /// `Err` if it has ended.
    pub(super) fn check(&mut self) -> Result<(), ApplianceError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.console.ended(status)),
            Err(error) => Err(ApplianceError::Prepare(error)),
        }
    }

    fn until_serving(
        &mut self,
        timeout: Duration,
        interrupt: &Interrupt,
    ) -> Result<Duration, ApplianceError> {
        loop {
            interrupt.check()?;
            self.check()?;
            if let Some(after) = self.served_after() {
                return Ok(after);
            }
            if self.started.elapsed() > timeout {
                return Err(ApplianceError::NotServing(timeout));
            }
            match self.kind {
                Kind::Tare(_) | Kind::Elsewhere { .. } => self.console.wait(SLICE),
                Kind::Server(_) => interrupt.sleep(SLICE)?,
            }
        }
    }

    /// Time from its start until it served, if it does.
    fn served_after(&self) -> Option<Duration> {
        let ready = match self.kind {
            Kind::Tare(_) | Kind::Elsewhere { .. } => self.console.ready()?,
            Kind::Server(_) => TcpStream::connect(self.address)
                .map(|_| Instant::now())
                .ok()?,
        };
        Some(ready.duration_since(self.started))
    }

    /// Its process.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The network helper, which `tare run` detaches from itself. It is looked for when it is
    /// first asked for: a look at all processes takes milliseconds, which a start that is measured
    /// must not have. Once more when it has ended: what waits for passt's need has another process start it.
    pub(super) fn helper_pids(&mut self) -> Vec<u32> {
        let (pid, port) = (self.pid(), self.address.port());
        let Kind::Tare(tare) = &mut self.kind else {
            return Vec::new();
        };
        let known = tare.helpers.as_ref();
        if !known.is_some_and(|known| known.iter().all(|helper| is_alive(helper.pid()))) {
            let found = find_helpers(pid, port).into_iter();
            tare.helpers = Some(found.map(Helper::new).collect());
        }
        tare.helpers.iter().flatten().map(Helper::pid).collect()
    }

    fn stop(&mut self) {
        let mut helpers = descendants(self.pid());
        helpers.extend(self.helper_pids());
        signal(self.pid(), Signal::TERM);
        let _ = ended_within(&mut self.child, GRACE);
        self.kill();
        end_helpers(&helpers);
    }

    fn kill(&mut self) {
        let _: io::Result<()> = self.child.kill();
        let _ = self.child.wait();
    }
}

impl TareControl {
    /// Asks for statistics; `None` where the machine has no control interface.
    fn stats(&mut self) -> Result<Option<Stats>, ApplianceError> {
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

    /// Changes settings; `None` where the machine has no control interface.
    fn set(&mut self, change: &SettingsChange) -> Result<Option<Settings>, ApplianceError> {
        // Finds out whether it answers.
        self.stats()?;
        match &mut self.control {
            Control::Speaking(client) => Ok(Some(client.set(change)?)),
            Control::Unknown | Control::Mute => Ok(None),
        }
    }

    /// The image that `tare run` found by its name.
    fn image(&self) -> Option<PathBuf> {
        let json = fs::read(self.directory.machine_json()).ok()?;
        let config: Value = serde_json::from_slice(&json).ok()?;
        Some(config.get("image_path")?.as_str()?.into())
    }
}

impl Appliance for Machine {
    fn started(&self) -> Instant {
        self.started
    }

    fn address(&self) -> SocketAddr {
        self.address
    }

    fn network(&self) -> Option<TapNamespace> {
        match &self.kind {
            Kind::Elsewhere { network, .. } => Some(network.clone()),
            Kind::Tare(_) | Kind::Server(_) => None,
        }
    }

    fn wait_serving(
        &mut self,
        timeout: Duration,
        interrupt: &Interrupt,
    ) -> Result<Duration, ApplianceError> {
        let served = self.until_serving(timeout, interrupt);
        let taken = ExitCode::PortInUse as i32;
        let is_taken = matches!(&served, Err(ApplianceError::Ended { code, .. }) if *code == taken);
        match self.again.take_if(|_| is_taken) {
            Some(again) => {
                *self = again()?;
                self.wait_serving(timeout, interrupt)
            }
            None => served,
        }
    }

    fn stats(&mut self) -> Result<Option<Stats>, ApplianceError> {
        self.check()?;
        match &mut self.kind {
            Kind::Tare(tare) => tare.stats(),
            Kind::Elsewhere { .. } | Kind::Server(_) => Ok(None),
        }
    }

    /// Of all its threads and helpers; of a container with the runtime that waits for it.
    fn cpu(&mut self) -> Result<CpuReading, ApplianceError> {
        self.check()?;
        CpuReading::read(self.pid(), &self.helper_pids()).map_err(ApplianceError::Cpu)
    }

    fn resident_bytes(&mut self) -> Option<u64> {
        resident_bytes(self.pid(), &self.helper_pids())
    }

    fn image(&self) -> Option<PathBuf> {
        let found = match &self.kind {
            Kind::Tare(tare) => tare.image(),
            Kind::Elsewhere { .. } | Kind::Server(_) => None,
        };
        found.or_else(|| self.image.clone())
    }

    fn image_bytes(&self) -> Option<u64> {
        let file = || Some(fs::metadata(self.image()?).ok()?.len());
        self.image_bytes.or_else(file)
    }
}

impl Guest for Machine {
    fn record(
        &mut self,
        timeout: Duration,
        interrupt: &Interrupt,
    ) -> Result<Value, ApplianceError> {
        let console = self.console.clone();
        console.next_record(timeout, interrupt, || self.check())
    }

    fn cpu(&mut self) -> Result<CpuReading, ApplianceError> {
        Appliance::cpu(self)
    }

    fn set(&mut self, change: &SettingsChange) -> Result<Option<Settings>, ApplianceError> {
        self.check()?;
        match &mut self.kind {
            Kind::Tare(tare) => tare.set(change),
            Kind::Elsewhere { .. } | Kind::Server(_) => Ok(None),
        }
    }

    fn stats(&mut self) -> Result<Option<Stats>, ApplianceError> {
        Appliance::stats(self)
    }

    fn vm(&self) -> Option<Vm> {
        let below = descendants(self.pid());
        let mut all = std::iter::once(self.pid()).chain(below);
        all.find_map(|pid| vm::of_pid(pid).ok())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        match &self.kind {
            Kind::Tare(_) => self.stop(),
            Kind::Elsewhere { .. } => self.kill(),
            Kind::Server(place) => {
                if let Some(place) = place {
                    place.delete_container();
                }
                self.kill();
            }
        }
    }
}

/// Helpers with the port that the machine publishes, else, where the monitor publishes it, those
/// at the other end of its sockets.
fn find_helpers(pid: u32, port: u16) -> Vec<u32> {
    let found = helpers_with(&format!("/{port}:"));
    if !found.is_empty() {
        return found;
    }
    let mut own = descendants(pid);
    own.push(pid);
    let machines = vm::list().vms.into_iter();
    machines
        .filter(|vm| own.contains(&vm.pid))
        .flat_map(|vm| vm::helpers_of(&vm))
        .filter(|helper| !own.contains(helper))
        .collect()
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
