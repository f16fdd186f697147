//! The CPUID of a Tare machine: what KVM supports, without what the probe found not to work, with
//! this vCPU's place in the topology, the clocks' frequencies, and Tare's own leaf.
//!
//! Topology: one package, one thread a core, all cores in one. Reference: Intel SDM volume 2A,
//! CPUID; AMD APM volume 3, appendix E; `Documentation/virt/kvm/x86/cpuid.rst`.

use kvm_bindings::{CpuId, KVM_CPUID_FLAG_SIGNIFCANT_INDEX, kvm_cpuid_entry2};
use tare_abi::cpuid::{
    FREQUENCIES, KVM_FEATURES, KVM_SIGNATURE, TARE, TARE_RING, TARE_SIGNATURE, TARE_VERSION,
};

use crate::probe::Probe;

const FEATURES: u32 = 1;
const CACHES: u32 = 4;
const TOPOLOGY: [u32; 2] = [0xb, 0x1f];
const TSC_RATIO: u32 = 0x15;
const AMD_SIZES: u32 = 0x8000_0008;
const AMD_CACHES: u32 = 0x8000_001d;
const AMD_TOPOLOGY: u32 = 0x8000_001e;

const ECX_X2APIC: u32 = 1 << 21;
const ECX_TSC_DEADLINE: u32 = 1 << 24;
const ECX_HYPERVISOR: u32 = 1 << 31;
const EDX_HTT: u32 = 1 << 28;

/// KVM's local APIC timer counts nanoseconds (`APIC_BUS_FREQUENCY`).
const APIC_BUS_KHZ: u32 = 1_000_000;

/// A vCPU's place in the machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Topology {
    /// Index and APIC ID.
    pub(crate) index: u8,
    /// vCPUs of the machine.
    pub(crate) count: u8,
}

impl Topology {
    /// Bits of an APIC ID that tell cores apart.
    fn core_bits(self) -> u32 {
        u32::from(self.count.max(1)).next_power_of_two().ilog2()
    }
}

/// The leaves for one vCPU; `None` if they are more than KVM's interface takes.
pub(crate) fn build(
    probe: &Probe,
    topology: Topology,
    tsc_khz: Option<u32>,
    ring: u8,
) -> Option<CpuId> {
    let mut leaves = Leaves(probe.supported_cpuid().to_vec());
    leaves.hide_what_does_not_work(probe);
    leaves.set_features(topology);
    leaves.set_caches(topology);
    leaves.set_topology(topology);
    leaves.set_amd_topology(topology);
    leaves.add_hypervisor_leaves(tsc_khz, ring);
    if let Some(khz) = tsc_khz {
        leaves.add_tsc_ratio(khz);
    }
    CpuId::from_entries(&leaves.0).ok()
}

struct Leaves(Vec<kvm_cpuid_entry2>);

impl Leaves {
    fn hide_what_does_not_work(&mut self, probe: &Probe) {
        for feature in probe.hidden_features() {
            for entry in &mut self.0 {
                feature.clear(entry);
            }
        }
        for entry in self.all(KVM_FEATURES) {
            entry.eax = probe.paravirtual_features();
        }
    }

    fn set_features(&mut self, topology: Topology) {
        let logical = 1_u32 << topology.core_bits();
        for entry in self.all(FEATURES) {
            entry.ebx = entry.ebx & 0xffff | logical << 16 | u32::from(topology.index) << 24;
            entry.ecx |= ECX_X2APIC | ECX_TSC_DEADLINE | ECX_HYPERVISOR;
            if topology.count > 1 {
                entry.edx |= EDX_HTT;
            } else {
                entry.edx &= !EDX_HTT;
            }
        }
    }

    /// Intel's caches: cores in the package in EAX bits 26 to 31, sharers of a
    /// cache in bits 14 to 25 (only the last level is shared).
    fn set_caches(&mut self, topology: Topology) {
        let cores = (1_u32 << topology.core_bits()) - 1;
        for entry in self.all(CACHES).filter(|entry| entry.eax & 0x1f != 0) {
            let level = entry.eax >> 5 & 7;
            let sharers = if level >= 3 { cores } else { 0 };
            entry.eax = entry.eax & 0x3fff | sharers << 14 | cores << 26;
        }
    }

    fn set_topology(&mut self, topology: Topology) {
        let present = |leaf| self.0.iter().any(|entry| entry.function == leaf);
        for leaf in TOPOLOGY
            .into_iter()
            .filter(|leaf| present(*leaf))
            .collect::<Vec<_>>()
        {
            self.0.retain(|entry| entry.function != leaf);
            self.0.extend(topology_leaf(leaf, topology));
        }
    }

