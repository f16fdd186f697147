//! Guests that cannot go on.

use tare_abi::entry::CODE_SELECTOR;
use tare_hv::{CrashCause, Exit, KvmKind, ProbeOutcome};

use crate::machine::{CODE, DATA, TestVm, kvm};

const UD2: [u8; 2] = [0x0f, 0x0b];
/// paddd xmm0, xmm0: valid, and not in KVM's emulator.
const PADDD: [u8; 4] = [0x66, 0x0f, 0xfe, 0xc0];

#[test]
fn a_triple_fault_is_a_shutdown_with_registers() {
    // mov eax, 0xdeadbeef; ud2, without an interrupt table
    let code = [&[0xb8, 0xef, 0xbe, 0xad, 0xde], &UD2[..]].concat();
    let Some(mut machine) = TestVm::protected(&code) else {
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
    if probe.kind == KvmKind::Hardware {
        tare_vmtest::lacks("this KVM is hardware, it executes every instruction");
        return;
    }
    // nop; paddd
    let code = [&[0x90], &PADDD[..]].concat();
    let mut machine = TestVm::long(&code).unwrap();
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
fn a_breakpoint_reaches_its_handler_and_returns_behind_it() {
    const HANDLER: usize = 0x100;
    const VECTOR: u64 = 3;
    let handler = CODE + HANDLER as u64;
    // lidt [DATA + 0x800]; int3; out 0x81, al
    let mut code = vec![0x0f, 0x01, 0x1c, 0x25];
    code.extend((DATA as u32 + 0x800).to_le_bytes());
    let behind = CODE + code.len() as u64 + 1;
    code.extend([0xcc, 0xe6, 0x81]);
    code.resize(HANDLER, 0x90);
    // mov rax, [rsp]; out 0x80, eax; iretq
    code.extend([0x48, 0x8b, 0x04, 0x24, 0xe7, 0x80, 0x48, 0xcf]);
    let Some(mut machine) = TestVm::long(&code) else {
        return;
    };
    let low = handler & 0xffff | u64::from(CODE_SELECTOR) << 16 | 0x8e << 40;
    machine.write(
        DATA + 16 * VECTOR,
        &(low | handler >> 16 << 48).to_le_bytes(),
    );
    machine.write(DATA + 0x800, &0xfff_u16.to_le_bytes());
    machine.write(DATA + 0x802, &DATA.to_le_bytes());
    let mut emulated = 0;
    let mut writes = Vec::new();
    while writes.len() < 2 {
        match machine.vcpu.run().unwrap() {
            Exit::Emulated => emulated += 1,
            Exit::PioOut { port, data, .. } => writes.push((port, data.to_vec())),
            other => panic!("{other:#?}"),
        }
    }
    assert_eq!(writes[0], (0x80, (behind as u32).to_le_bytes().to_vec()));
    assert_eq!(writes[1].0, 0x81);
    let (_, probe) = kvm().unwrap();
    let lacks = probe.outcome("int3") == Some(ProbeOutcome::NotEmulated);
    assert_eq!(emulated, usize::from(lacks));
}

#[test]
fn waiting_for_the_x87_unit_goes_on() {
    // fninit; fwait; out 0x80, al
    let Some(mut machine) = TestVm::long(&[0xdb, 0xe3, 0x9b, 0xe6, 0x80]) else {
        return;
    };
    let mut emulated = 0;
    loop {
        match machine.vcpu.run().unwrap() {
            Exit::Emulated => emulated += 1,
            Exit::PioOut { port, .. } => break assert_eq!(port, 0x80),
            other => panic!("{other:#?}"),
        }
    }
    let (_, probe) = kvm().unwrap();
    let lacks = probe.outcome("fwait") == Some(ProbeOutcome::NotEmulated);
    assert_eq!(emulated, usize::from(lacks));
}

#[test]
fn the_probe_finds_what_the_processor_refuses() {
    let Some((_, probe)) = kvm() else {
        return;
    };
    assert_eq!(probe.outcome("ud2"), Some(ProbeOutcome::Works));
    assert_eq!(probe.outcome("cpuid"), Some(ProbeOutcome::Works));
    assert_eq!(probe.outcome("no such instruction"), None);
    if probe.kind == KvmKind::Hardware {
        assert_eq!(probe.broken().count(), 0, "{probe}");
    } else {
        assert_eq!(probe.outcome("paddd"), Some(ProbeOutcome::NotEmulated));
    }
    println!("{probe}");
}
