//! The local APIC of each CPU, by x2APIC registers where there are some, else
//! by memory (Intel SDM vol. 3A, chapter 11). Ends of interrupts cost an exit;
//! with KVM's paravirtual flag most of them are saved (kernel
//! `Documentation/virt/kvm/x86/msr.rst`, MSR_KVM_PV_EOI_EN).

#![allow(unsafe_code)]

pub(crate) mod ioapic;
mod registers;
pub(crate) mod timed;

use core::sync::atomic::{AtomicBool, Ordering};

use x86_64::instructions::port::Port;
use x86_64::registers::model_specific::Msr;

use crate::acpi::Tables;
use crate::clock::count::Count;
use crate::cpuid;
use crate::percpu::{self, Cpu};
use crate::ring::{self, kvm_register};
use crate::trap::irq;
use registers::{
    CURRENT_COUNT, DIVIDE, EOI, IN_SERVICE, INITIAL_COUNT, LVT_LINT0, LVT_LINT1, LVT_TIMER,
    SPURIOUS_VECTOR, TASK_PRIORITY, read, write,
};

const MSR_KVM_PV_EOI_EN: u32 = 0x4b56_4d04;
const IA32_TSC_DEADLINE: u32 = 0x6e0;
/// Turns that a CPU waits for its own interrupt.
const SELF_TRIES: u32 = 10_000_000;
const MASKED: u32 = 1 << 16;
const TSC_DEADLINE: u32 = 2 << 17;
const NMI: u32 = 4 << 8;
const ENABLED: u32 = 1 << 8;
const DIVIDE_BY_1: u32 = 0b1011;
const DIVIDE_BY_128: u32 = 0b1010;

const ASSERT: u32 = 1 << 14;
/// The wake-up interrupt, fixed, to a physical destination.
pub(crate) const WAKE_COMMAND: u32 = irq::WAKE as u32 | ASSERT;
const LOGICAL: u32 = 1 << 11;
/// INIT and start-up to all CPUs but this one.
const OTHERS: u32 = 3 << 18;
const INIT: u32 = (5 << 8) | (1 << 14);
const START_UP: u32 = (6 << 8) | (1 << 14);

/// Switches this machine's interrupt controllers on, on the first CPU.
pub(crate) fn init(tables: &Tables) {
    if tables.has_pic {
        mask_pic();
    }
    ioapic::init(&tables.ioapics);
    registers::choose(cpuid::has_x2apic());
    init_further();
}

/// Switches this CPU's local APIC on.
pub(crate) fn init_further() {
    registers::enable();
    // First: as long as the APIC is disabled by software, every entry of its
    // local vector table stays masked (SDM 11.4.7.2).
    write(SPURIOUS_VECTOR, ENABLED | u32::from(irq::SPURIOUS));
    write(TASK_PRIORITY, 0);
    write(LVT_LINT0, MASKED);
    write(LVT_LINT1, NMI);
    if cpuid::has_tsc_deadline() {
        write(LVT_TIMER, TSC_DEADLINE | u32::from(irq::TIMER));
        // With memory-mapped registers the mode must be in effect before the
        // deadline is written (SDM 11.5.4.1).
        core::sync::atomic::fence(Ordering::SeqCst);
    } else {
        write(DIVIDE, DIVIDE_BY_1);
        write(LVT_TIMER, u32::from(irq::TIMER));
    }
    if cpuid::has_pv_eoi() {
        let flag = core::ptr::from_ref(&percpu::current().pv_eoi).addr() as u64;
        // SAFETY: the flag lives forever at its physical address.
        unsafe { kvm_register::write(MSR_KVM_PV_EOI_EN, flag | 1) };
    }
}

/// KVM's registers that this module writes, and the bytes that KVM writes behind
/// them (`crate::ring::service`).
pub(crate) const SHARED_REGISTERS: [(u32, u64); 1] = [(MSR_KVM_PV_EOI_EN, 4)];

/// Whether KVM ends interrupts when it delivers them, as one that emulates ring 0
/// does.
static ENDS_BY_ITSELF: AtomicBool = AtomicBool::new(false);

/// Finds out whether interrupts have to be ended: sends one to this CPU while
/// handlers are off, and looks whether it is in service. Ring 3 only, where an end
/// costs much and the registers can be read in memory.
pub(crate) fn find_end_of_interrupt() {
    if !ring::is_user() || percpu::index() != 0 {
        return;
    }
    let pending = &percpu::current().pending;
    send_wake(cpuid::first_apic_id());
    for _ in 0..SELF_TRIES {
        if pending.load(Ordering::Relaxed) & 1 << (irq::WAKE - 32) != 0 {
            let in_service = read(IN_SERVICE + u32::from(irq::WAKE) / 32);
            let ends = in_service & 1 << (irq::WAKE % 32) == 0;
            ENDS_BY_ITSELF.store(ends, Ordering::Relaxed);
            return;
        }
        core::hint::spin_loop();
    }
}

