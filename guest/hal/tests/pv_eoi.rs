//! KVM's flag that saves ends of interrupts, as a CPU and KVM share it: KVM sets it when it delivers
//! an interrupt whose end it need not see, and takes it back at an exit, for instance because
//! another interrupt waits (Linux `Documentation/virt/kvm/x86/msr.rst`, `MSR_KVM_PV_EOI_EN`;
//! `arch/x86/kvm/lapic.c`, `apic_sync_pv_eoi_from_guest`). Each order of the CPU's instructions and
//! of exits is tried.

use std::collections::HashSet;

/// The instruction that the CPU runs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    /// Looks at the flag, and by one instruction takes it as well.
    Look,
    /// Clears the flag that it saw.
    Clear,
    /// Writes the register.
    Write,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State {
    at: At,
    flag: bool,
    /// KVM set the flag, and has not looked at it since.
    offered: bool,
    is_in_service: bool,
}

impl State {
    /// The CPU's next instruction.
    fn step(self, one_instruction: bool) -> Self {
        let mut state = self;
        state.at = match self.at {
            At::Look if !self.flag => At::Write,
            At::Look if one_instruction => {
                state.flag = false;
                At::Done
            }
            At::Look => At::Clear,
            At::Clear => {
                state.flag = false;
                At::Done
            }
            At::Write => {
                state.is_in_service = false;
                At::Done
            }
            At::Done => At::Done,
        };
        state
    }

    /// KVM looks at an exit: a flag that is clear was taken, so the interrupt has ended; one that is
    /// set is taken back, so that the CPU writes the register.
    fn exit(self) -> Self {
        if !self.offered {
            return self;
        }
        Self {
            flag: false,
            offered: false,
            is_in_service: self.flag && self.is_in_service,
            ..self
        }
    }
}

/// An order after which the interrupt is in service though the CPU has ended it.
fn one_never_ended(one_instruction: bool) -> Option<State> {
    let mut open = vec![State {
        at: At::Look,
        flag: true,
        offered: true,
        is_in_service: true,
    }];
    let mut seen = HashSet::new();
    while let Some(state) = open.pop() {
        if !seen.insert(state) {
            continue;
        }
        // What KVM still offers ends at the next exit.
        if state.at == At::Done && state.exit().is_in_service {
            return Some(state);
        }
        open.extend([state.step(one_instruction), state.exit()]);
    }
    None
}

#[test]
fn an_interrupt_is_ended_whenever_kvm_takes_its_flag_back() {
    assert_eq!(one_never_ended(true), None);
}

#[test]
fn a_flag_that_is_read_and_then_written_is_found() {
    assert!(one_never_ended(false).is_some());
}
