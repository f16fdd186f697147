//! Two vCPUs: the first starts the second by INIT and a start-up interrupt.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tare_abi::layout::AP_TRAMPOLINE;
use tare_hv::{Exit, Vcpu};

use crate::machine::{TestVm, kvm};

const SVR: u32 = 0xfee0_00f0;
const ICR_LOW: u32 = 0xfee0_0300;
const ICR_HIGH: u32 = 0xfee0_0310;
const INIT: u32 = 0x4500;
const START_UP: u32 = 0x4600 | (AP_TRAMPOLINE >> 12) as u32;

/// mov dword [address], value
fn store(address: u32, value: u32) -> Vec<u8> {
    let mut code = vec![0xc7, 0x05];
    code.extend(address.to_le_bytes());
    code.extend(value.to_le_bytes());
    code
}

#[test]
fn the_second_vcpu_starts_in_its_trampoline_and_knows_its_id() {
    let mut code = [
        store(SVR, 0x1ff),
        store(ICR_HIGH, 1 << 24),
        store(ICR_LOW, INIT),
        store(ICR_LOW, START_UP),
    ]
    .concat();
    code.extend([0xe6, 0x80, 0xeb, 0xfe]); // out 0x80, al; jmp to itself
    let (Some(mut machine), Some((_, probe))) = (TestVm::of_many(&code, 2), kvm()) else {
        return;
    };
    // mov eax, 1; cpuid; mov eax, ebx; out 0x81, eax; hlt, in 16-bit code
    let trampoline = [
        0x66, 0xb8, 1, 0, 0, 0, 0x0f, 0xa2, 0x66, 0x89, 0xd8, 0x66, 0xe7, 0x81, 0xf4,
    ];
    machine.write(AP_TRAMPOLINE, &trampoline);
    let mut second = machine.vm.vcpu(probe, 1, 2, 0).unwrap();
    let kick_handle = second.kick_handle();
    let (said, heard) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || said.send(first_write(&mut second)));
        assert_eq!(machine.port_write().0, 0x80);
        let word = heard.recv_timeout(Duration::from_secs(10));
        kick_handle.kick();
        assert_eq!(word.unwrap().map(|ebx| ebx >> 24), Some(1));
    });
}

/// What a vCPU writes first; `None` if it was interrupted before.
fn first_write(vcpu: &mut Vcpu) -> Option<u32> {
    match vcpu.run().unwrap() {
        Exit::PioOut { port, data, .. } => {
            assert_eq!(port, 0x81);
            Some(u32::from_le_bytes(data.try_into().unwrap()))
        }
        Exit::Interrupted => None,
        other => panic!("{other:?}"),
    }
}
