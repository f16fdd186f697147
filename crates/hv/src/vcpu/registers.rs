//! Registers at entry: segments, control registers, MSRs and the local APIC's pins.

use kvm_bindings::{Msrs, kvm_msr_entry, kvm_regs, kvm_segment, kvm_sregs};
use tare_abi::entry::{
    CODE_SELECTOR, DATA_SELECTOR, EntryMode, EntryState, TASK_SELECTOR, boot_gdt,
};
use tare_abi::layout;

use super::{Vcpu, VcpuError};

const CR0_PE: u64 = 1;
const CR0_ET: u64 = 1 << 4;
const CR0_PG: u64 = 1 << 31;
const CR4_PAE: u64 = 1 << 5;
const EFER_LME: u64 = 1 << 8;
const EFER_LMA: u64 = 1 << 10;
/// Bit 1 of RFLAGS is always set.
const RFLAGS: u64 = 2;

const IA32_MISC_ENABLE: u32 = 0x1a0;
const FAST_STRINGS: u64 = 1;
const IA32_MTRR_DEF_TYPE: u32 = 0x2ff;
/// MTRRs on, default type write-back.
const MTRR_WRITE_BACK: u64 = (1 << 11) | 6;

const LVT_LINT0: usize = 0x350;
const LVT_LINT1: usize = 0x360;
const DELIVERY_EXTINT: u32 = 7 << 8;
const DELIVERY_NMI: u32 = 4 << 8;
const DELIVERY_MASK: u32 = 7 << 8;

impl Vcpu {
    pub(super) fn set_entry_registers(&self, entry: &EntryState) -> Result<(), VcpuError> {
        let mut sregs = self
            .fd
            .get_sregs()
            .map_err(self.failed("read the system registers"))?;
        set_mode(&mut sregs, entry.mode);
        self.fd
            .set_sregs(&sregs)
            .map_err(self.failed("set the system registers"))?;
        let regs = kvm_regs {
            rip: entry.rip,
            rbx: entry.rbx,
            rsi: entry.rsi,
            rsp: entry.rsp,
            rflags: RFLAGS,
            ..Default::default()
        };
        self.fd
            .set_regs(&regs)
            .map_err(self.failed("set the registers"))
    }

    /// What firmware would have set: caching on, fast strings.
    pub(super) fn set_msrs(&self) -> Result<(), VcpuError> {
        let entries = [
            (IA32_MISC_ENABLE, FAST_STRINGS),
            (IA32_MTRR_DEF_TYPE, MTRR_WRITE_BACK),
        ]
        .map(|(index, data)| kvm_msr_entry {
            index,
            data,
            ..Default::default()
        });
        let msrs = Msrs::from_entries(&entries).map_err(|_| VcpuError::Msr {
            register: entries[0].index,
            index: self.index,
        })?;
        let set = self
            .fd
            .set_msrs(&msrs)
            .map_err(self.failed("set the model-specific registers"))?;
        match entries.get(set) {
            None => Ok(()),
            Some(refused) => Err(VcpuError::Msr {
                register: refused.index,
                index: self.index,
            }),
        }
    }

    /// LINT0 takes the PIC's interrupt, LINT1 the NMI, as firmware leaves them
    /// on the first processor (MultiProcessor Specification 1.4, 3.6.2).
    pub(super) fn set_local_interrupts(&self) -> Result<(), VcpuError> {
        let mut lapic = self
            .fd
            .get_lapic()
            .map_err(self.failed("read the local APIC"))?;
        for (register, delivery) in [(LVT_LINT0, DELIVERY_EXTINT), (LVT_LINT1, DELIVERY_NMI)] {
            set_delivery(&mut lapic.regs, register, delivery);
        }
        self.fd
            .set_lapic(&lapic)
            .map_err(self.failed("set the local APIC"))
    }
}

