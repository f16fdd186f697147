//! I/O ports of a Tare machine.

/// First serial port (16550), eight ports; interrupt line [`COM1_IRQ`].
pub const COM1: u16 = 0x3f8;
/// ISA interrupt (and GSI) of the first serial port.
pub const COM1_IRQ: u32 = 4;
/// Interrupt line (and GSI) that rises when there are signals for the guest's program, at [`SIGNAL`].
pub const SIGNAL_IRQ: u32 = 5;
/// Guest exit: a 32-bit write ends the run with the value's meaning in
/// [`crate::exit`]. The same port and width as QEMU's `isa-debug-exit`, which
/// QEMU's users add with `-device isa-debug-exit,iobase=0xf4,iosize=4`.
pub const EXIT: u16 = 0xf4;
/// i8042 command port: writing [`I8042_RESET`] resets the machine.
pub const I8042: u16 = 0x64;
/// The i8042 command that pulses the reset line.
pub const I8042_RESET: u8 = 0xfe;
/// ACPI reset register (also the PIIX/ICH reset control port).
pub const RESET: u16 = 0xcf9;
/// Value for [`RESET`] that resets the machine.
pub const RESET_VALUE: u8 = 0x06;
/// ACPI sleep control register (FADT, hardware-reduced), byte wide.
pub const SLEEP_CONTROL: u16 = 0x600;
/// ACPI sleep status register.
pub const SLEEP_STATUS: u16 = 0x601;
/// Value for [`SLEEP_CONTROL`]: SLP_TYP of S5 (5) shifted by 2, with SLP_EN.
pub const SLEEP_S5: u8 = (5 << 2) | 0x20;
/// A guest uses 2 MiB of its RAM as one page: a 32-bit write of their address over 2 MiB asks the
/// monitor to have the host do the same, where it leaves that to advice. From version
/// [`crate::cpuid::TARE_HUGE_PAGES_SINCE`] on.
pub const HUGE_PAGE: u16 = 0x608;
/// A 32-bit read takes the next signal for the guest's program: its number in Linux, 1 to 64, or
/// [`NO_SIGNAL`]. One that comes while the guest starts waits. From version
/// [`crate::cpuid::TARE_SIGNALS_SINCE`] on, where the guest is a program's.
pub const SIGNAL: u16 = 0x60c;
/// No signal waits.
pub const NO_SIGNAL: u32 = 0;
/// PCI configuration address port (PCI 3.0, 3.2.2.3.2).
pub const PCI_ADDRESS: u16 = 0xcf8;
/// PCI configuration data port, four bytes.
pub const PCI_DATA: u16 = 0xcfc;
/// CMOS address port (wall clock at boot).
pub const CMOS_INDEX: u16 = 0x70;
/// CMOS data port.
pub const CMOS_DATA: u16 = 0x71;
