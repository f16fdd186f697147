//! An account from what was read.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::classes;
use super::counts::Counts;
use super::threads::{Reading, Threads};
use crate::vm::{self, Role, Vm};
use tare_account::{
    Awake, Cost, CostBasis, ExitCount, ExitKind, Halts, Histogram, OnCpu, Preemptor, Step,
    ThreadAccount, Vcpu, Wakeups,
};

/// Longest time that an emulating KVM's exit to user space is taken to cost: the
/// rest of the thread's time in user mode is the guest's ring 3.
const LONGEST_EMULATED_NS: u64 = 30_000;

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
    /// The role of each thread, by its name; vCPUs without a name by what only their
    /// threads do: those are looked for again only where threads have come or gone
    /// (`nameless`).
    pub(super) fn roles(&self, nameless: &mut BTreeMap<u32, u32>) -> BTreeMap<u32, Role> {
        let readings = self.after.readings.keys();
        let mut roles: BTreeMap<_, _> = readings
            .map(|tid| (*tid, self.after.role(self.vm, *tid)))
            .collect();
        if roles.values().any(|role| role.is_vcpu()) {
            return roles;
        }
        let are_here = nameless.keys().all(|tid| roles.contains_key(tid));
        if nameless.len() != self.vm.vcpus.len() || !are_here {
            let tids: Vec<u32> = roles.keys().copied().collect();
            *nameless = vm::nameless_vcpus(self.vm, &tids);
        }
        let mut vcpus = nameless.clone();
        if vcpus.is_empty() {
            // The machine has ended: exits remain.
            let mut exiting: Vec<u32> = self
                .counts
                .iter()
                .filter_map(|(key, _)| key.vcpu())
                .collect();
            exiting.sort_unstable();
            exiting.dedup();
            vcpus = exiting
                .into_iter()
                .zip(self.vm.vcpus.iter().copied())
                .collect();
        }
        let vcpus = vcpus.into_iter();
        roles.extend(vcpus.map(|(tid, index)| (tid, Role::Vcpu(index))));
        roles
    }

    pub(super) fn threads(&self, roles: &BTreeMap<u32, Role>) -> Vec<ThreadAccount> {
        let none = Reading::default();
        let by_thread = self.counts.by_thread();
        let no_counts = Counts::default();
        self.after
            .readings
            .iter()
            .map(|(tid, after)| {
                let before = self.before.readings.get(tid).unwrap_or(&none);
                let role = roles.get(tid).copied().unwrap_or(Role::Other);
                let counts = by_thread.get(tid).unwrap_or(&no_counts);
                self.thread((*tid, role), before, after, counts)
            })
            .collect()
    }

    fn thread(
        &self,
        (tid, role): (u32, Role),
        before: &Reading,
        after: &Reading,
        counts: &Counts,
    ) -> ThreadAccount {
        let on_cpu = after.on_cpu(before, self.emulated);
        let mut off_cpu = after.off_cpu(before);
        off_cpu.run_delays = counts.histogram(classes::RUN_DELAY, |_| true);
        off_cpu.preempted_by = preemptors(counts);
        let vcpu = match role {
            Role::Vcpu(index) => Some(self.vcpu(index, counts, &on_cpu)),
            _ => None,
        };
        ThreadAccount {
            tid,
            name: self.after.name(tid),
            role,
            on_cpu,
            off_cpu,
            migrations: after.migrations_since(before),
            resources: after.resources(before),
            allowed_cpus: after.allowed_cpus.clone(),
            last_cpu: Some(after.cpu),
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
            awake: awake(counts),
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
            let (total_ns, basis) = if measured {
                (value.ns, CostBasis::Measured)
            } else {
                (
                    apportioned.unwrap_or(0) * value.count,
                    CostBasis::Apportioned,
                )
            };
            Some(ExitCount {
                kind,
                count: value.count,
                margin: value.margin,
                cost: (total_ns > 0).then_some(Cost { total_ns, basis }),
            })
        });
        ExitCount::merged(&exits.collect::<Vec<_>>())
    }
}

/// Processes that had the CPU, longest first; their names come later.
fn preemptors(counts: &Counts) -> Vec<Preemptor> {
    let mut by_pid: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for (key, value) in counts.class(classes::PREEMPTED) {
        by_pid.entry(key.b as u32).or_default().0 += value.count;
    }
    for (key, value) in counts.class(classes::TAKEN) {
        by_pid.entry(key.b as u32).or_default().1 += value.ns;
    }
    let mut all: Vec<_> = by_pid
        .into_iter()
        .map(|(pid, (count, ran_ns))| Preemptor {
            pid,
            process: None,
            machine: None,
            count,
            ran_ns,
        })
        .collect();
    all.sort_by_key(|preemptor| Reverse((preemptor.ran_ns, preemptor.count)));
    all
}

/// Time awake by vector, longest first.
fn awake(counts: &Counts) -> Vec<Awake> {
    let mut all: Vec<_> = counts
        .class(classes::AWAKE)
        .map(|(key, value)| Awake {
            vector: u8::try_from(key.a).ok().filter(|vector| *vector > 0),
            count: value.count,
            total_ns: value.ns,
        })
        .collect();
    all.sort_by_key(|awake| Reverse(awake.total_ns));
    all
}

/// KVM's own counters where it lends them, else times between trace points.
fn halts(counts: &Counts, kvm: &BTreeMap<String, u64>) -> Halts {
    let halts = counts.sum(classes::HALT);
    let success = counts.sum(classes::POLL_SUCCESS);
    let wasted = counts.sum(classes::POLL_WASTED);
    let or = |name: &str, otherwise: u64| kvm.get(name).copied().unwrap_or(otherwise);
    Halts {
        count: match halts.count {
            0 => or("halt_exits", 0),
            count => count,
        },
        margin: halts.margin,
        valid: counts
            .class(classes::HALT)
            .filter(|(key, _)| key.a == 1)
            .map(|(_, value)| value.count)
            .sum(),
        waits: counts.histogram(classes::HALT_WAIT, |_| true),
        polls_attempted: or("halt_attempted_poll", success.count + wasted.count),
        polls_successful: or("halt_successful_poll", success.count),
        polls_margin: match kvm.get("halt_attempted_poll") {
            Some(_) => Some(0),
            None => success.margin.zip(wasted.margin).map(|(a, b)| a + b),
        },
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
