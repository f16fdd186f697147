//! Interrupts by event descriptor, and writes that only signal one.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use tare_hv::{IoAddress, KickHandle, MsiMessage, StatsFd, VmError, WriteMatch};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use crate::machine::{CODE, DATA, TestVm};

const GSI: u32 = 24;
const VECTOR: u8 = 0x41;
const HANDLER: u64 = CODE + 0x100;
const IDT: u64 = DATA + 0x100;

/// Enables the APIC, prints R, and waits for an interrupt, whose handler prints H.
fn waiting_machine() -> Option<TestVm> {
    let mut code = vec![0xbf]; // mov edi, 0xfee000f0
    code.extend(0xfee0_00f0_u32.to_le_bytes());
    code.extend([0xc7, 0x07, 0xff, 0x01, 0, 0]); // mov dword [rdi], 0x1ff
    waiting_after(code)
}

/// Executes `code`, then as [`waiting_machine`].
fn waiting_after(mut code: Vec<u8>) -> Option<TestVm> {
    code.extend([0x0f, 0x01, 0x1c, 0x25]); // lidt [DATA]
    code.extend((DATA as u32).to_le_bytes());
    code.extend([0xb0, b'R', 0xe6, 0x80]); // mov al, 'R'; out 0x80, al
    code.extend([0xfb, 0xf4]); // sti; hlt
    code.extend([0xb0, b'?', 0xe6, 0x80]);
    let machine = TestVm::long(&code)?;
    machine.write(HANDLER, &[0xb0, b'H', 0xe6, 0x80]);
    machine.write(DATA, &0xfff_u16.to_le_bytes());
    machine.write(DATA + 2, &IDT.to_le_bytes());
    let gate = HANDLER & 0xffff | 0x10 << 16 | 0x8e00 << 32 | (HANDLER >> 16) << 48;
    machine.write(IDT + 16 * u64::from(VECTOR), &gate.to_le_bytes());
    Some(machine)
}

fn message() -> MsiMessage {
    MsiMessage {
        address: 0xfee0_0000,
        data: u32::from(VECTOR),
    }
}

#[test]
fn an_irqfd_wakes_a_halted_vcpu() {
    let Some(mut machine) = waiting_machine() else {
        return;
    };
    let event = EventFd::new(EFD_NONBLOCK).unwrap();
    machine.vm.msi_route(GSI, message()).unwrap();
    machine.vm.irqfd(GSI, &event).unwrap();
    let stats = machine.vcpu.stats().ok();
    assert_eq!(machine.port_write().1, b"R");
    thread::scope(|scope| {
        scope.spawn(|| {
            wait_for_halt(stats.as_ref());
            event.write(1).unwrap();
        });
        assert_eq!(machine.port_write().1, b"H");
    });
}

/// mov ecx, register; mov eax, value; xor edx, edx; wrmsr
fn write_msr(register: u32, value: u32) -> Vec<u8> {
    let mut code = vec![0xb9];
    code.extend(register.to_le_bytes());
    code.push(0xb8);
    code.extend(value.to_le_bytes());
    code.extend([0x31, 0xd2, 0x0f, 0x30]);
    code
}

#[test]
fn the_tsc_deadline_timer_wakes_a_halted_vcpu() {
    const APIC_BASE: u32 = 0x1b;
    const SVR: u32 = 0x80f;
    const LVT_TIMER: u32 = 0x832;
    const TSC_DEADLINE_MODE: u32 = 2 << 17;
    let mut code = [
        write_msr(APIC_BASE, 0xfee0_0d00), // first processor, enabled, x2APIC
        write_msr(SVR, 0x1ff),
        write_msr(LVT_TIMER, TSC_DEADLINE_MODE | u32::from(VECTOR)),
    ]
    .concat();
    code.extend([0x0f, 0x31]); // rdtsc
    code.push(0x05); // add eax, 20,000,000
    code.extend(20_000_000_u32.to_le_bytes());
    code.extend([0x83, 0xd2, 0]); // adc edx, 0
    code.extend([0xb9, 0xe0, 0x06, 0, 0, 0x0f, 0x30]); // mov ecx, 0x6e0; wrmsr
    let Some(mut machine) = waiting_after(code) else {
        return;
    };
    assert_eq!(machine.port_write().1, b"R");
    let kick_handle = machine.vcpu.kick_handle();
    let (done, waiting) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            if waiting.recv_timeout(Duration::from_secs(5)) == Err(RecvTimeoutError::Timeout) {
                kick_handle.kick();
            }
        });
        assert_eq!(machine.port_write().1, b"H");
        drop(done);
    });
}

