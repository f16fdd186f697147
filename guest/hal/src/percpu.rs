//! What belongs to one CPU, found through GS.

#![allow(unsafe_code)]

use core::cell::{Cell, UnsafeCell};
use core::mem::offset_of;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use alloc::boxed::Box;
use x86_64::registers::model_specific::Msr;

use crate::cpu::MAX;
use crate::user::Area;

const IA32_GS_BASE: u32 = 0xc000_0101;

/// Offset of [`Cpu::stack_top`], for the trampoline.
pub(crate) const STACK_TOP_OFFSET: usize = offset_of!(Cpu, stack_top);
/// Offsets of the software interrupt flag, for code in assembly.
pub(crate) const INTERRUPTS_ON_OFFSET: usize = offset_of!(Cpu, interrupts_on);
/// Offset of [`Cpu::pending`].
pub(crate) const PENDING_OFFSET: usize = offset_of!(Cpu, pending);
/// Offset of [`Cpu::merged`].
pub(crate) const MERGED_OFFSET: usize = offset_of!(Cpu, merged);
/// Offset of [`Cpu::resume`].
pub(crate) const RESUME_OFFSET: usize = offset_of!(Cpu, resume);

/// Offset of [`Cpu::user`].
pub(crate) const USER_OFFSET: usize = offset_of!(Cpu, user);
/// Offset of [`Area::context`] in a CPU's area.
pub(crate) const USER_CONTEXT_OFFSET: usize = USER_OFFSET + offset_of!(Area, context);
/// Offset of [`Area::scratch`].
pub(crate) const USER_SCRATCH_OFFSET: usize = USER_OFFSET + offset_of!(Area, scratch);
/// Offset of [`Area::vector`].
pub(crate) const USER_VECTOR_OFFSET: usize = USER_OFFSET + offset_of!(Area, vector);
/// Offset of [`Area::fault`].
pub(crate) const USER_FAULT_OFFSET: usize = USER_OFFSET + offset_of!(Area, fault);

/// Of [`Cpu::armed_ns`]: nothing is armed.
pub(crate) const NOTHING: u64 = u64::MAX;
/// Of [`Cpu::armed_ns`]: nothing is armed since the interrupt has come.
pub(crate) const EXPIRED: u64 = u64::MAX - 1;

/// One CPU's data; only that CPU uses the cells.
#[repr(C)]
pub(crate) struct Cpu {
    /// Address of this structure: what `gs:[0]` reads.
    this: u64,
    /// Index of the CPU, from 0 (`gs:[8]`).
    index: u64,
    /// Top of the stack on which the CPU starts.
    stack_top: u64,
    /// Whether interrupt handlers may run: 1 or 0 (`gs:[24]`).
    pub(crate) interrupts_on: AtomicU64,
    /// Vectors that arrived while they might not, bit by vector from 32.
    pub(crate) pending: AtomicU64,
    /// Deliveries of vectors that were pending already, which are handled with the first.
    pub(crate) merged: AtomicU64,
    /// Where the interrupted code continues, until the upcall has saved it.
    resume: Cell<u64>,
    /// What the entry code of programs uses (`crate::user`).
    pub(crate) user: Area,
    /// KVM's paravirtual EOI flag: bit 0 set means no EOI is needed.
    pub(crate) pv_eoi: AtomicU32,
    /// Ends of interrupts that the flag saved, and that were written.
    pub(crate) ends_saved: Cell<u64>,
    /// Whether the timer counts in units of 128 ticks ([`crate::clock::count`]).
    pub(crate) timer_is_far: Cell<bool>,
    pub(crate) ends_written: Cell<u64>,
    /// Local APIC ID.
    pub(crate) apic_id: u32,
    /// Interrupt handlers running.
    pub(crate) interrupt_depth: Cell<u32>,
    /// What the timer is armed for, TSC or APIC ticks are the timer's own
    /// matter: nanoseconds of the clock, or that it is not (`crate::timer`).
    pub(crate) armed_ns: AtomicU64,
    /// Set while this CPU prints a panic or fault.
    pub(crate) dying: Cell<bool>,
    /// The destination that the memory-mapped APIC has for interrupt commands, if one was written.
    pub(crate) command_destination: Cell<Option<u32>>,
}

// SAFETY: 1. Only its own CPU reaches an area's cells, by `current`. 2. Other CPUs get at most the
//    address, for the trampoline and `find_area`. 3. The words that KVM and entry code change
//    meanwhile are atomics.
unsafe impl Sync for Cpu {}

impl Cpu {
    /// Its index, from 0.
    #[inline(always)]
    pub(crate) fn number(&self) -> usize {
        self.index as usize
    }

    const fn new(index: u64, apic_id: u32) -> Self {
        Self {
            this: 0,
            index,
            stack_top: 0,
            interrupts_on: AtomicU64::new(0),
            pending: AtomicU64::new(0),
            merged: AtomicU64::new(0),
            resume: Cell::new(0),
            user: Area::new(),
            pv_eoi: AtomicU32::new(0),
            ends_saved: Cell::new(0),
            timer_is_far: Cell::new(false),
            ends_written: Cell::new(0),
            apic_id,
            interrupt_depth: Cell::new(0),
            armed_ns: AtomicU64::new(NOTHING),
            dying: Cell::new(false),
            command_destination: Cell::new(None),
        }
    }
}

