//! The CPU that runs this code: its index, its interrupt flag, `pause`, `hlt`.

#![allow(unsafe_code)]

/// Most CPUs that an image uses; further ones stay off.
pub const MAX: usize = tare_abi::layout::MAX_CPUS as usize;

/// A set of CPUs by index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuSet(u32);

impl CpuSet {
    /// No CPU.
    pub const fn new() -> Self {
        Self(0)
    }

    /// Puts a CPU in.
    ///
    /// # Panics
    /// If there can be no such CPU.
    #[inline]
    pub fn insert(&mut self, cpu: usize) {
        assert!(cpu < MAX, "there is no CPU {cpu}");
        self.0 |= 1 << cpu;
    }

    /// How many there are in it.
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether there is none in it.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those that are in it, in order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..MAX).filter(move |cpu| self.0 & (1 << cpu) != 0)
    }
}

/// Whether interrupts were on, to be put back by `restore_interrupts`.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct InterruptState {
    enabled: bool,
}

impl InterruptState {
    /// Whether they were on.
    pub(crate) const fn were_on(self) -> bool {
        self.enabled
    }
}

/// Tells the CPU (and the hypervisor) that this is a wait loop.
#[inline(always)]
pub fn pause() {
    core::hint::spin_loop();
}

#[cfg(target_os = "none")]
mod arch {
    use core::arch::asm;

    use super::InterruptState;
    pub use crate::percpu::index;
    pub use crate::smp::count;
    use crate::trap::irq;
    use crate::{apic, percpu, ring};

    /// Keeps interrupt handlers from running on this CPU and says whether they
    /// might. An interrupt that arrives meanwhile is noted, and handled when they
    /// may run again: the flag is in memory, so that it costs the same in ring 3.
    #[inline(always)]
    pub fn disable_interrupts() -> InterruptState {
        let on: u64;
        // SAFETY: this CPU's own flag. A handler between the two instructions
        // leaves the flag as it was.
        unsafe {
            asm!(
                "mov {on}, gs:[{flag}]",
                "mov qword ptr gs:[{flag}], 0",
                on = out(reg) on,
                flag = const percpu::INTERRUPTS_ON_OFFSET,
                options(nostack, preserves_flags),
            );
        }
        InterruptState { enabled: on != 0 }
    }

    /// Whether interrupt handlers may run on this CPU.
    #[inline]
    pub(crate) fn interrupts_are_on() -> bool {
        percpu::current()
            .interrupts_on
            .load(core::sync::atomic::Ordering::Relaxed)
            != 0
    }

    /// Puts the flag back.
    #[inline(always)]
    pub fn restore_interrupts(state: InterruptState) {
        if state.enabled {
            enable_interrupts();
        }
    }

    /// Lets interrupt handlers run, first those of pending interrupts.
    #[inline(always)]
    pub(crate) fn enable_interrupts() {
        let pending: u64;
        // SAFETY: this CPU's own flag and pending interrupts. One that arrives
        // after the first instruction is handled at once.
        unsafe {
            asm!(
                "mov qword ptr gs:[{flag}], 1",
                "mov {pending}, gs:[{all}]",
                pending = out(reg) pending,
                flag = const percpu::INTERRUPTS_ON_OFFSET,
                all = const percpu::PENDING_OFFSET,
                options(nostack, preserves_flags),
            );
        }
        if pending != 0 {
            irq::handle_pending();
        }
    }

    /// Lets the hardware interrupt this CPU, once, and handlers run.
    pub fn start_interrupts() {
        ring::open_interrupts();
        apic::find_end_of_interrupt();
        enable_interrupts();
    }

    /// Halts until an interrupt has been handled, unless `may_halt`, called
    /// with interrupts off, says no. The halt begins only if no interrupt is
    /// pending, so none is lost between look and halt.
    #[inline]
    pub fn halt_if(may_halt: impl FnOnce() -> bool) -> bool {
        assert!(!in_interrupt(), "interrupt handlers cannot halt");
        let _ = disable_interrupts();
        let halts = may_halt();
        if halts {
            ring::wait_for_interrupt();
        }
        enable_interrupts();
        halts
    }

    /// Reads the byte at `address`, for tests of the fault handler.
    ///
    /// # Panics
    /// If something is mapped there: then they do not read it.
    pub fn fault(address: usize) -> u8 {
        assert!(!crate::memory::is_mapped(
            &(address as u64..address as u64 + 1)
        ));
        // SAFETY: nothing is mapped there (checked), so the read faults and
        // the image ends.
        unsafe { (address as *const u8).read_volatile() }
    }

    /// Whether an interrupt handler is running on this CPU.
    #[inline]
    pub fn in_interrupt() -> bool {
        percpu::current().interrupt_depth.get() != 0
    }
}

#[cfg(not(target_os = "none"))]
mod arch {
    use super::InterruptState;

    /// Index of this CPU, from 0.
    pub fn index() -> usize {
        0
    }

    /// How many CPUs there are.
    pub fn count() -> usize {
        1
    }

    /// Turns interrupts off and says whether they were on.
    pub(crate) fn disable_interrupts() -> InterruptState {
        InterruptState { enabled: false }
    }

    /// Has nothing to fault with on the host.
    pub fn fault(_address: usize) -> u8 {
        0
    }

    /// Puts the interrupt flag back.
    pub(crate) fn restore_interrupts(state: InterruptState) {
        let InterruptState { enabled: _ } = state;
    }
}

pub use arch::*;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_each_cpu_once_and_in_order() {
        let mut set = CpuSet::new();
        assert!(set.is_empty());
        for cpu in [MAX - 1, 2, 2, 0] {
            set.insert(cpu);
        }
        assert_eq!(set.len(), 3);
        assert!(set.iter().eq([0, 2, MAX - 1]));
    }
}
