//! Guests that cannot go on.

use tare_hv::{CrashCause, Exit, Kind};

use crate::machine::{CODE, Machine, kvm};

const UD2: [u8; 2] = [0x0f, 0x0b];
/// paddd xmm0, xmm0: valid, and not in KVM's emulator.
const PADDD: [u8; 4] = [0x66, 0x0f, 0xfe, 0xc0];

#[test]
fn a_triple_fault_is_a_shutdown_with_registers() {
    // mov eax, 0xdeadbeef; ud2, without an interrupt table
    let code = [&[0xb8, 0xef, 0xbe, 0xad, 0xde], &UD2[..]].concat();
    let Some(mut machine) = Machine::protected(&code) else {
        return;
    };
    let Exit::Shutdown(crash) = machine.vcpu.run().unwrap() else {
        panic!("no shutdown");
    };
    assert_eq!(crash.cause, CrashCause::Shutdown);
    assert!(crash.regs.is_some(), "{crash}");
    assert!(crash.to_string().contains("triple fault"), "{crash}");
}

#[test]
fn an_instruction_that_kvm_lacks_is_an_internal_error_with_its_bytes() {
    let Some((_, probe)) = kvm() else {
        return;
    };
    if probe.kind == Kind::Hardware {
        println!("SKIP: this KVM is hardware, it executes every instruction");
        return;
    }
    // nop; paddd
    let code = [&[0x90], &PADDD[..]].concat();
    let mut machine = Machine::long(&code).unwrap();
    let Exit::InternalError(crash) = machine.vcpu.run().unwrap() else {
        panic!("no internal error");
    };
    assert!(matches!(
        crash.cause,
        CrashCause::InternalError { suberror: 1, .. }
    ));
    assert_eq!(crash.regs.unwrap().rip, CODE + 1);
    assert_eq!(crash.code.as_ref().unwrap().from_rip[..4], PADDD);
    assert!(crash.to_string().contains("<66> 0f fe c0"), "{crash}");
}

#[test]
fn the_probe_finds_what_the_processor_refuses() {
    let Some((_, probe)) = kvm() else {
        return;
    };
    assert_eq!(probe.outcome("ud2"), Some(tare_hv::Outcome::Works));
    assert_eq!(probe.outcome("cpuid"), Some(tare_hv::Outcome::Works));
    assert_eq!(probe.outcome("no such instruction"), None);
    if probe.kind == Kind::Hardware {
        assert_eq!(probe.broken().count(), 0, "{probe}");
    } else {
        assert_eq!(probe.outcome("paddd"), Some(tare_hv::Outcome::NotEmulated));
    }
    println!("{probe}");
}