    fn set_amd_topology(&mut self, topology: Topology) {
        let bits = topology.core_bits();
        for entry in self.all(AMD_SIZES) {
            entry.ecx = entry.ecx & !0xf0ff | bits << 12 | (u32::from(topology.count) - 1);
        }
        for entry in self.all(AMD_CACHES).filter(|entry| entry.eax & 0x1f != 0) {
            let level = entry.eax >> 5 & 7;
            let sharers = if level >= 3 { (1 << bits) - 1 } else { 0 };
            entry.eax = entry.eax & 0x3fff | sharers << 14;
        }
        for entry in self.all(AMD_TOPOLOGY) {
            entry.eax = u32::from(topology.index);
            entry.ebx = u32::from(topology.index);
            entry.ecx = 0;
        }
    }

    /// Keeps KVM's own leaves; appends the frequencies and Tare's leaf.
    fn add_hypervisor_leaves(&mut self, tsc_khz: Option<u32>, ring: u8) {
        for entry in self.all(KVM_SIGNATURE) {
            entry.eax = entry.eax.max(TARE_RING);
        }
        self.0
            .retain(|entry| ![FREQUENCIES, TARE, TARE_RING].contains(&entry.function));
        if let Some(khz) = tsc_khz {
            self.0.push(kvm_cpuid_entry2 {
                function: FREQUENCIES,
                eax: khz,
                ebx: APIC_BUS_KHZ,
                ..Default::default()
            });
        }
        self.0.push(tare_leaf());
        self.0.push(kvm_cpuid_entry2 {
            function: TARE_RING,
            eax: ring.into(),
            ..Default::default()
        });
    }

    /// TSC frequency as crystal times ratio. Guests use the crystal for the APIC timer's clock as
    /// well, so it has that value.
    fn add_tsc_ratio(&mut self, tsc_khz: u32) {
        let told = |entry: &kvm_cpuid_entry2| entry.function == TSC_RATIO && entry.ecx != 0;
        if self.0.iter().any(told) {
            return;
        }
        self.0.retain(|entry| entry.function != TSC_RATIO);
        self.0.push(kvm_cpuid_entry2 {
            function: TSC_RATIO,
            eax: APIC_BUS_KHZ,
            ebx: tsc_khz,
            ecx: APIC_BUS_KHZ * 1000,
            ..Default::default()
        });
        for entry in self.all(0) {
            entry.eax = entry.eax.max(TSC_RATIO);
        }
    }

    fn all(&mut self, leaf: u32) -> impl Iterator<Item = &mut kvm_cpuid_entry2> {
        self.0
            .iter_mut()
            .filter(move |entry| entry.function == leaf)
    }
}

/// Levels of leaf 0xb and 0x1f: threads (one), cores, end.
fn topology_leaf(leaf: u32, topology: Topology) -> [kvm_cpuid_entry2; 3] {
    const THREADS: u32 = 1;
    const CORES: u32 = 2;
    let level = |index: u32, kind: u32, shift: u32, count: u32| kvm_cpuid_entry2 {
        function: leaf,
        index,
        flags: KVM_CPUID_FLAG_SIGNIFCANT_INDEX,
        eax: shift,
        ebx: count,
        ecx: index | kind << 8,
        edx: u32::from(topology.index),
        ..Default::default()
    };
    [
        level(0, THREADS, 0, 1),
        level(1, CORES, topology.core_bits(), u32::from(topology.count)),
        level(2, 0, 0, 0),
    ]
}