/// Whether KVM has this CPU's flag for ends of interrupts.
pub(crate) fn pv_eoi_is_enabled() -> bool {
    // SAFETY: KVM has the register where it offers the flag.
    cpuid::has_pv_eoi() && unsafe { kvm_register::read(MSR_KVM_PV_EOI_EN) } & 1 != 0
}

/// Ends the interrupt that is being handled.
#[inline]
pub(crate) fn end_of_interrupt(cpu: &Cpu) {
    // Only the hypervisor writes the flag, and only while this CPU is stopped.
    if ENDS_BY_ITSELF.load(Ordering::Relaxed) {
        cpu.ends_saved.set(cpu.ends_saved.get() + 1);
    } else if cpu.pv_eoi.load(Ordering::Relaxed) & 1 != 0 {
        cpu.pv_eoi.store(0, Ordering::Relaxed);
        cpu.ends_saved.set(cpu.ends_saved.get() + 1);
    } else {
        write(EOI, 0);
        cpu.ends_written.set(cpu.ends_written.get() + 1);
    }
}

/// Sends the wake-up interrupt to the CPU with this APIC ID.
pub(crate) fn send_wake(apic_id: u32) {
    registers::command(apic_id, WAKE_COMMAND);
}

/// Sends `vector`, fixed, to the CPU with this APIC ID.
pub(crate) fn send_vector(apic_id: u32, vector: irq::Vector) {
    registers::command(apic_id, u32::from(vector.0) | ASSERT);
}

/// Sends the wake-up interrupt to `members` of a cluster of x2APICs.
pub(crate) fn send_wake_to_cluster(cluster: u32, members: u32) {
    registers::command(cluster << 16 | members, WAKE_COMMAND | LOGICAL);
}

/// Sends the interrupt whose handler reads the counter first; gives the
/// counter before and after the command.
pub(crate) fn send_stamp(apic_id: u32) -> (u64, u64) {
    registers::timed_command(apic_id, u32::from(irq::STAMP) | (1 << 14))
}

/// Starts all other CPUs at the trampoline page.
pub(crate) fn start_others() {
    let page = (crate::boot::TRAMPOLINE >> 12) as u32;
    registers::command(0, OTHERS | INIT);
    registers::command(0, OTHERS | START_UP | page);
}

/// Starts one CPU at the trampoline page, again.
pub(crate) fn start_one(apic_id: u32) {
    let page = (crate::boot::TRAMPOLINE >> 12) as u32;
    registers::command(apic_id, START_UP | page);
}

/// Fires the timer at this value of the time stamp counter.
#[inline]
pub(crate) fn arm_tsc(deadline: u64) {
    // SAFETY: only raises the timer's interrupt.
    unsafe { Msr::new(IA32_TSC_DEADLINE).write(deadline) };
}

/// Fires the timer after a count. What a tick stands for is written only where it changes.
pub(crate) fn arm_count(cpu: &Cpu, count: Count) {
    let (ticks, is_far) = match count {
        Count::Near(ticks) => (ticks, false),
        Count::Far(ticks) => (ticks, true),
    };
    if cpu.timer_is_far.replace(is_far) != is_far {
        // It is not running, or starts anew with the next write.
        write(DIVIDE, if is_far { DIVIDE_BY_128 } else { DIVIDE_BY_1 });
    }
    write(INITIAL_COUNT, ticks);
}

/// Fires the timer after this many ticks of the APIC's clock.
pub(crate) fn arm_ticks(ticks: u32) {
    write(INITIAL_COUNT, ticks);
}

/// Ticks left of the running count.
pub(crate) fn ticks_left() -> u32 {
    read(CURRENT_COUNT)
}

/// Keeps the timer from raising an interrupt while it is measured.
pub(crate) fn mask_timer() {
    write(DIVIDE, DIVIDE_BY_1);
    write(LVT_TIMER, MASKED | u32::from(irq::TIMER));
}

/// Undoes [`mask_timer`].
pub(crate) fn unmask_timer() {
    write(INITIAL_COUNT, 0);
    write(LVT_TIMER, u32::from(irq::TIMER));
}

fn mask_pic() {
    for mask in [0x21, 0xa1] {
        // SAFETY: 1. These are the mask registers of the two 8259s; without the chips a write is
        //    ignored. 2. It stops interrupts that no handler of this crate expects: they come
        //    by the local APIC (`irq`). 3. It changes no memory.
        unsafe { Port::<u8>::new(mask).write(0xff) };
    }
}
