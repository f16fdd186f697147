//! GDT and TSS of each CPU, and the IDT of all.

#![allow(unsafe_code)]

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};

use x86_64::PrivilegeLevel;
use x86_64::VirtAddr;
use x86_64::instructions::tables;
use x86_64::structures::DescriptorTablePointer;
use x86_64::structures::gdt::{Descriptor, SegmentSelector};
use x86_64::structures::tss::TaskStateSegment;

use super::entry;
use crate::boot::CODE_SELECTOR;
use crate::memory::heap;
use crate::percpu;

/// Gates in the IDT: 32 exceptions and 64 interrupts.
pub(super) const GATES: usize = 96;
const TSS_INDEX: u16 = 3;
/// Exceptions run on a stack of their own: an overflowing stack cannot take
/// the frame of its own page fault.
const FAULT_STACK_BYTES: usize = 16 * 1024;
const FAULT_STACK: u8 = 1;

/// Descriptor tables of one CPU.
pub(crate) struct Descriptors {
    gdt: [u64; 5],
    tss: TaskStateSegment,
}

impl Descriptors {
    /// Without a fault stack yet.
    pub(crate) const fn new() -> Self {
        Self {
            gdt: [0, 0x00af_9b00_0000_ffff, 0x00cf_9300_0000_ffff, 0, 0],
            tss: TaskStateSegment::new(),
        }
    }
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Gate {
    offset_low: u16,
    selector: u16,
    stack: u8,
    kind: u8,
    offset_middle: u16,
    offset_high: u32,
    zero: u32,
}

#[repr(C, align(16))]
struct Idt(UnsafeCell<[Gate; GATES]>);
// SAFETY: written once, by the first CPU before any interrupt.
unsafe impl Sync for Idt {}

static IDT: Idt = Idt(UnsafeCell::new(
    [Gate {
        offset_low: 0,
        selector: 0,
        stack: 0,
        kind: 0,
        offset_middle: 0,
        offset_high: 0,
        zero: 0,
    }; GATES],
));

#[repr(C, align(16))]
struct Stack(UnsafeCell<[u8; FAULT_STACK_BYTES]>);
// SAFETY: 1. No code takes a reference to the bytes; `fault_stack_top` uses the address only.
// 2. Only the first CPU's TSS names it, so one CPU at a time runs on it.
unsafe impl Sync for Stack {}
static FIRST_FAULT_STACK: Stack = Stack(UnsafeCell::new([0; FAULT_STACK_BYTES]));

/// Loads this CPU's descriptor tables.
pub(crate) fn init() {
    let descriptors = percpu::current().descriptors.get();
    // SAFETY: 1. `percpu::current` gives this CPU's area, which lives forever. 2. This function alone
    //    uses its descriptors, once for each CPU (`boot::start`), so the reference is unique.
    //    3. The tables hold flat ring-0 segments, this CPU's TSS and gates to `entry`'s stubs, so that
    //    loading them changes no segment in use. 4. Interrupts are off until the caller turns
    //    them on.
    unsafe {
        let descriptors = &mut *descriptors;
        descriptors.tss.interrupt_stack_table[usize::from(FAULT_STACK) - 1] =
            VirtAddr::new(fault_stack_top());
        let tss = Descriptor::tss_segment_unchecked(&raw const descriptors.tss);
        if let Descriptor::SystemSegment(low, high) = tss {
            descriptors.gdt[3..5].copy_from_slice(&[low, high]);
        }
        tables::lgdt(&pointer(descriptors.gdt.as_ptr().addr(), 5 * 8));
        tables::load_tss(SegmentSelector::new(TSS_INDEX, PrivilegeLevel::Ring0));
        fill_idt_once();
        tables::lidt(&pointer(IDT.0.get().addr(), GATES * size_of::<Gate>()));
    }
}

fn fault_stack_top() -> u64 {
    let bottom = match percpu::index() {
        0 => FIRST_FAULT_STACK.0.get().addr(),
        _ => match heap::raw_pages(FAULT_STACK_BYTES / 4096) {
            Some(pages) => pages.addr().get(),
            None => panic!("no memory for a fault stack"),
        },
    };
    (bottom + FAULT_STACK_BYTES) as u64
}

fn fill_idt_once() {
    static FILLED: AtomicBool = AtomicBool::new(false);
    if FILLED.swap(true, Ordering::Relaxed) {
        return;
    }
    // SAFETY: the first CPU, before any interrupt; see `Idt`.
    let gates = unsafe { &mut *IDT.0.get() };
    for (vector, gate) in gates.iter_mut().enumerate() {
        let offset = entry::stub(vector);
        *gate = Gate {
            offset_low: offset as u16,
            selector: CODE_SELECTOR,
            stack: if vector < 32 { FAULT_STACK } else { 0 },
            kind: 0x8e,
            offset_middle: (offset >> 16) as u16,
            offset_high: (offset >> 32) as u32,
            zero: 0,
        };
    }
}

fn pointer(base: usize, bytes: usize) -> DescriptorTablePointer {
    DescriptorTablePointer {
        limit: (bytes - 1) as u16,
        base: VirtAddr::new(base as u64),
    }
}