fn tare_leaf() -> kvm_cpuid_entry2 {
    let word = |index: usize| {
        TARE_SIGNATURE[4 * index..]
            .first_chunk()
            .map_or(0, |bytes| u32::from_le_bytes(*bytes))
    };
    kvm_cpuid_entry2 {
        function: TARE,
        eax: TARE_VERSION,
        ebx: word(0),
        ecx: word(1),
        edx: word(2),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::{HYPERCALLS, KvmKind, testing};

    fn entry(function: u32, [eax, ebx, ecx, edx]: [u32; 4]) -> kvm_cpuid_entry2 {
        kvm_cpuid_entry2 {
            function,
            eax,
            ebx,
            ecx,
            edx,
            ..Default::default()
        }
    }

    fn supported() -> Vec<kvm_cpuid_entry2> {
        vec![
            entry(0, [0x10, 0, 0, 0]),
            entry(1, [0, 0xff01_0800, 1 << 23, EDX_HTT]),
            entry(4, [0x21, 0, 0, 0]),
            entry(4, [0x63, 0, 0, 0]),
            entry(0xb, [7, 7, 7, 7]),
            entry(KVM_SIGNATURE, [KVM_SIGNATURE + 1, 0, 0, 0]),
            entry(KVM_FEATURES, [HYPERCALLS | 1, 0, 0, 0]),
            entry(AMD_SIZES, [0, 0, 0x3007, 0]),
        ]
    }

    fn built(index: u8, count: u8) -> Vec<kvm_cpuid_entry2> {
        let probe = testing::probe(supported(), &[]);
        let topology = Topology { index, count };
        let cpuid = build(&probe, topology, Some(2_450_000), 3).unwrap();
        cpuid.as_slice().to_vec()
    }

    fn leaf(leaves: &[kvm_cpuid_entry2], function: u32) -> kvm_cpuid_entry2 {
        *leaves.iter().find(|it| it.function == function).unwrap()
    }

    #[test]
    fn each_vcpu_finds_its_own_apic_id() {
        let leaves = built(2, 3);
        let features = leaf(&leaves, 1);
        assert_eq!(features.ebx, 0x0204_0800);
        assert_ne!(features.edx & EDX_HTT, 0);
        let levels: Vec<_> = leaves.iter().filter(|it| it.function == 0xb).collect();
        assert_eq!(levels.len(), 3);
        assert!(levels.iter().all(|level| level.edx == 2));
        assert_eq!((levels[1].eax, levels[1].ebx, levels[1].ecx), (2, 3, 0x201));
        assert_eq!(leaf(&leaves, AMD_SIZES).ecx, 0x2002);
    }

    #[test]
    fn a_single_vcpu_has_no_siblings() {
        let leaves = built(0, 1);
        assert_eq!(leaf(&leaves, 1).edx & EDX_HTT, 0);
        assert_eq!(leaf(&leaves, 1).ebx >> 16, 1);
        assert_eq!(leaf(&leaves, 4).eax, 0x21);
    }

    #[test]
    fn only_the_last_cache_is_shared() {
        let leaves = built(0, 4);
        let caches: Vec<_> = leaves.iter().filter(|it| it.function == 4).collect();
        assert_eq!(caches[0].eax >> 14 & 0xfff, 0);
        assert_eq!(caches[1].eax >> 14 & 0xfff, 3);
        assert_eq!(caches[1].eax >> 26, 3);
    }

    #[test]
    fn timers_and_hypervisor_are_announced() {
        let leaves = built(0, 1);
        let wanted = ECX_HYPERVISOR | ECX_X2APIC | ECX_TSC_DEADLINE;
        assert_eq!(leaf(&leaves, 1).ecx & wanted, wanted);
        assert_eq!(leaf(&leaves, FREQUENCIES).eax, 2_450_000);
        assert_eq!(leaf(&leaves, FREQUENCIES).ebx, 1_000_000);
        let ratio = leaf(&leaves, TSC_RATIO);
        let hertz = u64::from(ratio.ecx) * u64::from(ratio.ebx) / u64::from(ratio.eax);
        assert_eq!(hertz, 2_450_000_000);
        assert_eq!(leaf(&leaves, 0).eax, TSC_RATIO);
    }

    #[test]
    fn the_signature_of_tare_is_within_the_announced_leaves() {
        let leaves = built(0, 1);
        assert_eq!(leaf(&leaves, KVM_SIGNATURE).eax, TARE_RING);
        assert_eq!(leaf(&leaves, TARE_RING).eax, 3);
        let tare = leaf(&leaves, TARE);
        assert_eq!(tare.eax, TARE_VERSION);
        assert_eq!(tare.ebx.to_le_bytes(), *b"Tare");
    }

    #[test]
    fn hypercalls_are_offered_by_hardware_only() {
        let offered = |kind| {
            let mut probe = testing::probe(supported(), &[]);
            probe.kind = kind;
            let topology = Topology { index: 0, count: 1 };
            leaf(
                build(&probe, topology, None, 0).unwrap().as_slice(),
                KVM_FEATURES,
            )
            .eax
        };
        assert_eq!(offered(KvmKind::Hardware), HYPERCALLS | 1);
        assert_eq!(offered(KvmKind::Emulated), 1);
    }

    #[test]
    fn features_that_do_not_work_are_hidden() {
        let probe = testing::probe(supported(), &["popcnt"]);
        let topology = Topology { index: 0, count: 1 };
        let cpuid = build(&probe, topology, None, 0).unwrap();
        assert_eq!(leaf(cpuid.as_slice(), 1).ecx & 1 << 23, 0);
        let leaves = built(0, 1);
        assert_ne!(leaf(&leaves, 1).ecx & 1 << 23, 0);
    }
}
