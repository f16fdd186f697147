//! Interrupt handlers by vector. A handler runs with interrupts off, on the
//! interrupted stack; it must be short and must not block.

#![allow(unsafe_code)]

use alloc::boxed::Box;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use super::vector::{FIRST_DEVICE, GATES, SPURIOUS, TIMER, WAKE};
use crate::apic::eoi::end_of_interrupt;
use crate::percpu::{Cpu, EXPIRED};
use crate::user::flush;

pub use super::vector::Vector;

/// What a handler is.
pub type Handler = &'static (dyn Fn() + Sync);

/// Handlers are two words wide; the table points to leaked boxes of them.
static HANDLERS: [AtomicPtr<Handler>; GATES] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; GATES];
static NEXT: AtomicUsize = AtomicUsize::new(FIRST_DEVICE);

/// Gives `handler` its own vector; `None` when all are taken.
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

/// How many vectors [`allocate`] still has.
pub(crate) fn left() -> usize {
    usize::from(SPURIOUS) - NEXT.load(Ordering::Relaxed)
}

/// Makes `handler` the handler of `vector`.
pub fn register(vector: Vector, handler: Handler) {
    let cell = Box::into_raw(Box::new(handler));
    // An earlier handler may be running on another CPU: it is never freed.
    HANDLERS[usize::from(vector.0)].store(cell, Ordering::Release);
}

/// Runs the handler of `vector` on this CPU, whose flag is off, and ends the interrupt.
pub(crate) fn handle(cpu: &Cpu, vector: usize) {
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
        // SAFETY: 1. The table holds null (checked) or what `register` made by `Box::into_raw`. 2.
        //    Those boxes are never freed. 3. The release in `register` and the acquire here order
        //    the box's contents before this call.
        unsafe { (*handler)() };
    }
}
