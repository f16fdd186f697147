//! What the tables say, as the image uses it.

use alloc::vec::Vec;

use crate::cpu::MAX;

/// What the tables say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// APIC IDs of the usable CPUs, in table order.
    pub apic_ids: [u8; MAX],
    /// How many of them there are.
    pub cpus: usize,
    /// Addresses of the IOAPICs, with the first interrupt of each.
    pub ioapics: Vec<(u32, u32)>,
    /// Address of the DSDT, 0 if there is none.
    pub dsdt: u64,
    /// Whether there are 8259 interrupt controllers, which must be masked.
    pub has_pic: bool,
    /// Configuration space of bus 0 of PCI segment 0, by memory; 0 if there is none.
    pub ecam: u64,
    /// Port of the power management timer (3.579545 MHz).
    pub pm_timer_port: Option<u16>,
    /// Port of the sleep control register.
    pub sleep_control_port: Option<u16>,
    /// Port of the PM1a control register.
    pub pm1a_control_port: Option<u16>,
}
