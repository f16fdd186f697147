//! An interrupt whose handler's first instruction reads the time stamp counter:
//! how long a halted CPU takes to run again (KVM Message Passing 2015).
//!
//! One CPU [`halt`]s, another [`send`]s. The handler saves no register: the
//! vector is delivered only between the `sti` and the `cli` of [`halt`], where
//! what it changes holds nothing. That is so because `send` sends only to a CPU
//! that has announced its halt with interrupts off, once for each halt.

#![allow(unsafe_code)]

use core::arch::asm;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::{apic, cpu, percpu, ring, smp};

/// What the handler read; written by the entry code of the vector.
#[unsafe(no_mangle)]
static tare_stamp: AtomicU64 = AtomicU64::new(0);

/// The CPU that halts to be stamped, plus one; zero if none does.
static HALTED: AtomicUsize = AtomicUsize::new(0);

/// Readings of the counter around the command that sent an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Before the command.
    pub before: u64,
    /// When the command had been taken.
    pub after: u64,
}

/// Halts this CPU until [`send`]'s interrupt, and gives the counter as the
/// handler's first instruction read it. Other interrupts are served meanwhile.
///
/// # Panics
/// If another CPU halts for a stamp already, or in an interrupt handler.
pub fn halt() -> u64 {
    assert!(!cpu::in_interrupt(), "interrupt handlers cannot halt");
    assert!(!ring::is_user(), "only ring 0 halts for a stamp");
    let interrupts = cpu::disable_interrupts();
    // SAFETY: hardware interrupts are let in again below.
    unsafe { asm!("cli") };
    tare_stamp.store(0, Ordering::Relaxed);
    let announced =
        HALTED.compare_exchange(0, cpu::index() + 1, Ordering::SeqCst, Ordering::Relaxed);
    assert!(announced.is_ok(), "one CPU at a time halts for a stamp");
    let stamp = loop {
        // SAFETY: interrupts are taken only after the instruction that follows
        // `sti`; the stamp's handler changes no register but these two.
        unsafe { asm!("sti", "hlt", "cli", out("rax") _, out("rdx") _) };
        match tare_stamp.load(Ordering::Relaxed) {
            // Another interrupt ended the halt: its handler may run.
            0 => {
                cpu::enable_interrupts();
                let _ = cpu::disable_interrupts();
            }
            stamp => break stamp,
        }
    };
    apic::end_of_interrupt(percpu::current());
    // SAFETY: the stamp has come, and no other is sent.
    unsafe { asm!("sti") };
    cpu::restore_interrupts(interrupts);
    stamp
}

/// Whether `cpu` has announced that it [`halt`]s; it does so within a few
/// instructions.
pub fn is_halting(cpu: usize) -> bool {
    HALTED.load(Ordering::Acquire) == cpu + 1
}

/// Sends the interrupt to `cpu`; `None` if it does not halt for it.
pub fn send(cpu: usize) -> Option<Sent> {
    let halted = HALTED.compare_exchange(cpu + 1, 0, Ordering::SeqCst, Ordering::Relaxed);
    halted.ok()?;
    let apic_id = smp::apic_id(cpu);
    let (before, after) = apic::send_stamp(apic_id);
    Some(Sent { before, after })
}
