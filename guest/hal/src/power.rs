//! The end of the machine.

#![allow(unsafe_code)]

use core::fmt::Write as _;

use tare_abi::exit::{APPLICATION_STATUS_LINE, GuestExit};
use tare_abi::ports;
use x86_64::instructions::port::Port;

use crate::acpi::Tables;
use crate::memory::layout;
use crate::once::OnceCell;
use crate::{ring, serial};

/// SLP_EN of the PM1 control register (ACPI 6.5, 4.8.3.2.1).
const SLEEP_ENABLE: u16 = 1 << 13;

/// How ACPI switches this machine off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PowerOff {
    /// Sleep control register at a port (hardware-reduced ACPI).
    SleepControl(u16),
    /// PM1a control register at a port.
    Pm1a(u16),
}

static POWER_OFF: OnceCell<PowerOff> = OnceCell::new();

/// Remembers how ACPI switches the machine off.
pub(crate) fn init(tables: &Tables) {
    let sleep_control = tables.sleep_control_port.map(PowerOff::SleepControl);
    if let Some(way) = sleep_control.or(tables.pm1a_control_port.map(PowerOff::Pm1a)) {
        POWER_OFF.set(way).ok();
    }
}

/// Ends the machine and says why: by Tare's exit port, which is QEMU's
/// isa-debug-exit too; where there is none by ACPI, then by the keyboard
/// controller's reset (all that Firecracker has), then not at all.
pub fn exit(reason: GuestExit) -> ! {
    let _ = crate::cpu::disable_interrupts();
    if let GuestExit::Status(status @ 1..) = reason
        && layout::has_programs()
        && !crate::cpuid::is_tare()
    {
        writeln!(serial::Raw, "\n{APPLICATION_STATUS_LINE}{status}").ok();
    }
    // SAFETY: 1. The port ends the machine, or no device has it (`abi::ports`). 2. A write to a
    //    port changes no memory.
    unsafe { Port::<u32>::new(ports::EXIT).write(reason.to_value()) };
    match POWER_OFF.get() {
        // SAFETY: 1. ACPI's tables name the port as that of the sleep control register (`acpi`). 2.
        //    The value ends the machine.
        Some(PowerOff::SleepControl(port)) => unsafe {
            Port::<u8>::new(*port).write(ports::SLEEP_S5);
        },
        // SLP_TYP 0 with SLP_EN is S5 in QEMU's q35 and piix4; 5 elsewhere.
        Some(PowerOff::Pm1a(port)) => {
            for sleep_type in [0, 5 << 10] {
                // SAFETY: 1. ACPI's tables name the port as that of the PM1a control register
                //    (`acpi`). 2. The value ends the machine, or does nothing.
                unsafe { Port::<u16>::new(*port).write(sleep_type | SLEEP_ENABLE) };
            }
        }
        None => {}
    }
    // SAFETY: 1. The port is the keyboard controller's, or no device's. 2. The command resets the
    //    machine.
    unsafe { Port::<u8>::new(ports::I8042).write(ports::I8042_RESET) };
    loop {
        if ring::is_user() {
            crate::cpu::pause();
        } else {
            x86_64::instructions::hlt();
        }
    }
}
