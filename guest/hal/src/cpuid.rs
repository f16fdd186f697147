//! What CPUID says that the image acts on. The leaves are read once, in ring 0 on
//! the first CPU: where KVM emulates ring 0, CPUID in ring 3 gives the host's.

#![allow(unsafe_code)]

use core::arch::x86_64::{__cpuid, CpuidResult};
use core::cell::UnsafeCell;

use crate::ring;

use tare_abi::cpuid::{
    FREQUENCIES, KVM_FEATURES, KVM_SIGNATURE, TARE, TARE_DENSE_BUS_SINCE, TARE_HUGE_PAGES_SINCE,
    TARE_RING, TARE_RING_SINCE, TARE_SIGNALS_SINCE, TARE_SIGNATURE, TARE_ZEROED_SINCE,
};

/// Structured extended features, subleaf 0.
const FEATURES: u32 = 7;
/// Extended state (XSAVE), subleaf 0.
const EXTENDED_STATE: u32 = 0xd;
const EXTENDED: u32 = 0x8000_0000;
/// The leaves that are kept.
const LEAVES: [u32; 11] = [
    0,
    1,
    FEATURES,
    EXTENDED_STATE,
    0x15,
    KVM_SIGNATURE,
    KVM_FEATURES,
    FREQUENCIES,
    TARE,
    TARE_RING,
    EXTENDED + 1,
];
const NOTHING: CpuidResult = CpuidResult {
    eax: 0,
    ebx: 0,
    ecx: 0,
    edx: 0,
};

struct Kept(UnsafeCell<[CpuidResult; LEAVES.len()]>);
// SAFETY: 1. `init` writes the leaves on the first CPU, before the others start and before anything
//    reads them (`boot::start`). 2. Nothing writes them afterwards.
unsafe impl Sync for Kept {}
static KEPT: Kept = Kept(UnsafeCell::new([NOTHING; LEAVES.len()]));

/// Reads the leaves. In ring 0, on the first CPU, before anything else of this
/// module.
pub(crate) fn init() {
    let highest = __cpuid(0).eax;
    let has_hypervisor = __cpuid(1).ecx & (1 << 31) != 0;
    let highest_of_hypervisor = if has_hypervisor {
        __cpuid(KVM_SIGNATURE).eax
    } else {
        0
    };
    for (index, leaf) in LEAVES.into_iter().enumerate() {
        let last = match leaf {
            EXTENDED.. => __cpuid(EXTENDED).eax,
            KVM_SIGNATURE.. => highest_of_hypervisor.max(KVM_SIGNATURE * u32::from(has_hypervisor)),
            _ => highest,
        };
        if leaf <= last {
            // SAFETY: 1. In `init`, on the only CPU that runs: no reference to the leaves exists.
            //    2. The index is one of `LEAVES`, of which the array has as many.
            unsafe { (*KEPT.0.get())[index] = __cpuid(leaf) };
        }
    }
}

/// A leaf that is kept; zeros where the processor has no such leaf.
fn leaf(leaf: u32) -> CpuidResult {
    let index = LEAVES.iter().position(|known| *known == leaf);
    // SAFETY: 1. Nothing writes the leaves after `init`, which `boot::start` calls before anything
    //    reads them. 2. The index is one of `LEAVES`.
    index.map_or(NOTHING, |index| unsafe { (*KEPT.0.get())[index] })
}

/// The ring that Tare's monitor wants the image to run in, 0 or 3.
pub(crate) fn tare_ring() -> Option<u8> {
    is_tare_since(TARE_RING_SINCE).then(|| leaf(TARE_RING).eax as u8)
}

/// Whether this is Tare's monitor.
pub(crate) fn is_tare() -> bool {
    is_tare_since(0)
}

/// Whether QEMU's translator executes the image (`target/i386/cpu.c`, leaf 0x40000000).
pub(crate) fn is_translated() -> bool {
    const SIGNATURE: &[u8] = b"TCGTCGTCGTCG";
    let hypervisor = leaf(KVM_SIGNATURE);
    let signature = [hypervisor.ebx, hypervisor.ecx, hypervisor.edx].map(u32::to_le_bytes);
    signature.as_flattened() == SIGNATURE
}

/// Whether PCI functions take the first device numbers of bus 0 without a gap.
pub(crate) fn has_dense_bus() -> bool {
    is_tare_since(TARE_DENSE_BUS_SINCE)
}

/// Whether RAM was zero at the start, where nothing was loaded.
pub(crate) fn has_zeroed_ram() -> bool {
    is_tare_since(TARE_ZEROED_SINCE)
}

/// Whether the monitor takes requests for huge pages.
pub(crate) fn takes_huge_pages() -> bool {
    is_tare_since(TARE_HUGE_PAGES_SINCE)
}

/// Whether the monitor has signals for programs.
pub(crate) fn has_signals() -> bool {
    is_tare_since(TARE_SIGNALS_SINCE)
}

/// Whether this is Tare's monitor with this version of the contract, or a later one.
fn is_tare_since(version: u32) -> bool {
    let tare = leaf(TARE);
    let signature = [tare.ebx, tare.ecx, tare.edx].map(u32::to_le_bytes);
    signature.as_flattened() == TARE_SIGNATURE && tare.eax >= version
}

/// Whether pages can have 1 GiB.
pub(crate) fn has_gib_pages() -> bool {
    leaf(EXTENDED + 1).edx & (1 << 26) != 0
}

