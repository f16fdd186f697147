//! An interrupt whose handler's first instruction reads the time stamp counter:
//! how long a halted CPU takes to run again (KVM Message Passing 2015).
//!
//! One CPU [`halt`]s, another [`send`]s. In ring 0 the handler saves no register: the
//! vector is delivered only between the `sti` and the `cli` of [`halt`], where
//! what it changes holds nothing. That is so because `send` sends only to a CPU
//! that has announced its halt with interrupts off, once for each halt. In ring 3 the
//! vector is an ordinary one, and the counter is read by the first instruction behind
//! the halt gate.

#![allow(unsafe_code)]

use core::arch::asm;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::trap::irq;
use crate::trap::vector::{self, Vector};
use crate::{apic, clock, cpu, percpu, ring, smp};

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
/// first instruction read it that runs then: the handler's in ring 0, that behind the
/// halt gate in ring 3. Other interrupts are served meanwhile.
///
/// # Panics
/// If another CPU halts for a stamp already, or in an interrupt handler.
pub fn halt() -> u64 {
    assert!(!cpu::in_interrupt(), "interrupt handlers cannot halt");
    if ring::is_user() {
        halt_in_ring_3()
    } else {
        halt_in_ring_0()
    }
}

fn announce() {
    tare_stamp.store(0, Ordering::Relaxed);
    let announced =
        HALTED.compare_exchange(0, cpu::index() + 1, Ordering::SeqCst, Ordering::Relaxed);
    assert!(announced.is_ok(), "one CPU at a time halts for a stamp");
}

fn halt_in_ring_3() -> u64 {
    static HAS_HANDLER: AtomicBool = AtomicBool::new(false);
    if !HAS_HANDLER.swap(true, Ordering::Relaxed) {
        irq::register(Vector(vector::STAMP), &|| {
            tare_stamp.store(clock::ticks(), Ordering::Relaxed);
        });
    }
    let interrupts = cpu::disable_interrupts();
    announce();
    let stamp = loop {
        ring::wait_for_interrupt();
        let woken = clock::ticks();
        let pending = percpu::current().pending.load(Ordering::Relaxed);
        let ended_halt = pending & 1 << (vector::STAMP - vector::FIRST) != 0;
        cpu::enable_interrupts();
        let _ = cpu::disable_interrupts();
        // Interrupts are off from the look at the stamp to the next halt: one that comes in
        // between stays pending and ends the halt at once.
        match tare_stamp.load(Ordering::Relaxed) {
            0 => {}
            _ if ended_halt => break woken,
            // It came while the handler of another interrupt ran.
            handled => break handled,
        }
    };
    cpu::restore_interrupts(interrupts);
    stamp
}

fn halt_in_ring_0() -> u64 {
    let interrupts = cpu::disable_interrupts();
    // SAFETY: 1. In ring 0: `halt` chooses. 2. Hardware interrupts are let in for the halt and, for
    //    good, below.
    unsafe { asm!("cli") };
    announce();
    let stamp = loop {
        // SAFETY: 1. In ring 0: `halt` chooses. 2. Hardware takes an interrupt only after the
        //    instruction that follows `sti`, so none is lost before the halt. 3. The stamp's
        //    handler changes RAX and RDX, both outputs; other interrupts are noted only, since the
        //    software flag is off.
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
    apic::eoi::end_of_interrupt(percpu::current());
    // SAFETY: 1. In ring 0: `halt` chooses. 2. The stamp has come and `HALTED` is zero, so that no
    //    other is sent to code that would lose registers by it.
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
