//! Many interrupts, each awaited: none may be lost, whatever the CPU does when it arrives.
//!
//! Each core raises its share, mostly at itself, else at the next core. The sender waits until
//! the handler has counted the interrupt: running, with handlers off until it has been raised,
//! or in a halt. One that does not arrive in time is lost.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use tare_libos::hal::irq::{self, Vector};
use tare_libos::hal::{clock, cpu, ipi};
use tare_libos::println;
use tare_libos::thread::{self, JoinHandle};
use tare_libos::time::Duration;

/// An interrupt that has not come by then is lost.
const INTERRUPT_TIMEOUT_NS: u64 = 20_000_000_000;
/// Interrupts between two sleeps, in which the core halts with its timer armed.
const BETWEEN_SLEEPS: u64 = 4096;

/// Interrupts that the handlers of each core's own vector have counted.
static COUNTED: [AtomicU64; cpu::MAX] = [const { AtomicU64::new(0) }; cpu::MAX];
/// A handler for each core, so that each counts its own interrupts.
static HANDLERS: [&(dyn Fn() + Sync); 4] = [&|| count(0), &|| count(1), &|| count(2), &|| count(3)];

fn count(core: usize) {
    COUNTED[core].fetch_add(1, Ordering::Relaxed);
}

/// Raises `number` of them; gives the image's status.
pub(crate) fn raise(number: u64) -> u8 {
    let cores = thread::cores().min(HANDLERS.len());
    let share = number.div_ceil(cores as u64);
    let begin_ns = clock::now_ns();
    let senders: Vec<JoinHandle<u64>> = (0..cores)
        .filter_map(|core| Some((core, irq::allocate(HANDLERS[core])?)))
        .map(|(core, vector)| thread::spawn_on(core, move || send(core, cores, vector, share)))
        .collect();
    let arrived: u64 = senders.into_iter().map(JoinHandle::join).sum();
    let (expected, ms) = (
        share * cores as u64,
        (clock::now_ns() - begin_ns) / 1_000_000,
    );
    let counted: u64 = COUNTED.iter().map(|it| it.load(Ordering::Relaxed)).sum();
    println!("interrupts: {expected} raised, {arrived} arrived, {counted} handled, {ms} ms");
    u8::from(arrived != expected || counted != expected)
}

/// Raises `share` interrupts, one after the other; gives how many arrived.
fn send(core: usize, cores: usize, vector: Vector, share: u64) -> u64 {
    let mut state = 0x9e37_79b9_7f4a_7c15 ^ core as u64;
    for number in 1..=share {
        // Marsaglia's xorshift64.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let has_come = || COUNTED[core].load(Ordering::Relaxed) == number;
        match state % 16 {
            // Another core: it runs, halts, or handles another interrupt.
            0 if cores > 1 => ipi::raise((core + 1) % cores, vector),
            1..=5 => ipi::raise(core, vector),
            6..=10 => {
                let interrupts = cpu::disable_interrupts();
                ipi::raise(core, vector);
                (0..state >> 60).for_each(|_| cpu::pause());
                cpu::restore_interrupts(interrupts);
            }
            _ => {
                ipi::raise(core, vector);
                cpu::halt_if(|| !has_come());
            }
        }
        let raised_ns = clock::now_ns();
        while !has_come() {
            if clock::now_ns() - raised_ns > INTERRUPT_TIMEOUT_NS {
                println!("core {core} lost interrupt {number}");
                return number - 1;
            }
            cpu::pause();
        }
        if number % BETWEEN_SLEEPS == 0 {
            thread::sleep(Duration::from_micros(200));
        }
    }
    share
}
