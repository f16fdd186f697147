//! Parses what the loader left: PVH start information (Xen
//! `public/arch-x86/hvm/start_info.h`) or Linux boot parameters (kernel
//! `arch/x86/include/uapi/asm/bootparam.h`).

use core::ops::Range;

use super::physical::{Physical, u32_at, u64_at};
use super::regions::{MAX, Regions};

const PVH_MAGIC: u32 = 0x336e_c578;
const RAM: u32 = 1;
const E820_COUNT: u64 = 0x1e8;
const E820_TABLE: u64 = 0x2d0;

/// How the image was entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// PVH: the address is that of `hvm_start_info`.
    Pvh,
    /// Linux 64-bit: the address is that of `boot_params`.
    Linux,
}

/// What a loader hands over.
#[derive(Clone, Debug, Default)]
pub struct Handover {
    /// RAM.
    pub ram: Regions,
    /// The initramfs; empty if there is none.
    pub initramfs: Range<u64>,
    /// Address of the command line, 0 if there is none.
    pub cmdline: u64,
    /// Address of the ACPI root pointer, 0 if unknown.
    pub rsdp: u64,
}

/// Parses the information at `address`; `None` if it is not what it should be.
pub fn parse(memory: &impl Physical, protocol: Protocol, address: u64) -> Option<Handover> {
    match protocol {
        Protocol::Pvh => parse_pvh(memory, address),
        Protocol::Linux => parse_linux(memory, address),
    }
}

fn parse_pvh(memory: &impl Physical, address: u64) -> Option<Handover> {
    let info = memory.bytes(address, 56)?;
    if u32_at(info, 0)? != PVH_MAGIC {
        return None;
    }
    let mut handover = Handover {
        cmdline: u64_at(info, 24)?,
        rsdp: u64_at(info, 32)?,
        ..Handover::default()
    };
    // The memory map came with version 1.
    if u32_at(info, 4)? >= 1 {
        let (map, count) = (u64_at(info, 40)?, u64::from(u32_at(info, 48)?));
        add_entries(&mut handover.ram, memory, map, count, 24);
    }
    if u32_at(info, 12)? >= 1 {
        let module = memory.bytes(u64_at(info, 16)?, 16)?;
        handover.initramfs = range(u64_at(module, 0)?, u64_at(module, 8)?);
    }
    Some(handover)
}

fn parse_linux(memory: &impl Physical, address: u64) -> Option<Handover> {
    let params = memory.bytes(address, 4096)?;
    let high = |offset| u32_at(params, offset).map(|high| u64::from(high) << 32);
    let mut handover = Handover {
        cmdline: u64::from(u32_at(params, 0x228)?) | high(0x0c8)?,
        rsdp: u64_at(params, 0x070)?,
        initramfs: range(
            u64::from(u32_at(params, 0x218)?) | high(0x0c0)?,
            u64::from(u32_at(params, 0x21c)?) | high(0x0c4)?,
        ),
        ..Handover::default()
    };
    let count = u64::from(params[E820_COUNT as usize]);
    add_entries(&mut handover.ram, memory, address + E820_TABLE, count, 20);
    Some(handover)
}

/// Both protocols' entries: address, length, type; they differ in their stride.
fn add_entries(ram: &mut Regions, memory: &impl Physical, map: u64, count: u64, stride: u64) {
    for index in 0..count.min(MAX as u64) {
        let Some(at) = map.checked_add(index * stride) else {
            return;
        };
        let Some(entry) = memory.bytes(at, 20) else {
            return;
        };
        if u32_at(entry, 16) == Some(RAM) {
            ram.add(u64_at(entry, 0).unwrap_or(0), u64_at(entry, 8).unwrap_or(0));
        }
    }
}

fn range(start: u64, length: u64) -> Range<u64> {
    match start.checked_add(length) {
        Some(end) => start..end,
        None => 0..0,
    }
}

