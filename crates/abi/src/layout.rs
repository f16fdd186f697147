//! Guest-physical memory map of a Tare machine.
//!
//! ```text
//! 0x0000_0000  low memory: boot structures below 1 MiB
//! 0x0010_0000  first address an image may occupy
//! ...          image, free memory, initramfs at the top of low RAM
//! 0xc000_0000  PCI memory window (BARs)
//! 0xe000_0000  PCI configuration space by memory (ECAM), one bus
//! 0xfec0_0000  IOAPIC      0xfee0_0000 local APIC
//! 0x1_0000_0000 RAM beyond the first 3 GiB
//! ```

/// One KiB, MiB and GiB in bytes.
pub const KIB: u64 = 1 << 10;
/// One MiB in bytes.
pub const MIB: u64 = 1 << 20;
/// One GiB in bytes.
pub const GIB: u64 = 1 << 30;

/// Flat GDT that the vCPU state refers to at entry.
pub const BOOT_GDT: u64 = 0x500;
/// `hvm_start_info` of the PVH boot protocol.
pub const PVH_START_INFO: u64 = 0x6000;
/// Its memory map (`hvm_memmap_table_entry[]`).
pub const PVH_MEMMAP: u64 = 0x7000;
/// Its module list (`hvm_modlist_entry[]`), for the initramfs.
pub const PVH_MODLIST: u64 = 0x7800;
/// Linux boot parameters (zero page), for the 64-bit Linux protocol.
pub const ZERO_PAGE: u64 = 0x8000;
/// Real-mode page where a guest may put its start-up code for further CPUs.
pub const AP_TRAMPOLINE: u64 = 0xa000;
/// Page table at a 64-bit entry, six pages: the first 4 GiB at their own addresses.
pub const BOOT_PAGE_TABLE: u64 = 0xb000;
/// Kernel command line, NUL terminated.
pub const CMDLINE: u64 = 0x2_0000;
/// Longest command line in bytes, with its NUL.
pub const CMDLINE_MAX: usize = 4096;
/// The same of a Linux kernel for x86, which cuts what is longer (`COMMAND_LINE_SIZE` of Linux's
/// `arch/x86/include/asm/setup.h`).
pub const LINUX_CMDLINE_MAX: usize = 2048;
/// Extended BIOS data area; RSDP and the other ACPI tables follow.
pub const RSDP: u64 = 0xe_0000;
/// First byte after the area reserved for ACPI tables.
pub const ACPI_END: u64 = 0x10_0000;
/// First address that an image may occupy.
pub const HIGH_RAM: u64 = MIB;

/// End of low RAM and begin of the hole for devices.
pub const MMIO_GAP_START: u64 = 3 * GIB;
/// RAM beyond the hole starts here.
pub const MMIO_GAP_END: u64 = 4 * GIB;
/// Window from which BARs are assigned.
pub const PCI_MMIO_START: u64 = MMIO_GAP_START;
/// Bytes in that window.
pub const PCI_MMIO_SIZE: u64 = 512 * MIB;
/// Configuration space by memory, bus 0 only (PCI Firmware Specification 3.3, 4.1).
pub const PCI_ECAM_START: u64 = 0xe000_0000;
/// Bytes of configuration space: 32 devices of 8 functions of 4 KiB.
pub const PCI_ECAM_SIZE: u64 = MIB;
/// IOAPIC registers.
pub const IOAPIC: u64 = 0xfec0_0000;
/// Local APIC registers (xAPIC mode).
pub const LAPIC: u64 = 0xfee0_0000;
/// Three pages that KVM on VT-x wants for its task state segment.
pub const KVM_TSS: u64 = 0xfffb_d000;

/// Smallest memory size in MiB that a Tare machine takes.
pub const MIN_MEMORY_MIB: u32 = 8;
/// Most vCPUs of a Tare machine.
pub const MAX_CPUS: u8 = 16;
