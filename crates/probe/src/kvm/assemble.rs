//! An account from what was read.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::classes;
use super::counts::Counts;
use super::threads::{Reading, Threads};
use crate::proc;
use crate::vm::{Role, Vm};
use tare_account::{
    Cost, CostBasis, ExitCount, ExitKind, Halts, Histogram, OnCpu, Preemptor, Step, ThreadAccount,
    Vcpu, Wakeups,
};

/// Longest time that an emulating KVM's exit to user space is taken to cost: the
/// rest of the thread's time in user mode is the guest's ring 3.
const LONGEST_EMULATED_NS: u64 = 30_000;

/// A thread without a name runs a vCPU that spins only if it ran longer than this.
const BUSY_NS: u64 = 50_000_000;

/// Where the figures of one machine's threads come from.
pub(super) struct Parts<'a> {
    pub(super) vm: &'a Vm,
    pub(super) before: &'a Threads,
    pub(super) after: &'a Threads,
    pub(super) counts: &'a Counts,
    pub(super) emulated: bool,
    /// KVM's own counters by vCPU.
    pub(super) kvm: &'a BTreeMap<u32, BTreeMap<String, u64>>,
}

impl Parts<'_> {
    /// What each thread does: by its name, else vCPUs by doing what only vCPUs do.
    pub(super) fn roles(&self) -> BTreeMap<u32, Role> {
        let readings = self.after.readings.keys();
        let mut roles: BTreeMap<_, _> = readings
            .map(|tid| (*tid, self.after.role(self.vm, *tid)))
            .collect();
        if roles.values().any(|role| matches!(role, Role::Vcpu(_))) {
            return roles;
        }
        let mut nameless = self.nameless_vcpus(&roles);
        nameless.sort_unstable();
        for (tid, index) in nameless.iter().zip(&self.vm.vcpus) {
            roles.insert(*tid, Role::Vcpu(*index));
        }
        roles
    }

    /// Threads that made exits; then, as a guest that spins makes none, those that
    /// have no known role and ran most. vCPUs' threads start in their order.
    fn nameless_vcpus(&self, roles: &BTreeMap<u32, Role>) -> Vec<u32> {
        let exits = self.counts.iter().filter(|(key, _)| key.is_of_vcpu());
        let mut found: Vec<u32> = exits.map(|(key, _)| key.tid).collect();
        found.sort_unstable();
        found.dedup();
        let others = roles.iter().filter(|(_, role)| **role == Role::Other);
        let mut busy: Vec<(u64, u32)> = others
            .map(|(tid, _)| (self.run_ns(*tid), *tid))
            .filter(|(run_ns, tid)| *run_ns > BUSY_NS && !found.contains(tid))
            .collect();
        busy.sort_unstable_by_key(|(run_ns, _)| Reverse(*run_ns));
        let missing = self.vm.vcpus.len().saturating_sub(found.len());
        found.extend(busy.iter().take(missing).map(|(_, tid)| tid));
        found
    }

    fn run_ns(&self, tid: u32) -> u64 {
        let none = Reading::default();
        let before = self.before.readings.get(&tid).unwrap_or(&none);
        let after = self.after.readings.get(&tid);
        after.map_or(0, |after| after.on_cpu(before, self.emulated).total_ns)
    }

    pub(super) fn threads(&self, roles: &BTreeMap<u32, Role>) -> Vec<ThreadAccount> {
        let none = Reading::default();
        self.after
            .readings
            .iter()
            .map(|(tid, after)| {
                let before = self.before.readings.get(tid).unwrap_or(&none);
                let role = roles.get(tid).copied().unwrap_or(Role::Other);
                self.thread(*tid, role, before, after)
            })
            .collect()
    }

    fn thread(&self, tid: u32, role: Role, before: &Reading, after: &Reading) -> ThreadAccount {
        let counts = self.counts.of_thread(tid);
        let on_cpu = after.on_cpu(before, self.emulated);
        let mut off_cpu = after.off_cpu(before);
        off_cpu.run_delays = counts.histogram(classes::RUN_DELAY, |_| true);
        off_cpu.preempted_by = preemptors(&counts);
        let vcpu = match role {
            Role::Vcpu(index) => Some(self.vcpu(index, &counts, &on_cpu)),
            _ => None,
        };
        ThreadAccount {
            tid,
            name: after.stat.comm.clone(),
            role,
            on_cpu,
            off_cpu,
            migrations: after.migrations_since(before),
            allowed_cpus: after.switches.allowed_cpus.clone(),
            last_cpu: Some(after.stat.cpu),
            vcpu,
        }
    }

    fn vcpu(&self, index: u32, counts: &Counts, on_cpu: &OnCpu) -> Vcpu {
        let kvm = self.kvm.get(&index).cloned().unwrap_or_default();
        Vcpu {
            index,
            exits: self.exits(counts, on_cpu),
            halts: halts(counts, &kvm),
            timer_arming: counts.histogram(classes::ARM_INTERVAL, |_| true),
            wakeups: wakeups(counts),
            kvm,
        }
    }

    fn exits(&self, counts: &Counts, on_cpu: &OnCpu) -> Vec<ExitCount> {
        let returns = counts.sum(classes::USER).count;
        let mut each_ns = on_cpu.user_ns.checked_div(returns).unwrap_or(0);
        if self.emulated {
            each_ns = each_ns.min(LONGEST_EMULATED_NS);
        }
        let exits = counts.iter().filter_map(|(key, value)| {
            let kind = key.exit()?;
            let apportioned = matches!(kind, ExitKind::UserSpace { .. }).then_some(each_ns);
            let measured = value.ns > 0 && kind != ExitKind::Halt;
            let (total_ns, basis) = match measured {
                true => (value.ns, CostBasis::Measured),
                false => (
                    apportioned.unwrap_or(0) * value.count,
                    CostBasis::Apportioned,
                ),
            };
            Some(ExitCount {
                kind,
                count: value.count,
                cost: (total_ns > 0).then_some(Cost { total_ns, basis }),
            })
        });
        ExitCount::merged(&exits.collect::<Vec<_>>())
    }
}

