//! Readings of the threads of one virtual machine, and their differences.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::proc::{self, Switches, TaskStat};
use crate::vm::{Role, Vm};
use tare_account::{OffCpu, OnCpu};

const NS_PER_SECOND: u64 = 1_000_000_000;

/// One thread's files at one time.
#[derive(Clone, Debug, Default)]
pub(super) struct Reading {
    pub(super) stat: TaskStat,
    pub(super) switches: Switches,
    pub(super) migrations: Option<u64>,
    run_ns: u64,
    wait_ns: u64,
}

/// All threads by ID. Threads that ended keep their last reading.
#[derive(Clone, Debug, Default)]
pub(super) struct Threads {
    pub(super) readings: BTreeMap<u32, Reading>,
    /// Threads of helper processes.
    helpers: BTreeSet<u32>,
}

/// Tasks outside of the monitor's process that work for its machine.
#[derive(Clone, Debug, Default)]
pub(super) struct Others {
    /// Threads of the kernel.
    pub(super) kernel: Vec<u32>,
    /// Processes.
    pub(super) helpers: Vec<u32>,
}

impl Threads {
    /// Reads all again; returns the IDs of threads that have gone.
    pub(super) fn read(&mut self, vm: &Vm, others: &Others) -> Vec<u32> {
        self.helpers = others.helper_threads().map(|(tid, _)| tid).collect();
        let mut gone = self.known();
        for (tid, folder) in folders(vm, others) {
            if let Some(reading) = Reading::of(&folder) {
                self.readings.insert(tid, reading);
                gone.remove(&tid);
            }
        }
        gone.into_iter().collect()
    }

    /// Reads the times of those that are known and all of those that are new; returns
    /// the IDs of threads that have gone.
    pub(super) fn glance(&mut self, vm: &Vm, others: &Others) -> Vec<u32> {
        let mut gone = self.known();
        for (tid, folder) in folders(vm, others) {
            let lives = match self.readings.get_mut(&tid) {
                Some(known) => known.update_times(&folder),
                None => Reading::of(&folder).map(|new| drop(self.readings.insert(tid, new))),
            };
            if lives.is_some() {
                gone.remove(&tid);
            }
        }
        gone.into_iter().collect()
    }

    fn known(&self) -> BTreeSet<u32> {
        self.readings.keys().copied().collect()
    }

    pub(super) fn role(&self, vm: &Vm, tid: u32) -> Role {
        let name = self
            .readings
            .get(&tid)
            .map_or("", |reading| &reading.stat.comm);
        if self.helpers.contains(&tid) {
            return Role::Helper;
        }
        Role::of(vm.monitor, vm.pid, tid, name)
    }
}

/// Threads with their folders: the monitor's, and others that work for it.
fn folders(vm: &Vm, others: &Others) -> Vec<(u32, PathBuf)> {
    let own = proc::numbers(&proc::process(vm.pid).join("task")).unwrap_or_default();
    let own = own.iter().map(|tid| (*tid, proc::thread(vm.pid, *tid)));
    let kernel = others.kernel.iter().map(|tid| (*tid, proc::process(*tid)));
    own.chain(kernel).chain(others.helper_threads()).collect()
}

impl Others {
    /// Threads of the helpers with their folders.
    fn helper_threads(&self) -> impl Iterator<Item = (u32, PathBuf)> + '_ {
        self.helpers.iter().flat_map(|pid| {
            let tids = proc::numbers(&proc::process(*pid).join("task")).unwrap_or_default();
            tids.into_iter().map(|tid| (tid, proc::thread(*pid, tid)))
        })
    }
}

impl Reading {
    fn of(folder: &Path) -> Option<Self> {
        let stat = proc::stat(folder)?;
        let read = |name: &str| fs::read_to_string(folder.join(name));
        let (run_ns, wait_ns) = proc::schedstat(&read("schedstat").ok()?)?;
        Some(Self {
            stat,
            switches: proc::switches(&read("status").ok()?),
            migrations: read("sched").ok().and_then(|text| proc::migrations(&text)),
            run_ns,
            wait_ns,
        })
    }

    fn update_times(&mut self, folder: &Path) -> Option<()> {
        let text = fs::read_to_string(folder.join("schedstat")).ok()?;
        (self.run_ns, self.wait_ns) = proc::schedstat(&text)?;
        Some(())
    }

    /// Time on a CPU since `before`.
    pub(super) fn on_cpu(&self, before: &Self, emulated: bool) -> OnCpu {
        let user = self.stat.user_ticks.saturating_sub(before.stat.user_ticks);
        let guest = self
            .stat
            .guest_ticks
            .saturating_sub(before.stat.guest_ticks);
        let system = self
            .stat
            .system_ticks
            .saturating_sub(before.stat.system_ticks);
        OnCpu {
            total_ns: self.run_ns.saturating_sub(before.run_ns),
            user_ns: ticks_ns(user.saturating_sub(guest)),
            system_ns: ticks_ns(system),
            guest_ns: (!emulated).then(|| ticks_ns(guest)),
        }
    }

    /// Time off a CPU since `before`; the rest of it comes from BPF.
    pub(super) fn off_cpu(&self, before: &Self) -> OffCpu {
        let (now, then) = (&self.switches, &before.switches);
        OffCpu {
            run_delay_ns: self.wait_ns.saturating_sub(before.wait_ns),
            voluntary_switches: now.voluntary.saturating_sub(then.voluntary),
            involuntary_switches: now.involuntary.saturating_sub(then.involuntary),
            ..OffCpu::default()
        }
    }

    /// Moves between CPUs since `before`.
    pub(super) fn migrations_since(&self, before: &Self) -> Option<u64> {
        Some(
            self.migrations?
                .saturating_sub(before.migrations.unwrap_or(0)),
        )
    }
}

fn ticks_ns(ticks: u64) -> u64 {
    ticks * NS_PER_SECOND / rustix::param::clock_ticks_per_second().max(1)
}
