//! Signals of the host for the guest's program ([`ports::SIGNAL`]).

#![allow(unsafe_code)]

use tare_abi::ports;
use x86_64::instructions::port::Port;

use crate::apic::ioapic;
use crate::trap::irq;
use crate::{cpuid, smp};

/// Calls `handler`, as an interrupt handler on the first CPU, each time there are new signals; says
/// whether this machine has any. Those that came before wait for [`next`].
pub fn on_new(handler: irq::Handler) -> bool {
    cpuid::has_signals()
        && irq::allocate(handler)
            .is_some_and(|vector| ioapic::route(ports::SIGNAL_IRQ, vector, smp::apic_id(0)))
}

/// Takes the next signal: its number in Linux, 1 to 64. An exit to the monitor.
pub fn next() -> Option<u32> {
    if !cpuid::has_signals() {
        return None;
    }
    // SAFETY: 1. The port is Tare's (`abi::ports`), and a read changes no memory.
    let number = unsafe { Port::<u32>::new(ports::SIGNAL).read() };
    (1..=64).contains(&number).then_some(number)
}
