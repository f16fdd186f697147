//! What CPUID says that the image acts on.

use core::arch::x86_64::__cpuid;

use tare_abi::cpuid::{FREQUENCIES, KVM_FEATURES, KVM_SIGNATURE};

const FEATURE_CLOCKSOURCE2: u32 = 1 << 3;
const FEATURE_PV_EOI: u32 = 1 << 6;
const FEATURE_PV_SEND_IPI: u32 = 1 << 11;
const FEATURE_CLOCKSOURCE_STABLE: u32 = 1 << 24;
/// APIC bus of KVM, unless a leaf says otherwise (kernel `arch/x86/kvm/lapic.h`).
const KVM_APIC_KHZ: u32 = 1_000_000;

/// Whether the local APIC has registers as MSRs.
pub(crate) fn has_x2apic() -> bool {
    __cpuid(1).ecx & (1 << 21) != 0
}

/// Whether the local timer takes deadlines in TSC ticks.
pub(crate) fn has_tsc_deadline() -> bool {
    __cpuid(1).ecx & (1 << 24) != 0
}

/// Whether KVM offers its EOI flag.
pub(crate) fn has_pv_eoi() -> bool {
    kvm_features() & FEATURE_PV_EOI != 0
}

/// Whether KVM takes interrupts to several CPUs in one call.
pub(crate) fn has_pv_send_ipi() -> bool {
    kvm_features() & FEATURE_PV_SEND_IPI != 0
}

/// Whether KVM says that its clock is the same on all CPUs, as it is where their
/// counters are synchronous.
pub(crate) fn has_stable_clock() -> bool {
    kvm_features() & FEATURE_CLOCKSOURCE_STABLE != 0
}

/// Whether KVM offers its clock by the newer MSRs.
pub(crate) fn has_pv_clock() -> bool {
    kvm_features() & FEATURE_CLOCKSOURCE2 != 0
}

/// TSC frequency in kHz where CPUID tells it.
pub(crate) fn tsc_khz() -> Option<u32> {
    hypervisor_khz().map(|(tsc, _)| tsc).or_else(crystal_khz)
}

/// APIC timer frequency in kHz where CPUID tells it.
pub(crate) fn apic_khz() -> Option<u32> {
    let told = hypervisor_khz()
        .map(|(_, apic)| apic)
        .filter(|&khz| khz != 0);
    told.or_else(|| is_kvm().then_some(KVM_APIC_KHZ))
}

fn hypervisor_khz() -> Option<(u32, u32)> {
    if !has_hypervisor() || __cpuid(KVM_SIGNATURE).eax < FREQUENCIES {
        return None;
    }
    let leaf = __cpuid(FREQUENCIES);
    (leaf.eax != 0).then_some((leaf.eax, leaf.ebx))
}

/// Leaf 0x15: crystal clock in Hz and the TSC's ratio to it.
fn crystal_khz() -> Option<u32> {
    if __cpuid(0).eax < 0x15 {
        return None;
    }
    let leaf = __cpuid(0x15);
    let (denominator, numerator, hz) = (
        u64::from(leaf.eax),
        u64::from(leaf.ebx),
        u64::from(leaf.ecx),
    );
    if denominator == 0 || numerator == 0 || hz == 0 {
        return None;
    }
    u32::try_from(hz * numerator / denominator / 1000).ok()
}

fn kvm_features() -> u32 {
    match is_kvm() {
        true => __cpuid(KVM_FEATURES).eax,
        false => 0,
    }
}

fn is_kvm() -> bool {
    if !has_hypervisor() {
        return false;
    }
    let leaf = __cpuid(KVM_SIGNATURE);
    [leaf.ebx, leaf.ecx, leaf.edx] == [0x4b4d_564b, 0x564b_4d56, 0x4d]
}

fn has_hypervisor() -> bool {
    __cpuid(1).ecx & (1 << 31) != 0
}
