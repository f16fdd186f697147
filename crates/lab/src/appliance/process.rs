//! A process of `tare` under test: its console, control socket and helpers, and its end.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tare_control::client::{Client, ClientError};
use tare_control::rundir::RunDir;
use tare_control::settings::{Settings, SettingsChange};
use tare_control::stats::Stats;
use tare_host::child::ended_within;

use super::ApplianceError;
use super::console::Console;
use crate::observe::{CpuReading, Helper, descendants, helpers_with, resident_bytes};
use tare_load::interrupt::Interrupt;

/// How long a machine has to end after SIGTERM, before it is killed.
pub(super) const GRACE: Duration = Duration::from_secs(3);

/// Whether a machine answers on its control socket.
#[derive(Debug)]
pub(super) enum Control {
    /// Not asked yet.
    Unknown,
    /// It does.
    Speaking(Client),
    /// It does not (QEMU).
    Mute,
}

/// A running `tare run` or `tare blk`. Dropping it ends it.
pub(super) struct TareProcess {
    pub(super) child: Child,
    pub(super) console: Console,
    pub(super) started: Instant,
    pub(super) address: SocketAddr,
    pub(super) directory: RunDir,
    pub(super) control: Control,
    /// Network helpers that are not the child's descendants; none were looked for yet.
    pub(super) helpers: Option<Vec<Helper>>,
}

impl TareProcess {
    /// `Err` if it has ended.
    pub(super) fn check(&mut self) -> Result<(), ApplianceError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.console.ended(status)),
            Err(error) => Err(ApplianceError::Prepare(error)),
        }
    }

    /// Waits until it says that it serves; then the time since its start.
    pub(super) fn wait_serving(
        &mut self,
        timeout: Duration,
        interrupt: &Interrupt,
    ) -> Result<Duration, ApplianceError> {
        let (console, started) = (self.console.clone(), self.started);
        console.wait_serving(started, timeout, interrupt, || self.check())
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
    pub(super) fn cpu(&mut self) -> Result<CpuReading, ApplianceError> {
        CpuReading::read(self.child.id(), &self.helper_pids()).map_err(ApplianceError::Cpu)
    }

    /// Resident memory of all its processes and helpers.
    pub(super) fn resident_bytes(&mut self) -> Option<u64> {
        resident_bytes(self.child.id(), &self.helper_pids())
    }

    /// Changes settings; `None` where the machine has no control interface.
    pub(super) fn set(
        &mut self,
        change: &SettingsChange,
    ) -> Result<Option<Settings>, ApplianceError> {
        // Finds out whether it answers.
        self.stats()?;
        match &mut self.control {
            Control::Speaking(client) => Ok(Some(client.set(change)?)),
            _ => Ok(None),
        }
    }

    /// The network helper, which `tare run` detaches from itself. It is looked for when it is
    /// first asked for: a look at all processes takes milliseconds, which a start that is measured
    /// must not have. Once more when it has ended: what waits for passt's need has another process start it.
    pub(super) fn helper_pids(&mut self) -> Vec<u32> {
        let known = self.helpers.as_ref();
        if !known.is_some_and(|known| known.iter().all(|helper| is_alive(helper.pid()))) {
            let found = self.find_helpers().into_iter();
            self.helpers = Some(found.map(Helper::new).collect());
        }
        self.helpers.iter().flatten().map(Helper::pid).collect()
    }

    /// Those with the port that the machine publishes, else, where the monitor publishes it, those
    /// at the other end of its sockets.
    fn find_helpers(&self) -> Vec<u32> {
        let found = helpers_with(&format!("/{}:", self.address.port()));
        if found.is_empty() {
            self.connected_helpers()
        } else {
            found
        }
    }

    fn connected_helpers(&self) -> Vec<u32> {
        let mut own = descendants(self.child.id());
        own.push(self.child.id());
        let machines = tare_probe::vm::list().vms.into_iter();
        machines
            .filter(|vm| own.contains(&vm.pid))
            .flat_map(|vm| tare_probe::vm::helpers_of(&vm))
            .filter(|helper| !own.contains(helper))
            .collect()
    }

    fn stop(&mut self) {
        let mut helpers = descendants(self.child.id());
        helpers.extend(self.helper_pids());
        signal(self.child.id(), Signal::TERM);
        let _ = ended_within(&mut self.child, GRACE);
        let _ = self.child.kill();
        let _ = self.child.wait();
        end_helpers(&helpers);
    }
}

impl Drop for TareProcess {
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

/// Its exit code, or its signal's number below zero.
pub(super) fn code(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| -status.signal().unwrap_or(1))
}
