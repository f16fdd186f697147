//! A machine of a few MiB with a few bytes of code.

use std::sync::OnceLock;

use tare_abi::entry::{EntryMode, EntryState, boot_gdt};
use tare_abi::layout::{BOOT_GDT, MIB};
use tare_hv::{Exit, Kvm, Probe, Vcpu, Vm, guest_memory};
use tare_vmtest::or_skip;
use vm_memory::{Bytes, GuestAddress};

/// Where the code begins.
pub(crate) const CODE: u64 = 0x10_0000;
/// A page for the guest's data.
pub(crate) const DATA: u64 = 0x11_0000;
/// Where 64-bit code has its stack.
const STACK_TOP: u64 = 0x12_0000;
const PML4: u64 = 0x13_0000;
const PDPT: u64 = 0x13_1000;

const PROTECTED_32: EntryState = EntryState {
    mode: EntryMode::Protected32,
    rip: CODE,
    rbx: 0x6000,
    rsi: 0,
    rsp: STACK_TOP,
};

const LONG_64: EntryState = EntryState {
    mode: EntryMode::Long64 { page_table: PML4 },
    ..PROTECTED_32
};

/// KVM and its probe; `None` after printing why the test is skipped.
pub(crate) fn kvm() -> Option<(&'static Kvm, &'static Probe)> {
    static KVM: OnceLock<Option<(Kvm, Probe)>> = OnceLock::new();
    let opened = KVM.get_or_init(|| {
        let kvm = or_skip(Kvm::open())?;
        let probe = Probe::run(&kvm).unwrap();
        Some((kvm, probe))
    });
    opened.as_ref().map(|(kvm, probe)| (kvm, probe))
}

/// A machine and its first vCPU, about to execute `code`.
pub(crate) struct TestVm {
    // Before `vm`, as a vCPU uses the machine's memory.
    pub vcpu: Vcpu,
    pub vm: Vm,
}

impl TestVm {
    /// As the PVH protocol enters: 32-bit, paging off.
    pub(crate) fn protected(code: &[u8]) -> Option<Self> {
        Self::new(code, PROTECTED_32, 1)
    }

    /// 64-bit code with the lowest 4 GiB identity mapped.
    pub(crate) fn long(code: &[u8]) -> Option<Self> {
        Self::new(code, LONG_64, 1)
    }

    /// 32-bit code on the first of `cpus` vCPUs.
    pub(crate) fn of_many(code: &[u8], cpus: u8) -> Option<Self> {
        Self::new(code, PROTECTED_32, cpus)
    }

    fn new(code: &[u8], entry: EntryState, cpus: u8) -> Option<Self> {
        let (kvm, probe) = kvm()?;
        let memory = guest_memory(4 * MIB).unwrap();
        let words = |at: u64, values: &[u64]| {
            let bytes: Vec<u8> = values.iter().flat_map(|it| it.to_le_bytes()).collect();
            memory.write_slice(&bytes, GuestAddress(at)).unwrap();
        };
        words(BOOT_GDT, &boot_gdt(entry.mode));
        words(PML4, &[PDPT | 3]);
        // Four pages of 1 GiB need a feature; page directories of 2 MiB pages do not.
        for gib in 0..4 {
            let directory = PDPT + 0x1000 * (gib + 1);
            words(PDPT + 8 * gib, &[directory | 3]);
            let pages: Vec<u64> = (0..512).map(|it| gib << 30 | it << 21 | 0x83).collect();
            words(directory, &pages);
        }
        memory.write_slice(code, GuestAddress(CODE)).unwrap();
        let vm = Vm::new(kvm, &memory).unwrap();
        let vcpu = vm.vcpu(probe, 0, cpus, 0).unwrap();
        vcpu.enter_at(&entry).unwrap();
        Some(Self { vcpu, vm })
    }

    /// Puts bytes into guest memory.
    pub(crate) fn write(&self, at: u64, bytes: &[u8]) {
        self.vm
            .memory()
            .write_slice(bytes, GuestAddress(at))
            .unwrap();
    }

    /// Runs until the guest writes to a port; the port and what was written.
    pub(crate) fn port_write(&mut self) -> (u16, Vec<u8>) {
        match self.vcpu.run().unwrap() {
            Exit::PioOut { port, data, .. } => (port, data.to_vec()),
            other => panic!("{other:#?}"),
        }
    }
}
