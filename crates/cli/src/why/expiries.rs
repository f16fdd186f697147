//! What runs out in the programs of Tare's machines, as their monitors count it. Other machines are
//! not asked: an answer takes CPU time of the monitor, and wakes a thread of one that a quota stops.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::time::Duration;

use tare_account::{Account, Expiry, Monitor, Vm};
use tare_control::client::Client;
use tare_control::config::{GuestKind, MachineConfig};
use tare_control::rundir::{RunDir, RunRoot};

/// Longest wait for a monitor's answer. One that is stopped gives no counts.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);
/// More of a configuration is not read.
const MOST_BYTES: u64 = 1 << 20;

/// Counts of each machine with a program at one time, by process; `None` where the monitor does not
/// give them.
pub(super) struct Counts(BTreeMap<u32, Option<Vec<Expiry>>>);

impl Counts {
    /// The counts of these machines now.
    pub(super) fn now(vms: &[Vm]) -> Self {
        let Ok(runs) = RunRoot::open_default() else {
            return Self(BTreeMap::new());
        };
        let of = |vm: &Vm| {
            let dir = runs.find(&vm.name).ok().filter(has_program)?;
            Some((vm.pid, read(&dir, vm)))
        };
        let tare = vms.iter().filter(|vm| vm.monitor == Monitor::Tare);
        Self(tare.filter_map(of).collect())
    }

    /// Whether a monitor was asked for them.
    pub(super) fn were_requested(&self) -> bool {
        !self.0.is_empty()
    }

    /// Adds to each account what has run out since. A machine that started since has counted from
    /// zero.
    pub(super) fn add_to(&self, accounts: &mut [Account]) {
        let vms: Vec<Vm> = accounts.iter().map(|account| account.vm.clone()).collect();
        let Self(mut after) = Self::now(&vms);
        for account in accounts {
            let pid = account.vm.pid;
            let before = match self.0.get(&pid) {
                Some(Some(before)) => before.as_slice(),
                None => &[],
                Some(None) => continue,
            };
            let after = after.remove(&pid).flatten().unwrap_or_default();
            account.expiries = Expiry::since(before, after);
        }
    }
}

fn has_program(dir: &RunDir) -> bool {
    let config = dir.open_file(&dir.machine_json()).ok().and_then(|file| {
        let config = serde_json::from_reader(file.take(MOST_BYTES));
        config.ok()
    });
    config.is_some_and(|config: MachineConfig| config.guest == GuestKind::Program)
}

fn read(dir: &RunDir, vm: &Vm) -> Option<Vec<Expiry>> {
    let mut client = Client::new(dir.control_socket()).with_timeout(ANSWER_TIMEOUT);
    let stats = client.stats().ok()?;
    // Another machine may have that name by now.
    (stats.pid == vm.pid).then_some(stats.expiries)
}
