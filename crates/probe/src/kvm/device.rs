//! Whose port or page an address is, by convention of the PC.

use tare_account::Device;

/// The device that has this I/O port.
pub(super) fn at_port(port: u16) -> Device {
    match port {
        0x00..=0x0f | 0x81..=0x8f | 0xc0..=0xdf => Device::Dma,
        0x20 | 0x21 | 0xa0 | 0xa1 | 0x4d0 | 0x4d1 => Device::Pic,
        0x40..=0x43 | 0x61 => Device::Pit,
        0x60 | 0x64 | 0x92 => Device::Keyboard,
        0x70 | 0x71 => Device::Rtc,
        0x80 | 0xed => Device::Post,
        0x3f8..=0x3ff | 0x2f8..=0x2ff | 0x3e8..=0x3ef | 0x2e8..=0x2ef => Device::Serial,
        0x3b0..=0x3df | 0x1ce..=0x1d0 => Device::Vga,
        0x505 => Device::PvPanic,
        0x510..=0x517 => Device::FwCfg,
        // The timer of QEMU's q35 (PMBASE 0x600) and i440fx (0xb000).
        0x608..=0x60b | 0xb008..=0xb00b => Device::PmTimer,
        0x600..=0x67f | 0xb000..=0xb03f | 0xb2 | 0xb3 => Device::Acpi,
        0xcf8..=0xcff => Device::PciConfig,
        _ => Device::Unknown,
    }
}

/// The device that has the page at this guest-physical address.
pub(super) fn at_page(page: u64) -> Device {
    match page {
        0xfed0_0000 => Device::Hpet,
        0xfec0_0000 => Device::IoApic,
        0xfee0_0000 => Device::LocalApic,
        0xa_0000..=0xb_ffff => Device::Vga,
        // The ECAM window of QEMU's q35.
        0xb000_0000..=0xbfff_ffff => Device::PciConfig,
        // virtio-mmio of QEMU's microvm and of Firecracker.
        0xfeb0_0000..=0xfeb0_2fff | 0xd000_0000..=0xd001_ffff => Device::Virtio,
        _ => Device::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timers_of_a_pc_are_known_by_their_addresses() {
        assert_eq!(at_port(0x40), Device::Pit);
        assert_eq!(at_port(0x71), Device::Rtc);
        assert_eq!(at_port(0x608), Device::PmTimer);
        assert_eq!(at_port(0xb008), Device::PmTimer);
        assert_eq!(at_page(0xfed0_0000), Device::Hpet);
        assert_eq!(at_port(0x1234), Device::Unknown);
    }
}
