//! What runs out in the programs of Tare's machines, as their monitors count it.

use std::collections::BTreeMap;
use std::time::Duration;

use tare_account::{Account, Expiry, Monitor, Vm};
use tare_control::client::Client;
use tare_control::rundir::RunRoot;

/// Longest wait for a monitor's answer. One that is stopped gives no counts.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);

/// Counts of each machine at one time, by process; `None` where the monitor does not give them.
pub(super) struct Counts(BTreeMap<u32, Option<Vec<Expiry>>>);

impl Counts {
    /// The counts of these machines now.
    pub(super) fn now(vms: &[Vm]) -> Self {
        let runs = RunRoot::open_default().ok();
        let counts = vms.iter().filter(|vm| vm.monitor == Monitor::Tare);
        Self(counts.map(|vm| (vm.pid, read(runs.as_ref(), vm))).collect())
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

fn read(runs: Option<&RunRoot>, vm: &Vm) -> Option<Vec<Expiry>> {
    let dir = runs?.find(&vm.name).ok()?;
    let mut client = Client::new(dir.control_socket()).with_timeout(ANSWER_TIMEOUT);
    let stats = client.stats().ok()?;
    // Another machine may have that name by now.
    (stats.pid == vm.pid).then_some(stats.expiries)
}
