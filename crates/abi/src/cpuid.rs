//! CPUID leaves by which a guest recognises Tare's monitor.
//!
//! KVM's own leaves stay at 0x4000_0000 (signature `KVMKVMKVM\0\0\0`,
//! features in 0x4000_0001, frequencies in 0x4000_0010: EAX TSC kHz, EBX APIC
//! bus kHz), so that paravirtual clock and EOI are found where guests look.

/// KVM's signature leaf (Linux `Documentation/virt/kvm/x86/cpuid.rst`).
pub const KVM_SIGNATURE: u32 = 0x4000_0000;
/// KVM's feature leaf.
pub const KVM_FEATURES: u32 = 0x4000_0001;
/// Generic hypervisor frequency leaf: EAX TSC in kHz, EBX APIC bus in kHz.
pub const FREQUENCIES: u32 = 0x4000_0010;
/// Tare's leaf: EAX is [`TARE_VERSION`], EBX ECX EDX hold [`TARE_SIGNATURE`].
pub const TARE: u32 = 0x4000_0100;
/// `TareTareTare`.
pub const TARE_SIGNATURE: [u8; 12] = *b"TareTareTare";
/// Version of this contract.
pub const TARE_VERSION: u32 = 6;
/// The version that added [`TARE_RING`].
pub const TARE_RING_SINCE: u32 = 2;
/// From this version on the functions of PCI bus 0 take the first device numbers without a
/// gap, one a device: a guest that finds none at a number need not look at the next. Every
/// BAR that exists has an address, and configuration space by memory takes reads of 8 bytes.
pub const TARE_DENSE_BUS_SINCE: u32 = 3;
/// From this version on RAM is zero at the start, but for the first MiB, the image and the initramfs with
/// the rest of its last page.
pub const TARE_ZEROED_SINCE: u32 = 4;
/// From this version on the monitor takes requests at [`crate::ports::HUGE_PAGE`].
pub const TARE_HUGE_PAGES_SINCE: u32 = 5;
/// From this version on signals for a guest's program are at [`crate::ports::SIGNAL`].
pub const TARE_SIGNALS_SINCE: u32 = 6;
/// The leaf behind it: EAX is the processor ring, 0 or 3, in which a library-OS image
/// is to run.
pub const TARE_RING: u32 = TARE + 1;