/// Whether hypercalls are made by VMMCALL, as on processors with SVM, and not by VMCALL.
pub(crate) fn has_vmmcall() -> bool {
    is_vendor_with_svm(leaf(0).ebx)
}

/// The first word of the vendor's name: AuthenticAMD and HygonGenuine (Linux,
/// `X86_FEATURE_VMMCALL`).
const fn is_vendor_with_svm(ebx: u32) -> bool {
    ebx == u32::from_le_bytes(*b"Auth") || ebx == u32::from_le_bytes(*b"Hygo")
}

/// The parts of the extended state that the processor supports, as XCR0's low bits,
/// and the bytes that XSAVE writes for them at most; `None` without XSAVE.
pub(crate) fn extended_state() -> Option<(u32, u32)> {
    let state = leaf(EXTENDED_STATE);
    (leaf(1).ecx & (1 << 26) != 0).then_some((state.eax, state.ecx))
}

/// Whether ring 3 can write FS.base and GS.base itself.
pub(crate) fn has_fsgsbase() -> bool {
    leaf(FEATURES).ebx & 1 != 0
}

/// Whether ring 0 can be kept from executing ring 3's pages.
pub(crate) fn has_smep() -> bool {
    leaf(FEATURES).ebx & (1 << 7) != 0
}

/// Whether ring 3 can be kept from reading the addresses of descriptor tables.
pub(crate) fn has_umip() -> bool {
    leaf(FEATURES).ecx & (1 << 2) != 0
}

/// The first CPU's APIC ID.
pub(crate) fn first_apic_id() -> u32 {
    leaf(1).ebx >> 24
}

const FEATURE_CLOCKSOURCE2: u32 = 1 << 3;
const FEATURE_PV_EOI: u32 = 1 << 6;
const FEATURE_PV_SEND_IPI: u32 = 1 << 11;
const FEATURE_CLOCKSOURCE_STABLE: u32 = 1 << 24;
/// APIC bus of KVM, unless a leaf says otherwise (kernel `arch/x86/kvm/lapic.h`).
const KVM_APIC_KHZ: u32 = 1_000_000;

/// Whether the image can use the local APIC's registers as MSRs: ring 3 cannot.
pub(crate) fn has_x2apic() -> bool {
    !ring::is_user() && leaf(1).ecx & (1 << 21) != 0
}

/// Whether the image can set the local timer's deadlines in TSC ticks, by an MSR.
pub(crate) fn has_tsc_deadline() -> bool {
    !ring::is_user() && leaf(1).ecx & (1 << 24) != 0
}

/// Whether KVM offers its EOI flag.
pub(crate) fn has_pv_eoi() -> bool {
    kvm_features() & FEATURE_PV_EOI != 0
}

/// Whether KVM takes interrupts to several CPUs in one call.
pub(crate) fn has_pv_send_ipi() -> bool {
    kvm_features() & FEATURE_PV_SEND_IPI != 0
}

/// Whether KVM reports that its clock is the same on all CPUs, as it is where
/// their counters are synchronous.
pub(crate) fn has_stable_clock() -> bool {
    kvm_features() & FEATURE_CLOCKSOURCE_STABLE != 0
}

/// Whether KVM offers its clock by the newer MSRs.
pub(crate) fn has_pv_clock() -> bool {
    kvm_features() & FEATURE_CLOCKSOURCE2 != 0
}

/// TSC frequency in kHz, where CPUID gives it.
pub(crate) fn tsc_khz() -> Option<u32> {
    hypervisor_khz().map(|(tsc, _)| tsc).or_else(crystal_khz)
}

/// APIC timer frequency in kHz, where CPUID gives it.
pub(crate) fn apic_khz() -> Option<u32> {
    let told = hypervisor_khz()
        .map(|(_, apic)| apic)
        .filter(|&khz| khz != 0);
    told.or_else(|| is_kvm().then_some(KVM_APIC_KHZ))
}

fn hypervisor_khz() -> Option<(u32, u32)> {
    if !has_hypervisor() || leaf(KVM_SIGNATURE).eax < FREQUENCIES {
        return None;
    }
    let khz = leaf(FREQUENCIES);
    (khz.eax != 0).then_some((khz.eax, khz.ebx))
}

/// Leaf 0x15: crystal clock in Hz and the TSC's ratio to it.
fn crystal_khz() -> Option<u32> {
    if leaf(0).eax < 0x15 {
        return None;
    }
    let ratio = leaf(0x15);
    let (denominator, numerator, hz) = (
        u64::from(ratio.eax),
        u64::from(ratio.ebx),
        u64::from(ratio.ecx),
    );
    if denominator == 0 || numerator == 0 || hz == 0 {
        return None;
    }
    u32::try_from(hz * numerator / denominator / 1000).ok()
}

fn kvm_features() -> u32 {
    if is_kvm() { leaf(KVM_FEATURES).eax } else { 0 }
}

fn is_kvm() -> bool {
    if !has_hypervisor() {
        return false;
    }
    let kvm = leaf(KVM_SIGNATURE);
    [kvm.ebx, kvm.ecx, kvm.edx] == [0x4b4d_564b, 0x564b_4d56, 0x4d]
}

fn has_hypervisor() -> bool {
    leaf(1).ecx & (1 << 31) != 0
}