fn preemptors(counts: &Counts) -> Vec<Preemptor> {
    let preempted = counts.class(classes::PREEMPTED);
    let mut all: Vec<_> = preempted
        .map(|(key, value)| {
            let pid = key.b as u32;
            let name = match key.a {
                // The scheduler took the CPU's own idle task: bandwidth ran out.
                0 => Some("(idle)".to_owned()),
                tid => proc::comm(&proc::thread(pid, tid)),
            };
            Preemptor {
                pid,
                tid: key.a,
                name: name.unwrap_or_else(|| "(ended)".to_owned()),
                count: value.count,
            }
        })
        .collect();
    all.sort_by_key(|preemptor| Reverse(preemptor.count));
    all
}

/// KVM's own counters come first; where there are none, times between trace
/// points tell.
fn halts(counts: &Counts, kvm: &BTreeMap<String, u64>) -> Halts {
    let success = counts.sum(classes::POLL_SUCCESS);
    let wasted = counts.sum(classes::POLL_WASTED);
    let or = |name: &str, otherwise: u64| kvm.get(name).copied().unwrap_or(otherwise);
    Halts {
        count: match counts.sum(classes::HALT).count {
            0 => or("halt_exits", 0),
            count => count,
        },
        valid: counts
            .class(classes::HALT)
            .filter(|(key, _)| key.a == 1)
            .map(|(_, value)| value.count)
            .sum(),
        waits: counts.histogram(classes::HALT_WAIT, |_| true),
        polls_attempted: or("halt_attempted_poll", success.count + wasted.count),
        polls_successful: or("halt_successful_poll", success.count),
        poll_success_ns: or("halt_poll_success_ns", success.ns),
        poll_wasted_ns: or("halt_poll_fail_ns", wasted.ns),
    }
}

fn wakeups(counts: &Counts) -> Wakeups {
    let mut steps: BTreeMap<Step, Histogram> = BTreeMap::new();
    for (key, value) in counts.class(classes::STEP) {
        if let Some(step) = key.step() {
            let histogram = steps.entry(step).or_default();
            histogram.add(key.bucket(), value.count, value.ns);
        }
    }
    Wakeups {
        steps: steps.into_iter().collect(),
    }
}
