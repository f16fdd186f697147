//! The threads of a machine, each with what it does.

use std::fs;
use std::time::Duration;

use super::{Role, Vm};
use crate::kvm::kernel_threads;
use crate::proc;

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
/// vCPUs are told by their names; where a monitor names none (QEMU without
/// `debug-threads`), by the descriptor that a thread is in `KVM_RUN` with.
pub fn threads(vm: &Vm) -> Vec<VmThread> {
    let mut found: Vec<VmThread> = proc::numbers(&proc::process(vm.pid).join("task"))
        .unwrap_or_default()
        .into_iter()
        .filter_map(|tid| VmThread::of(vm, vm.pid, tid))
        .collect();
    if !found.iter().any(|thread| thread.role.is_vcpu()) {
        for _ in 0..LOOKS {
            for thread in &mut found {
                if let Some(index) = runs_vcpu(thread.pid, thread.tid) {
                    thread.role = Role::Vcpu(index);
                }
            }
            let vcpus = found.iter().filter(|thread| thread.role.is_vcpu());
            if vcpus.count() >= vm.vcpus.len() {
                break;
            }
            std::thread::sleep(BETWEEN);
        }
    }
    let kernel = kernel_threads(vm.pid).into_iter();
    found.extend(kernel.filter_map(|tid| VmThread::of(vm, tid, tid)));
    found
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