fn set_delivery(page: &mut [std::ffi::c_char], register: usize, delivery: u32) {
    let bytes = &mut page[register..register + 4];
    let mut value = [0; 4];
    for (to, from) in value.iter_mut().zip(bytes.iter()) {
        *to = *from as u8;
    }
    let value = u32::from_le_bytes(value) & !DELIVERY_MASK | delivery;
    for (to, from) in bytes.iter_mut().zip(value.to_le_bytes()) {
        *to = from as std::ffi::c_char;
    }
}

pub(crate) fn set_mode(sregs: &mut kvm_sregs, mode: EntryMode) {
    let gdt = boot_gdt(mode);
    let data = segment(&gdt, DATA_SELECTOR);
    sregs.cs = segment(&gdt, CODE_SELECTOR);
    (sregs.ds, sregs.es, sregs.ss) = (data, data, data);
    (sregs.fs, sregs.gs) = (data, data);
    sregs.tr = segment(&gdt, TASK_SELECTOR);
    sregs.gdt.base = layout::BOOT_GDT;
    sregs.gdt.limit = (size_of_val(&gdt) - 1) as u16;
    sregs.idt.base = 0;
    sregs.idt.limit = 0;
    match mode {
        EntryMode::Protected32 => {
            sregs.cr0 = CR0_PE | CR0_ET;
            sregs.cr4 = 0;
            sregs.efer = 0;
        }
        EntryMode::Long64 { page_table } => {
            sregs.cr0 = CR0_PE | CR0_ET | CR0_PG;
            sregs.cr3 = page_table;
            sregs.cr4 = CR4_PAE;
            sregs.efer = EFER_LME | EFER_LMA;
        }
    }
}

/// The segment register that loading `selector` from `gdt` gives.
fn segment(gdt: &[u64], selector: u16) -> kvm_segment {
    let entry = gdt[usize::from(selector / 8)];
    let bits = |low: u32, count: u32| (entry >> low) & ((1 << count) - 1);
    let limit = bits(0, 16) | bits(48, 4) << 16;
    let granular = bits(55, 1);
    kvm_segment {
        base: bits(16, 24) | bits(56, 8) << 24,
        limit: if granular == 1 {
            (limit << 12 | 0xfff) as u32
        } else {
            limit as u32
        },
        selector,
        type_: bits(40, 4) as u8,
        present: bits(47, 1) as u8,
        dpl: bits(45, 2) as u8,
        db: bits(54, 1) as u8,
        s: bits(44, 1) as u8,
        l: bits(53, 1) as u8,
        g: granular as u8,
        avl: bits(52, 1) as u8,
        unusable: 0,
        padding: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pvh_enters_flat_protected_mode_with_paging_off() {
        let mut sregs = kvm_sregs::default();
        set_mode(&mut sregs, EntryMode::Protected32);
        assert_eq!((sregs.cr0 & CR0_PG, sregs.cr0 & CR0_PE), (0, CR0_PE));
        assert_eq!((sregs.cr4, sregs.efer), (0, 0));
        assert_eq!((sregs.cs.base, sregs.cs.limit), (0, u32::MAX));
        assert_eq!((sregs.cs.db, sregs.cs.l, sregs.cs.type_), (1, 0, 0xb));
        assert_eq!(
            (sregs.ss.base, sregs.ss.limit, sregs.ss.type_),
            (0, u32::MAX, 3)
        );
        assert_eq!((sregs.tr.limit, sregs.tr.type_, sregs.tr.s), (0x67, 0xb, 0));
    }

    #[test]
    fn linux_enters_long_mode() {
        let mut sregs = kvm_sregs::default();
        set_mode(&mut sregs, EntryMode::Long64 { page_table: 0x9000 });
        assert_eq!((sregs.cs.db, sregs.cs.l), (0, 1));
        assert_eq!(sregs.cr3, 0x9000);
        assert_eq!(sregs.efer, EFER_LMA | EFER_LME);
    }

    #[test]
    fn a_pin_keeps_its_other_bits() {
        let mut page = [0; 1024];
        page[LVT_LINT0 + 2] = 1; // masked
        set_delivery(&mut page, LVT_LINT0, DELIVERY_EXTINT);
        assert_eq!(page[LVT_LINT0..LVT_LINT0 + 4], [0, 7, 1, 0]);
    }
}