struct First(UnsafeCell<Cpu>);
// SAFETY: 1. `init_first` writes it before other CPUs run. 2. From then on only `current` reaches
//    it, as a `Cpu`, which is `Sync`.
unsafe impl Sync for First {}
static FIRST: First = First(UnsafeCell::new(Cpu::new(0, 0)));

/// Makes the first CPU's area its own.
pub(crate) fn init_first() {
    let area = FIRST.0.get();
    // SAFETY: 1. `tare_boot` calls this first, before other code uses the area and before other
    //    CPUs run, so that no reference to it exists. 2. `FIRST` is a static and
    //    lives forever.
    unsafe { init_further(area) };
}

/// Makes `area` this CPU's.
///
/// # Safety
/// The area must live forever and belong to this CPU alone.
pub(crate) unsafe fn init_further(area: *mut Cpu) {
    // SAFETY: 1. The area is valid and this CPU's alone (the caller's promise): no reference to it
    //    exists yet.
    unsafe { (*area).this = area.addr() as u64 };
    // SAFETY: 1. In ring 0: `tare_boot` and `tare_boot_ap` call this before they enter ring 3. 2.
    //    The area lives forever (the caller's promise). 3. Neither the compiler nor the library OS
    //    uses GS for anything else.
    unsafe { Msr::new(IA32_GS_BASE).write(area.addr() as u64) };
}

/// Areas by APIC ID, for the trampoline.
#[unsafe(no_mangle)]
static tare_ap_areas: [AtomicPtr<Cpu>; 256] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; 256];

/// Whether the area of a further CPU lies at `address`.
fn is_area(address: u64) -> bool {
    let mut areas = tare_ap_areas.iter();
    areas.any(|area| area.load(Ordering::Relaxed).addr() as u64 == address && address != 0)
}

/// Makes an area for CPU `index`, which starts on `stack_top`. Never freed.
pub(crate) fn add(index: usize, apic_id: u32, stack_top: u64) {
    let mut cpu = Box::new(Cpu::new(index as u64, apic_id));
    cpu.stack_top = stack_top;
    // The CPU writes to it (`init_further`): the pointer is not that of a shared reference.
    let area = core::ptr::from_mut::<Cpu>(Box::leak(cpu));
    tare_ap_areas[apic_id as usize & 255].store(area, Ordering::Release);
}

/// Whether GS points to the area of a CPU; if not, which only ring 3 can have done, makes
/// it point to the first CPU's, for a last report. In ring 0.
pub(crate) fn find_area() -> bool {
    let first = FIRST.0.get().addr() as u64;
    let mut register = Msr::new(IA32_GS_BASE);
    // SAFETY: 1. In ring 0. 2. Every 64-bit processor has the register.
    let base = unsafe { register.read() };
    let is_area = base == first || is_area(base);
    if !is_area {
        // SAFETY: 1. As above. 2. The area lives forever; this CPU only reports and ends the
        //    machine, so that what it shares with the first CPU does not matter.
        unsafe { register.write(first) };
    }
    is_area
}

/// This CPU's data.
#[inline(always)]
pub(crate) fn current() -> &'static Cpu {
    let this: *const Cpu;
    // SAFETY: 1. GS holds this CPU's area since `init_first` or `init_further`, which run before
    //    other Rust code on the CPU. 2. The area's first word is a plain word that is not written
    //    again. 3. A fiber stays on its CPU, so the compiler may merge reads.
    unsafe {
        core::arch::asm!("mov {}, gs:[0]", out(reg) this, options(pure, readonly, nostack, preserves_flags));
    }
    // SAFETY: 1. An area's first word is its own address (`init_further`). 2. Areas live
    //    forever, and a fiber stays on its CPU.
    unsafe { &*this }
}

/// This CPU's index.
#[inline(always)]
pub fn index() -> usize {
    let index: usize;
    // SAFETY: 1. GS holds this CPU's area, as for `current`. 2. The second word, at 8, is the
    //    index, which is not written again. 3. A fiber stays on its CPU, so the compiler may merge
    //    reads.
    unsafe {
        core::arch::asm!("mov {}, gs:[8]", out(reg) index, options(pure, readonly, nostack, preserves_flags));
    }
    index
}

/// A value for each CPU that only that CPU's threads reach.
pub struct PerCpu<T> {
    values: [T; MAX],
}

// SAFETY: 1. A CPU reaches its own value only: `get` takes the CPU's index. 2. A thread keeps to
//    its CPU (`fiber`), and a `&T` cannot go to another's unless `T` is `Sync`. 3. `get` refuses
//    interrupt handlers, so that uses on one CPU follow each other. 4. `T` is `Send`: the values
//    are made on one CPU and used on others.
unsafe impl<T: Send> Sync for PerCpu<T> {}

impl<T> PerCpu<T> {
    /// From a value for each CPU.
    pub const fn new(values: [T; MAX]) -> Self {
        Self { values }
    }

    /// This CPU's value.
    ///
    /// # Panics
    /// In an interrupt handler, which may have interrupted another user.
    #[inline]
    pub fn get(&self) -> &T {
        let cpu = current();
        assert!(
            cpu.interrupt_depth.get() == 0,
            "threads' data used in an interrupt handler"
        );
        &self.values[(cpu.index as usize) % MAX]
    }
}
