//! Descriptor tables: one GDT and one IDT for all CPUs, a TSS for each. They lie in
//! ring 0's memory, as do the stacks on which ring 0 runs.
//! (Intel SDM vol. 3A, chapters 3.5, 6.10, 8.2 and 19.5.)

#![allow(unsafe_code)]

use core::cell::UnsafeCell;
use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, Ordering};

use x86_64::PrivilegeLevel;
use x86_64::VirtAddr;
use x86_64::instructions::tables;
use x86_64::structures::DescriptorTablePointer;
use x86_64::structures::gdt::SegmentSelector;

use super::entry;
use super::vector::GATES;
use crate::cpu::MAX;
use crate::gates::{Gate, callable, fill};
use crate::memory::layout::has_programs;
use crate::percpu;
use crate::ring::{Ring, gate};
use crate::user;

/// Exceptions run on their own stack: an overflowing stack has no room
/// for the frame of the page fault that it causes.
const FAULT_STACK_BYTES: usize = 12 * 1024;
const FAULT_STACK: u8 = 1;
/// Interrupts of an image in ring 3 use the lower part of the fault stack, since they may
/// find ring 0 on a program's stack (`crate::user`). Faults do not return to them.
const INTERRUPT_STACK: u8 = 2;
const INTERRUPT_STACK_BYTES: usize = 4096;
/// Gates run on this stack.
const RING_0_STACK_BYTES: usize = 4096;
/// Bytes of the I/O permission bitmap: a bit for each port.
const PORTS_BYTES: usize = 65536 / 8;

const CODE: u64 = 0x00af_9b00_0000_ffff;
const DATA: u64 = 0x00cf_9300_0000_ffff;
const USER_DATA: u64 = 0x00cf_f300_0000_ffff;
const USER_CODE: u64 = 0x00af_fb00_0000_ffff;
/// The first TSS's place in the GDT; each takes two entries.
const TSS_INDEX: usize = 5;
const GDT_ENTRIES: usize = TSS_INDEX + 2 * MAX;
/// Present, ring 0, available 64-bit TSS.
const TSS_KIND: u64 = 0x89 << 40;

/// Vectors of exceptions; interrupts have those above.
const EXCEPTIONS: usize = 32;
/// That of `int3`, which a program may execute.
const BREAKPOINT: usize = 3;

/// A task state segment (Intel SDM vol. 3A, figure 8-11).
#[derive(Clone, Copy)]
#[repr(C, packed(4))]
struct Task {
    reserved: u32,
    rsp: [u64; 3],
    reserved_1: u64,
    ist: [u64; 7],
    reserved_2: u64,
    reserved_3: u16,
    ports: u16,
}

#[derive(Clone, Copy)]
#[repr(C, align(128))]
struct Slot(Task);

/// Tables and stacks of all CPUs. The task state segments share one bitmap that
/// allows every port: an image in ring 3 may use any port.
#[repr(C, align(4096))]
struct Tables {
    idt: [Gate; GATES],
    gdt: [u64; GDT_ENTRIES],
    tasks: [Slot; MAX],
    ports: [u8; PORTS_BYTES + 1],
}

#[repr(C, align(4096))]
struct Stacks {
    ring_0: [[u8; RING_0_STACK_BYTES]; MAX],
    fault: [[u8; FAULT_STACK_BYTES]; MAX],
}

struct Shared<T>(UnsafeCell<T>);
// SAFETY: 1. `init` alone writes the tables, in ring 0: the first CPU the common ones, before the
//    others start (`fill_once`), then each CPU its own entries. 2. A stack belongs to one CPU, and
//    only the processor's entry code uses it. 3. No reference to either lives longer than `init`.
unsafe impl<T> Sync for Shared<T> {}

const NO_TASK: Slot = Slot(Task {
    reserved: 0,
    rsp: [0; 3],
    reserved_1: 0,
    ist: [0; 7],
    reserved_2: 0,
    reserved_3: 0,
    ports: 0,
});

#[unsafe(link_section = ".bss.ring0.tables")]
static TABLES: Shared<Tables> = Shared(UnsafeCell::new(Tables {
    idt: [[0; 2]; GATES],
    gdt: [0; GDT_ENTRIES],
    tasks: [NO_TASK; MAX],
    ports: [0; PORTS_BYTES + 1],
}));

#[unsafe(link_section = ".bss.ring0.stacks")]
static STACKS: Shared<Stacks> = Shared(UnsafeCell::new(Stacks {
    ring_0: [[0; RING_0_STACK_BYTES]; MAX],
    fault: [[0; FAULT_STACK_BYTES]; MAX],
}));

