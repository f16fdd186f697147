//! The local APIC of each CPU, by x2APIC registers where there are some, else
//! by memory (Intel SDM vol. 3A, chapter 11).
//!
//! | file | what |
//! |---|---|
//! | `registers` | the registers, behind either interface |
//! | `eoi` | ends of interrupts |
//! | `command` | interrupts to other CPUs |
//! | `timed` | registers as they are measured |
//! | `ioapic` | lines of devices |

#![allow(unsafe_code)]

mod command;
pub(crate) mod eoi;
pub(crate) mod ioapic;
mod registers;
pub(crate) mod timed;

use core::sync::atomic::Ordering;

use tare_abi::layout::AP_TRAMPOLINE;
use x86_64::instructions::port::Port;
use x86_64::registers::model_specific::Msr;

use crate::acpi::Tables;
use crate::clock::count::Count;
use crate::cpuid;
use crate::percpu::{self, Cpu};
use crate::ring;
use crate::trap::vector::{self, Vector};
use registers::{
    CURRENT_COUNT, DIVIDE, IN_SERVICE, INITIAL_COUNT, LVT_LINT0, LVT_LINT1, LVT_TIMER,
    SPURIOUS_VECTOR, TASK_PRIORITY, read, write,
};

const IA32_TSC_DEADLINE: u32 = 0x6e0;
/// Iterations for which a CPU waits for its own interrupt.
const SELF_TRIES: u32 = 10_000_000;
const MASKED: u32 = 1 << 16;
const TSC_DEADLINE: u32 = 2 << 17;
const NMI: u32 = 4 << 8;
/// Delivery mode ExtINT: the 8259s give the vector.
const EXTERNAL: u32 = 7 << 8;
/// Commands and masks of the two 8259s.
const PIC_PORTS: [[u16; 2]; 2] = [[0x20, 0x21], [0xa0, 0xa1]];
const PIC_LINES: u8 = 8;
/// Where the second one is connected to the first.
const SECOND_PIC_LINE: u8 = 2;
const ENABLED: u32 = 1 << 8;
const DIVIDE_BY_1: u32 = 0b1011;
const DIVIDE_BY_128: u32 = 0b1010;

const ASSERT: u32 = 1 << 14;
/// The wake-up interrupt, fixed, to a physical destination.
pub(crate) const WAKE_COMMAND: u32 = vector::WAKE as u32 | ASSERT;
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
    write(SPURIOUS_VECTOR, ENABLED | u32::from(vector::SPURIOUS));
    write(TASK_PRIORITY, 0);
    write(LVT_LINT0, MASKED);
    write(LVT_LINT1, NMI);
    if cpuid::has_tsc_deadline() {
        write(LVT_TIMER, TSC_DEADLINE | u32::from(vector::TIMER));
        // With memory-mapped registers the mode must be in effect before the
        // deadline is written (SDM 11.5.4.1).
        core::sync::atomic::fence(Ordering::SeqCst);
    } else {
        write(DIVIDE, DIVIDE_BY_1);
        write(LVT_TIMER, u32::from(vector::TIMER));
    }
    eoi::share_flag();
}

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
        if pending.load(Ordering::Relaxed) & 1 << (vector::WAKE - 32) != 0 {
            let in_service = read(IN_SERVICE + u32::from(vector::WAKE) / 32);
            let ends = in_service & 1 << (vector::WAKE % 32) == 0;
            eoi::set_ends_by_itself(ends);
            return;
        }
        core::hint::spin_loop();
    }
}

/// Sends the wake-up interrupt to the CPU with this APIC ID.
pub(crate) fn send_wake(apic_id: u32) {
    command::send(apic_id, WAKE_COMMAND);
}

/// Sends `vector`, fixed, to the CPU with this APIC ID.
pub(crate) fn send_vector(apic_id: u32, vector: Vector) {
    command::send(apic_id, u32::from(vector.0) | ASSERT);
}

/// Sends the wake-up interrupt to `members` of a cluster of x2APICs.
pub(crate) fn send_wake_to_cluster(cluster: u32, members: u32) {
    command::send(cluster << 16 | members, WAKE_COMMAND | LOGICAL);
}

/// Sends the interrupt whose handler reads the counter first; gives the
/// counter before and after the command.
pub(crate) fn send_stamp(apic_id: u32) -> (u64, u64) {
    command::send_timed(apic_id, u32::from(vector::STAMP) | (1 << 14))
}

