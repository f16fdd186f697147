//! Interrupt handlers by vector. A handler runs with interrupts off, on the
//! stack of whatever it interrupted; it must be short and must not block.

#![allow(unsafe_code)]

use alloc::boxed::Box;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering, compiler_fence};

use super::vector::{FIRST, FIRST_DEVICE, GATES, SPURIOUS, TIMER, WAKE};
use crate::apic::eoi::end_of_interrupt;
use crate::percpu::{self, Cpu, EXPIRED};
use crate::user::flush;

pub use super::vector::Vector;

/// What a handler is.
pub type Handler = &'static (dyn Fn() + Sync);

/// Handlers are two words wide; the table points to leaked boxes of them.
static HANDLERS: [AtomicPtr<Handler>; GATES] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; GATES];
static NEXT: AtomicUsize = AtomicUsize::new(FIRST_DEVICE);

/// Gives `handler` a vector of its own; `None` when all are taken.
pub fn allocate(handler: Handler) -> Option<Vector> {
    let vector = NEXT
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| {
            (next < usize::from(SPURIOUS)).then_some(next + 1)
        })
        .ok()?;
    let vector = Vector(vector as u8);
    register(vector, handler);
    Some(vector)
}

/// Makes `handler` the handler of `vector`.
pub fn register(vector: Vector, handler: Handler) {
    let cell = Box::into_raw(Box::new(handler));
    // An earlier handler may be running on another CPU: it is never freed.
    HANDLERS[usize::from(vector.0)].store(cell, Ordering::Release);
}

/// Called by the entry code with the software flag off; turns it on again.
#[unsafe(no_mangle)]
extern "C" fn tare_interrupt(vector: u64) {
    let cpu = percpu::current();
    handle(cpu, vector as usize);
    finish(cpu);
}

/// [`handle_pending`] for entry code.
#[unsafe(no_mangle)]
extern "C" fn tare_handle_pending() {
    handle_pending();
}

/// Handles the interrupts that are pending on this CPU.
#[cold]
pub(crate) fn handle_pending() {
    let cpu = percpu::current();
    turn_off(cpu);
    finish(cpu);
}

/// Handles what is pending until nothing is, and leaves the flag on.
fn finish(cpu: &Cpu) {
    loop {
        let mut pending = if cpu.pending.load(Ordering::Relaxed) == 0 {
            0
        } else {
            cpu.pending.swap(0, Ordering::Relaxed)
        };
        while pending != 0 {
            let bit = pending.trailing_zeros();
            pending &= pending - 1;
            handle(cpu, usize::from(FIRST) + bit as usize);
        }
        // One that arrives from here on finds the flag on, or is seen below.
        cpu.interrupts_on.store(1, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        if cpu.pending.load(Ordering::Relaxed) == 0 {
            return;
        }
        turn_off(cpu);
    }
}

fn turn_off(cpu: &Cpu) {
    cpu.interrupts_on.store(0, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
}

fn handle(cpu: &Cpu, vector: usize) {
    cpu.interrupt_depth.set(cpu.interrupt_depth.get() + 1);
    match vector as u8 {
        TIMER => cpu.armed_ns.store(EXPIRED, Ordering::Relaxed),
        WAKE => flush::serve(cpu.number()),
        SPURIOUS => {}
        _ => call(vector),
    }
    if vector as u8 != SPURIOUS {
        end_of_interrupt(cpu);
    }
    cpu.interrupt_depth.set(cpu.interrupt_depth.get() - 1);
}

fn call(vector: usize) {
    let handler = HANDLERS[vector % GATES].load(Ordering::Acquire);
    if !handler.is_null() {
        // SAFETY: the table holds null or leaked boxes.
        unsafe { (*handler)() };
    }
}