fn wait_for_halt(stats: Option<&StatsFd>) {
    let halted =
        || stats.is_none_or(|stats| stats.scalar("blocking").unwrap().is_none_or(|it| it == 1));
    for _ in 0..500 {
        thread::sleep(Duration::from_millis(2));
        if halted() {
            return;
        }
    }
    panic!("the vCPU does not halt");
}

#[test]
fn a_masked_route_delivers_nothing() {
    let Some(mut machine) = waiting_machine() else {
        return;
    };
    let event = EventFd::new(EFD_NONBLOCK).unwrap();
    machine.vm.msi_route(GSI, message()).unwrap();
    machine.vm.irqfd(GSI, &event).unwrap();
    machine.vm.remove_msi_route(GSI).unwrap();
    assert_eq!(machine.port_write().1, b"R");
    let kick_handle: KickHandle = machine.vcpu.kick_handle();
    thread::scope(|scope| {
        scope.spawn(|| {
            event.write(1).unwrap();
            thread::sleep(Duration::from_millis(50));
            kick_handle.kick();
        });
        assert_eq!(machine.vcpu.run().unwrap().name(), "interrupted");
    });
}

#[test]
fn an_ioapic_pin_carries_no_message() {
    let Some(machine) = TestVm::protected(&[]) else {
        return;
    };
    let limit = machine.vm.gsi_limit();
    for gsi in [0, 23, limit] {
        assert!(matches!(
            machine.vm.msi_route(gsi, message()),
            Err(VmError::Gsi { .. })
        ));
    }
    machine.vm.msi_route(limit - 1, message()).unwrap();
}

#[test]
fn an_ioeventfd_takes_a_write_of_any_length_without_an_exit() {
    // mov [0xc0001000], eax; mov [0xc0001000], al; out 0x80, al
    let code = [0xa3, 0, 0x10, 0, 0xc0, 0xa2, 0, 0x10, 0, 0xc0, 0xe6, 0x80];
    let Some(mut machine) = TestVm::protected(&code) else {
        return;
    };
    let event = EventFd::new(EFD_NONBLOCK).unwrap();
    let address = IoAddress::Memory(0xc000_1000);
    machine
        .vm
        .ioeventfd(address, WriteMatch::Any, &event)
        .unwrap();
    assert_eq!(machine.port_write().0, 0x80);
    assert_eq!(event.read().unwrap(), 2);
}

#[test]
fn an_ioeventfd_with_a_value_lets_other_values_through() {
    // mov eax, 7; out 0x90, ax; mov eax, 8; out 0x90, ax
    let code = [
        0xb8, 7, 0, 0, 0, 0x66, 0xe7, 0x90, 0xb8, 8, 0, 0, 0, 0x66, 0xe7, 0x90,
    ];
    let Some(mut machine) = TestVm::protected(&code) else {
        return;
    };
    let event = EventFd::new(EFD_NONBLOCK).unwrap();
    let (address, value) = (IoAddress::Port(0x90), WriteMatch::Word(7));
    machine.vm.ioeventfd(address, value, &event).unwrap();
    assert_eq!(machine.port_write(), (0x90, vec![8, 0]));
    assert_eq!(event.read().unwrap(), 1);
}

#[test]
fn two_event_descriptors_cannot_share_an_address() {
    let Some(machine) = TestVm::protected(&[]) else {
        return;
    };
    let event = EventFd::new(EFD_NONBLOCK).unwrap();
    let address = IoAddress::Memory(0xc000_1000);
    let bind = || machine.vm.ioeventfd(address, WriteMatch::Any, &event);
    bind().unwrap();
    let error = bind().unwrap_err();
    assert!(error.to_string().contains("c0001000"), "{error}");
}