#[cfg(test)]
mod tests {
    use super::super::physical::fake::Fake;
    use super::*;

    fn memory() -> Fake {
        Fake {
            base: 0x1000,
            bytes: vec![0; 0x4000],
        }
    }

    fn entry(address: u64, length: u64, kind: u32) -> Vec<u8> {
        let mut bytes = address.to_le_bytes().to_vec();
        bytes.extend(length.to_le_bytes());
        bytes.extend(kind.to_le_bytes());
        bytes
    }

    fn pvh() -> Fake {
        let mut memory = memory();
        memory.put(0x1000, &PVH_MAGIC.to_le_bytes());
        memory.put(0x1004, &1_u32.to_le_bytes());
        memory.put(0x100c, &1_u32.to_le_bytes());
        memory.put(0x1010, &0x1800_u64.to_le_bytes());
        memory.put(0x1018, &0x1900_u64.to_le_bytes());
        memory.put(0x1020, &0xe0000_u64.to_le_bytes());
        memory.put(0x1028, &0x1400_u64.to_le_bytes());
        memory.put(0x1030, &3_u32.to_le_bytes());
        memory.put(0x1400, &entry(0, 0xa0000, 1));
        memory.put(0x1418, &entry(0x10_0000, 0x3f0_0000, 1));
        memory.put(0x1430, &entry(0xe000_0000, 0x10_0000, 2));
        memory.put(0x1800, &entry(0x300_0000, 0x1234, 0));
        memory
    }

    #[test]
    fn start_information_is_understood() {
        let handover = parse(&pvh(), Protocol::Pvh, 0x1000).expect("valid");
        assert_eq!(handover.ram.bytes(), 0xa0000 + 0x3f0_0000);
        assert_eq!(handover.initramfs, 0x300_0000..0x300_1234);
        assert_eq!((handover.cmdline, handover.rsdp), (0x1900, 0xe0000));
    }

    #[test]
    fn a_wrong_magic_or_address_is_refused() {
        let mut memory = pvh();
        assert!(parse(&memory, Protocol::Pvh, 0x4ff0).is_none());
        memory.put(0x1000, &[0]);
        assert!(parse(&memory, Protocol::Pvh, 0x1000).is_none());
    }

    #[test]
    fn hostile_counts_and_pointers_end_the_list() {
        let mut memory = pvh();
        memory.put(0x1030, &u32::MAX.to_le_bytes());
        assert!(parse(&memory, Protocol::Pvh, 0x1000).is_some());
        memory.put(0x1028, &(u64::MAX - 3).to_le_bytes());
        let handover = parse(&memory, Protocol::Pvh, 0x1000).expect("valid header");
        assert_eq!(handover.ram.bytes(), 0);
        memory.put(0x1808, &u64::MAX.to_le_bytes());
        let handover = parse(&memory, Protocol::Pvh, 0x1000).expect("valid header");
        assert!(handover.initramfs.is_empty());
    }

    #[test]
    fn boot_parameters_are_understood() {
        let mut memory = memory();
        memory.put(0x1000 + 0x1e8, &[2]);
        memory.put(0x1000 + 0x2d0, &entry(0, 0x9fc00, 1));
        memory.put(0x1000 + 0x2d0 + 20, &entry(0x10_0000, 0x10_0000, 1));
        memory.put(0x1000 + 0x228, &0x2_0000_u32.to_le_bytes());
        memory.put(0x1000 + 0x218, &0x20_0000_u32.to_le_bytes());
        memory.put(0x1000 + 0x21c, &0x400_u32.to_le_bytes());
        let handover = parse(&memory, Protocol::Linux, 0x1000).expect("valid");
        assert_eq!(handover.ram.bytes(), 0x19_fc00);
        assert_eq!(handover.cmdline, 0x2_0000);
        assert_eq!(handover.initramfs, 0x20_0000..0x20_0400);
    }
}
