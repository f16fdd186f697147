//! Interrupts between CPUs: one command for each CPU that is woken, or one for
//! several where the machine has a way.
//!
//! A command costs the sender an exit (unless the CPU posts interrupts itself),
//! so one command should wake several CPUs. x2APIC's logical destinations name
//! up to 16 CPUs of a cluster at once (Intel SDM vol. 3A, 11.12.10): all that an
//! image uses, on every hypervisor. KVM's own call, `KVM_HC_SEND_IPI`, names 128
//! by one bitmap (kernel `Documentation/virt/kvm/x86/hypercalls.rst`): for what
//! lies in several clusters, or has no x2APIC. Each costs one exit; `vmexit`
//! measures all three.

#![allow(unsafe_code)]

use core::arch::asm;
use core::sync::atomic::{AtomicU8, Ordering};

use crate::cpu::CpuSet;
use crate::ring::{self, service};
use crate::trap::vector::Vector;
use crate::{apic, cpuid, smp};

/// CPUs of a cluster.
const CLUSTER: u32 = 16;
/// `KVM_HC_SEND_IPI`.
const SEND_IPI: u64 = 10;
/// CPUs that one call names.
const CALLED: u32 = 128;

/// How several CPUs are woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Several {
    /// A command for each of them.
    Each,
    /// One command to the x2APIC's cluster that they are in.
    Cluster,
    /// One call of KVM.
    Hypercall,
}

static SEVERAL: AtomicU8 = AtomicU8::new(0);

/// Ends the halt of `cpu`. Costs an exit here and an interrupt there: send it
/// only to a CPU that has announced its halt.
pub fn wake(cpu: usize) {
    apic::send_wake(smp::apic_id(cpu));
}

/// Interrupts `cpu` with `vector`. Raised again before its handler has begun, it counts
/// as one.
pub fn raise(cpu: usize, vector: Vector) {
    apic::send_vector(smp::apic_id(cpu), vector);
}

/// Ends the halts of `cpus`; gives how many commands that took.
pub fn wake_all(cpus: CpuSet) -> u32 {
    match cpus.len() {
        0 => 0,
        1 => wake_by(Several::Each, cpus),
        _ => wake_by(several(), cpus),
    }
}

/// How several CPUs are woken on this machine.
pub fn several() -> Several {
    match SEVERAL.load(Ordering::Relaxed) {
        1 => Several::Cluster,
        2 => Several::Hypercall,
        _ => Several::Each,
    }
}

/// Whether the machine has a way to wake `cpus`.
pub(crate) fn is_possible(several: Several, cpus: CpuSet) -> bool {
    let ids = || cpus.iter().map(smp::apic_id);
    let (low, high) = (ids().min().unwrap_or(0), ids().max().unwrap_or(0));
    match several {
        Several::Each => true,
        Several::Cluster => cpuid::has_x2apic() && low / CLUSTER == high / CLUSTER,
        Several::Hypercall => cpuid::has_pv_send_ipi() && high - low < CALLED,
    }
}

/// Ends the halts of `cpus` in this way, which must be possible.
pub(crate) fn wake_by(several: Several, cpus: CpuSet) -> u32 {
    let ids = || cpus.iter().map(smp::apic_id);
    match several {
        Several::Each => {
            ids().for_each(apic::send_wake);
            return cpus.len();
        }
        Several::Cluster => {
            let cluster = ids().next().unwrap_or(0) / CLUSTER;
            let members = ids().fold(0, |set, id| set | 1 << (id % CLUSTER));
            apic::send_wake_to_cluster(cluster, members);
        }
        Several::Hypercall => {
            let low = ids().min().unwrap_or(0);
            let set = ids().fold(0_u128, |set, id| set | 1 << ((id - low) % CALLED));
            call(set, low);
        }
    }
    1
}

/// Chooses the way for all CPUs of the machine.
pub(crate) fn init() {
    let mut all = CpuSet::new();
    (0..smp::count()).for_each(|cpu| all.insert(cpu));
    if all.len() < 3 {
        // Two CPUs at most: a command never goes to several.
        return;
    }
    let choice = match () {
        () if is_possible(Several::Cluster, all) => 1,
        () if is_possible(Several::Hypercall, all) => 2,
        () => 0,
    };
    SEVERAL.store(choice, Ordering::Relaxed);
}

fn call(set: u128, low: u32) {
    if ring::is_user() {
        // Sixty-four CPUs are more than an image has.
        service::call(service::SEND_IPI, [set as u64, u64::from(low), 0]);
    } else {
        call_here(set, low);
    }
}

/// KVM's hypercall itself, in ring 0.
pub(crate) fn call_here(set: u128, low: u32) {
    let command = u64::from(apic::WAKE_COMMAND);
    let (first, second) = (set as u64, (set >> 64) as u64);
    if cpuid::has_vmmcall() {
        // SAFETY: 1. The CPU has SVM, and so this instruction. 2. The call sends an interrupt
        //    that this image handles, and gives a result in RAX. 3. RBX, which holds an
        //    argument, is the compiler's: it is exchanged before and after.
        unsafe {
            asm!("xchg rbx, {0}", "vmmcall", "xchg rbx, {0}", inout(reg) first => _,
                inout("rax") SEND_IPI => _, in("rcx") second, in("rdx") u64::from(low),
                in("rsi") command, options(nostack));
        }
    } else {
        // SAFETY: 1. The CPU has no SVM, and KVM takes VMCALL on the others. 2. The call sends an
        //    interrupt that this image handles, and gives a result in RAX. 3. RBX, which holds an
        //    argument, is the compiler's: it is exchanged before and after.
        unsafe {
            asm!("xchg rbx, {0}", "vmcall", "xchg rbx, {0}", inout(reg) first => _,
                inout("rax") SEND_IPI => _, in("rcx") second, in("rdx") u64::from(low),
                in("rsi") command, options(nostack));
        }
    }
}