/// Loads this CPU's descriptor tables, for an image in `ring`.
pub(crate) fn init(ring: Ring) {
    let cpu = percpu::index() % MAX;
    fill_once(ring);
    let (tables, stacks) = (TABLES.0.get(), STACKS.0.get());
    let base = tables.addr();
    let [ports, gdt, idt] = [
        offset_of!(Tables, ports),
        offset_of!(Tables, gdt),
        offset_of!(Tables, idt),
    ]
    .map(|offset| base + offset);
    let fault_stack = stacks.addr() + offset_of!(Stacks, fault) + cpu * FAULT_STACK_BYTES;
    let ring_0_stack = stacks.addr() + offset_of!(Stacks, ring_0) + cpu * RING_0_STACK_BYTES;
    // SAFETY: 1. The index is below MAX, and each CPU has its own. 2. No other reference to the
    //    entry exists: `init` runs once on each CPU, and `fill_once` has returned. 3. In ring 0,
    //    where the tables can be written.
    let task = unsafe { &mut (*tables).tasks[cpu].0 };
    let task_at = (&raw const *task).addr();
    task.rsp[0] = (ring_0_stack + RING_0_STACK_BYTES) as u64;
    task.ist[usize::from(FAULT_STACK) - 1] = (fault_stack + FAULT_STACK_BYTES) as u64;
    task.ist[usize::from(INTERRUPT_STACK) - 1] = (fault_stack + INTERRUPT_STACK_BYTES) as u64;
    task.ports = (ports - task_at) as u16;
    let limit = match ring {
        // No bitmap within the limit: ring 3 has no ports (Intel SDM vol. 1, 19.5.2).
        Ring::Zero => size_of::<Task>() - 1,
        Ring::Three => ports + PORTS_BYTES - task_at,
    };
    let index = TSS_INDEX + 2 * cpu;
    let (low, high) = task_descriptor(task_at as u64, limit as u64);
    for (entry, value) in [(index, low), (index + 1, high)] {
        // SAFETY: 1. The index is below GDT_ENTRIES: `cpu` is below MAX. 2. The two entries are
        //    this CPU's alone, and no reference to them exists. 3. In ring 0, where the tables can
        //    be written.
        unsafe { (*tables).gdt[entry] = value };
    }
    // SAFETY: 1. The table is static. 2. Its first entries are those of `fill_once`, with
    //    the code segment that runs.
    unsafe { tables::lgdt(&pointer(gdt, size_of::<[u64; GDT_ENTRIES]>())) };
    // SAFETY: 1. The entry was written above and describes this CPU's task state. 2. It is loaded
    //    once: the processor marks it as busy.
    unsafe { tables::load_tss(SegmentSelector::new(index as u16, PrivilegeLevel::Ring0)) };
    // SAFETY: 1. The table is static. 2. Its gates lead to entry code, by a code segment of the GDT
    //    that is loaded (`fill_once`). 3. Their stacks are those of the task state that is loaded.
    unsafe { tables::lidt(&pointer(idt, size_of::<[Gate; GATES]>())) };
}

fn task_descriptor(base: u64, limit: u64) -> (u64, u64) {
    let low = limit & 0xffff
        | (base & 0xff_ffff) << 16
        | TSS_KIND
        | (limit >> 16 & 0xf) << 48
        | (base >> 24 & 0xff) << 56;
    (low, base >> 32)
}

fn fill_once(ring: Ring) {
    static FILLED: AtomicBool = AtomicBool::new(false);
    if FILLED.swap(true, Ordering::Relaxed) {
        return;
    }
    // SAFETY: 1. FILLED lets one caller through: the first CPU, before the others start and before
    //    any interrupt. 2. No other reference to the tables exists yet. 3. In ring 0, where they
    //    can be written.
    let tables = unsafe { &mut *TABLES.0.get() };
    tables.gdt[1..TSS_INDEX].copy_from_slice(&[CODE, DATA, USER_DATA, USER_CODE]);
    // The processor reads a byte beyond the bitmap, which must be all ones.
    tables.ports[PORTS_BYTES] = 0xff;
    let (exceptions, interrupts) = tables.idt.split_at_mut(EXCEPTIONS);
    fill(exceptions, entry::stub(0), entry::STUB, FAULT_STACK);
    match ring {
        Ring::Zero if has_programs() => {
            fill(exceptions, user::isolated_stub(0), user::STUB, FAULT_STACK);
            fill(interrupts, user::isolated_stub(EXCEPTIONS), user::STUB, 0);
            exceptions[BREAKPOINT] = callable(user::isolated_stub(BREAKPOINT), FAULT_STACK);
        }
        Ring::Zero => fill(interrupts, entry::stub(EXCEPTIONS), entry::STUB, 0),
        Ring::Three => {
            fill(
                interrupts,
                gate::stub(EXCEPTIONS),
                gate::STUB,
                INTERRUPT_STACK,
            );
            tables.idt[gate::HALT] = callable(gate::halt(), 0);
            tables.idt[gate::SERVICE] = callable(gate::service(), 0);
        }
    }
}

fn pointer(base: usize, bytes: usize) -> DescriptorTablePointer {
    DescriptorTablePointer {
        limit: (bytes - 1) as u16,
        base: VirtAddr::new(base as u64),
    }
}
