//! Classes of counts, as `bpf/kvm.bpf.c` numbers them, and their keys.

use crate::kvm::device;
use tare_account::{Access, ExitKind, IpiMode, IpiTarget, IrqLine, Isa, Step};

pub(super) const MSR: u32 = 1;
pub(super) const PORT: u32 = 2;
pub(super) const MEMORY: u32 = 3;
pub(super) const APIC: u32 = 4;
pub(super) const CPUID: u32 = 5;
pub(super) const HYPERCALL: u32 = 6;
pub(super) const USER: u32 = 7;
pub(super) const HARDWARE: u32 = 8;
pub(super) const VARIOUS: u32 = 9;
pub(super) const LINE: u32 = 16;
pub(super) const LINE_INTERVAL: u32 = 17;
pub(super) const ACCEPT: u32 = 18;
pub(super) const ACCEPT_INTERVAL: u32 = 19;
pub(super) const IPI: u32 = 20;
pub(super) const PIC: u32 = 21;
pub(super) const HALT: u32 = 32;
pub(super) const HALT_WAIT: u32 = 33;
pub(super) const POLL_SUCCESS: u32 = 34;
pub(super) const POLL_WASTED: u32 = 35;
pub(super) const ARM_INTERVAL: u32 = 36;
pub(super) const STEP: u32 = 37;
pub(super) const AWAKE: u32 = 38;
pub(super) const RUN_DELAY: u32 = 48;
pub(super) const PREEMPTED: u32 = 49;
pub(super) const TAKEN: u32 = 50;

const MSI: u32 = 1 << 31;
const VMX: u32 = 1;

/// A key of the map of counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) tgid: u32,
    pub(super) tid: u32,
    pub(super) class: u32,
    pub(super) a: u32,
    pub(super) b: u64,
}

impl From<[u64; 3]> for Key {
    fn from([ids, class, b]: [u64; 3]) -> Self {
        Self {
            tgid: ids as u32,
            tid: (ids >> 32) as u32,
            class: class as u32,
            a: (class >> 32) as u32,
            b,
        }
    }
}

impl Key {
    /// The exit that this key counts, if it is one.
    pub(super) fn exit(&self) -> Option<ExitKind> {
        let access = match self.a {
            0 => Access::Read,
            _ => Access::Write,
        };
        let number = self.b as u32;
        Some(match self.class {
            MSR => ExitKind::Msr {
                index: number,
                access,
            },
            PORT => ExitKind::Port {
                port: self.b as u16,
                access,
                device: device::at_port(self.b as u16),
            },
            MEMORY => ExitKind::Memory {
                page: self.b,
                access,
                device: device::at_page(self.b),
            },
            APIC => ExitKind::Apic {
                register: number,
                access,
            },
            CPUID => ExitKind::Cpuid { leaf: number },
            HYPERCALL => ExitKind::Hypercall { number: self.b },
            USER => ExitKind::UserSpace { reason: number },
            HALT => ExitKind::Halt,
            HARDWARE => ExitKind::Hardware {
                isa: match self.a {
                    VMX => Isa::Vmx,
                    _ => Isa::Svm,
                },
                reason: number,
            },
            VARIOUS => ExitKind::Various,
            _ => return None,
        })
    }

    /// The vCPU's thread, of a class that only those count.
    pub(super) fn vcpu(&self) -> Option<u32> {
        matches!(self.class, MSR..=VARIOUS | IPI | HALT).then_some(self.tid)
    }

    /// Whether this counts what a thread does, and not how long something took.
    pub(super) fn is_act(&self) -> bool {
        matches!(self.class, MSR..=VARIOUS | LINE | ACCEPT | IPI | PIC)
    }

    pub(super) fn line(&self) -> IrqLine {
        match self.a & MSI {
            0 => IrqLine::Gsi(self.a),
            _ => IrqLine::Msi {
                vector: self.a as u8,
            },
        }
    }

    /// The bucket of a histogram's class.
    pub(super) fn bucket(&self) -> u32 {
        self.b as u32
    }

    pub(super) fn step(&self) -> Option<Step> {
        const STEPS: [Step; 7] = [
            Step::Send,
            Step::Kick,
            Step::Schedule,
            Step::Return,
            Step::Entry,
            Step::Handler,
            Step::Total,
        ];
        STEPS.get(self.a as usize).copied()
    }

    pub(super) fn ipi(&self) -> (IpiMode, IpiTarget, u8) {
        let mode = match self.a >> 8 & 7 {
            0 => IpiMode::Fixed,
            1 => IpiMode::LowestPriority,
            2 => IpiMode::Smi,
            4 => IpiMode::Nmi,
            5 => IpiMode::Init,
            6 => IpiMode::Startup,
            _ => IpiMode::Reserved,
        };
        let target = match self.a >> 18 & 3 {
            0 => IpiTarget::Destination,
            1 => IpiTarget::Myself,
            2 => IpiTarget::All,
            _ => IpiTarget::Others,
        };
        (mode, target, self.a as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_taken_apart_as_the_program_puts_it_together() {
        let key = Key::from([7 | 9 << 32, u64::from(MSR) | 1 << 32, 0x6e0]);
        assert_eq!((key.tgid, key.tid), (7, 9));
        let expected = ExitKind::Msr {
            index: 0x6e0,
            access: Access::Write,
        };
        assert_eq!(key.exit(), Some(expected));
    }

    #[test]
    fn an_icr_says_mode_shorthand_and_vector() {
        let key = |icr: u64| Key::from([0, u64::from(IPI) | icr << 32, 0]);
        assert_eq!(
            key(0xfd).ipi(),
            (IpiMode::Fixed, IpiTarget::Destination, 0xfd)
        );
        assert_eq!(key(0xc0400).ipi(), (IpiMode::Nmi, IpiTarget::Others, 0));
        assert_eq!(
            key(0x600 | 8).ipi(),
            (IpiMode::Startup, IpiTarget::Destination, 8)
        );
    }
}