/// Starts all other CPUs at the trampoline page.
pub(crate) fn start_others() {
    let page = (AP_TRAMPOLINE >> 12) as u32;
    command::send(0, OTHERS | INIT);
    command::send(0, OTHERS | START_UP | page);
}

/// Starts one CPU at the trampoline page, again.
pub(crate) fn start_one(apic_id: u32) {
    let page = (AP_TRAMPOLINE >> 12) as u32;
    command::send(apic_id, START_UP | page);
}

/// Fires the timer at this value of the time stamp counter.
#[inline]
pub(crate) fn arm_tsc(deadline: u64) {
    // SAFETY: 1. CPUID offers the register, and this is ring 0: `clock::timer_takes_deadlines`
    //    chooses it. 2. All that the write does is to raise the timer's interrupt, which `irq`
    //    handles.
    unsafe { Msr::new(IA32_TSC_DEADLINE).write(deadline) };
}

/// Fires the timer after a count. The divider is written only when it changes.
pub(crate) fn arm_count(cpu: &Cpu, count: Count) {
    let (ticks, is_far) = match count {
        Count::Near(ticks) => (ticks, false),
        Count::Far(ticks) => (ticks, true),
    };
    if cpu.timer_is_far.replace(is_far) != is_far {
        // The timer is stopped, or the next write restarts it.
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
    write(LVT_TIMER, MASKED | u32::from(vector::TIMER));
}

/// Undoes [`mask_timer`].
pub(crate) fn unmask_timer() {
    write(INITIAL_COUNT, 0);
    write(LVT_TIMER, u32::from(vector::TIMER));
}

/// Takes this line of the two 8259s from now on, whose 16 lines have vectors from `base`, a multiple
/// of 8. Whoever handles one ends it there ([`end_of_pic_interrupt`]).
pub(crate) fn accept_from_pics(line: u8, base: u8) {
    let lines = if line < PIC_LINES {
        [1 << line, 0]
    } else {
        [1 << SECOND_PIC_LINE, 1 << (line - PIC_LINES)]
    };
    initialise_pic(PIC_PORTS[1], base + PIC_LINES, SECOND_PIC_LINE, lines[1]);
    initialise_pic(PIC_PORTS[0], base, 1 << SECOND_PIC_LINE, lines[0]);
    write(LVT_LINT0, EXTERNAL);
}

/// Gives the lines of an 8259 vectors from `base`, and unmasks `lines`.
fn initialise_pic([command, mask]: [u16; 2], base: u8, wiring: u8, lines: u8) {
    const INITIALISE: u8 = 0x11;
    const I8086: u8 = 1;
    const ALL: u8 = 0xff;
    let words = [
        (command, INITIALISE),
        (mask, base),
        (mask, wiring),
        (mask, I8086),
        // Initialising forgets a tick that came before, and KVM's PIT waits for its end. KVM
        // lets it go on where its line changes from masked to unmasked (pit_mask_notifer in
        // arch/x86/kvm/i8254.c); initialising leaves all lines unmasked.
        (mask, ALL),
        (mask, !lines),
    ];
    for (port, word) in words {
        // SAFETY: 1. These are the ports of an 8259; without the chip a write is ignored.
        //    2. Its one line has a handler, or is the second chip's. 3. It changes no memory.
        unsafe { Port::<u8>::new(port).write(word) };
    }
}

/// The interrupt of this line of the 8259s has been handled.
pub(crate) fn end_of_pic_interrupt(line: u8) {
    const END: u8 = 0x20;
    let [first, second] = PIC_PORTS.map(|[command, _]| command);
    if line >= PIC_LINES {
        // SAFETY: 1. The port is the second 8259's; without the chip a write is ignored. 2. The
        //    command ends one interrupt there and changes no memory.
        unsafe { Port::<u8>::new(second).write(END) };
    }
    // SAFETY: 1. The port is the first 8259's; without the chip a write is ignored. 2. The command
    //    ends one interrupt there and changes no memory.
    unsafe { Port::<u8>::new(first).write(END) };
}

fn mask_pic() {
    for [_, mask] in PIC_PORTS {
        // SAFETY: 1. These are the mask registers of the two 8259s; without the chips a write is
        //    ignored. 2. It stops interrupts that no handler of this crate expects: they come
        //    by the local APIC (`irq`). 3. It changes no memory.
        unsafe { Port::<u8>::new(mask).write(0xff) };
    }
}
