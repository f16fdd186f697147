//! The threads of a machine, each with what it does.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use super::{Role, Vm};
use crate::kvm::kernel_threads;
use crate::proc;

/// SIGUSR1 in a set of signals.
const SIGUSR1: u64 = 1 << 9;
/// `ioctl` and `KVM_RUN`, as `/proc/PID/syscall` shows them.
const IOCTL: &str = "16";
const KVM_RUN: &str = "0xae80";
/// Looks at a thread that is running just then, and time between two.
const LOOKS: usize = 20;
const BETWEEN: Duration = Duration::from_millis(2);

/// A thread of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmThread {
    /// Its process: the monitor's, or its own for a kernel thread.
    pub pid: u32,
    /// Thread ID.
    pub tid: u32,
    /// Name.
    pub name: String,
    /// What it does.
    pub role: Role,
    /// Start, clock ticks since boot.
    pub started_ticks: u64,
}

/// All threads of a machine now, kernel threads that work for it included.
///
/// Names identify vCPUs; where a monitor names none (QEMU without `debug-threads`),
/// see `nameless_vcpus`.
pub fn threads(vm: &Vm) -> Vec<VmThread> {
    let mut found: Vec<VmThread> = proc::numbers(&proc::process(vm.pid).join("task"))
        .unwrap_or_default()
        .into_iter()
        .filter_map(|tid| VmThread::of(vm, vm.pid, tid))
        .collect();
    if !found.iter().any(|thread| thread.role.is_vcpu()) {
        let tids: Vec<u32> = found.iter().map(|thread| thread.tid).collect();
        let vcpus = nameless_vcpus(vm, &tids);
        for thread in &mut found {
            if let Some(index) = vcpus.get(&thread.tid) {
                thread.role = Role::Vcpu(*index);
            }
        }
    }
    let kernel = kernel_threads()
        .remove(&vm.pid)
        .unwrap_or_default()
        .into_iter();
    found.extend(kernel.filter_map(|tid| VmThread::of(vm, tid, tid)));
    found
}

/// The vCPUs among these threads of a machine, by thread ID.
///
/// QEMU unblocks SIGUSR1, its kick, in vCPU threads only (`kvm_init_cpu_signals`), and
/// starts them in the order of their vCPUs: this also finds one that never leaves its
/// guest. In another monitor the descriptor that a thread is in `KVM_RUN` with names
/// its vCPU, while it is there.
pub(crate) fn nameless_vcpus(vm: &Vm, tids: &[u32]) -> BTreeMap<u32, u32> {
    let kicked: Vec<u32> = tids
        .iter()
        .copied()
        .filter(|tid| *tid != vm.pid && takes_kicks(vm.pid, *tid))
        .collect();
    if kicked.len() == vm.vcpus.len() {
        return kicked.into_iter().zip(vm.vcpus.iter().copied()).collect();
    }
    let mut found = BTreeMap::new();
    for _ in 0..LOOKS {
        let seen = tids.iter().copied();
        found.extend(seen.filter_map(|tid| Some((tid, runs_vcpu(vm.pid, tid)?))));
        if found.len() >= vm.vcpus.len() {
            break;
        }
        std::thread::sleep(BETWEEN);
    }
    found
}

/// Whether SIGUSR1 may interrupt a thread.
fn takes_kicks(pid: u32, tid: u32) -> bool {
    let status = fs::read_to_string(proc::thread(pid, tid).join("status"));
    status.is_ok_and(|status| blocked_signals(&status).is_some_and(|set| set & SIGUSR1 == 0))
}

/// The set of signals that a thread blocks, of its `status`.
fn blocked_signals(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("SigBlk:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

impl VmThread {
    fn of(vm: &Vm, pid: u32, tid: u32) -> Option<Self> {
        let stat = proc::stat(&proc::thread(pid, tid))?;
        Some(Self {
            pid,
            tid,
            role: Role::of(vm.monitor, vm.pid, tid, &stat.comm),
            name: stat.comm,
            started_ticks: stat.started_ticks,
        })
    }
}

/// The vCPU that a thread is running, if it is in the call just now.
fn runs_vcpu(pid: u32, tid: u32) -> Option<u32> {
    let folder = proc::thread(pid, tid);
    let descriptor = in_kvm_run(&fs::read_to_string(folder.join("syscall")).ok()?)?;
    let link = fs::read_link(folder.join("fd").join(descriptor.to_string())).ok()?;
    link.to_str()?
        .strip_prefix("anon_inode:kvm-vcpu:")?
        .parse()
        .ok()
}

/// The descriptor of a `KVM_RUN` in a line of `/proc/PID/syscall`.
fn in_kvm_run(line: &str) -> Option<u32> {
    let mut words = line.split_whitespace();
    let (number, descriptor, request) = (words.next()?, words.next()?, words.next()?);
    (number == IOCTL && request == KVM_RUN).then_some(())?;
    u32::from_str_radix(descriptor.strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_vcpu_thread_of_qemu_leaves_its_kick_unblocked() {
        let sigusr1 = |set: &str| {
            let status = format!("Threads:\t4\nSigBlk:\t{set}\nSigIgn:\t0\n");
            blocked_signals(&status).unwrap() & SIGUSR1
        };
        // QEMU 7.2: a vCPU, the main loop, the RCU thread.
        assert_eq!(sigusr1("fffffffe7ffbf837"), 0);
        assert_ne!(sigusr1("0000000010002240"), 0);
        assert_ne!(sigusr1("fffffffe7ffbfa77"), 0);
        assert_eq!(blocked_signals("SigBlk:\tx"), None);
    }

    #[test]
    fn a_thread_in_kvm_run_names_its_vcpu_s_descriptor() {
        let line = "16 0x1d 0xae80 0x0 0x0 0x0 0x0 0x7f3c8c9fe2a8 0x7f3c97b0a5f7\n";
        assert_eq!(in_kvm_run(line), Some(29));
        for other in [
            "running\n",
            "",
            "16 0x1d 0xae41 0x0",
            "7 0x1d 0xae80",
            "16 x 0xae80",
        ] {
            assert_eq!(in_kvm_run(other), None, "{other:?}");
        }
    }
}
