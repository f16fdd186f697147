//! Port and memory accesses, with their sizes and data.

use tare_hv::{Exit, KvmKind};

use crate::machine::{DATA, TestVm, kvm};

#[test]
fn a_port_write_carries_port_width_and_data() {
    // mov eax, 0x12345678; out 0x80, eax; out 0x80, al
    let code = [0xb8, 0x78, 0x56, 0x34, 0x12, 0xe7, 0x80, 0xe6, 0x80];
    let Some(mut machine) = TestVm::protected(&code) else {
        return;
    };
    match machine.vcpu.run().unwrap() {
        Exit::PioOut { port, width, data } => {
            assert_eq!(
                (port, width, data),
                (0x80, 4, &[0x78, 0x56, 0x34, 0x12][..])
            );
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(machine.port_write(), (0x80, vec![0x78]));
}

#[test]
fn a_port_read_gets_its_answer() {
    // in al, 0x71; out 0x80, al
    let Some(mut machine) = TestVm::protected(&[0xe4, 0x71, 0xe6, 0x80]) else {
        return;
    };
    match machine.vcpu.run().unwrap() {
        Exit::PioIn { port, width, data } => {
            assert_eq!((port, width, data.len()), (0x71, 1, 1));
            data.copy_from_slice(&[0x5a]);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(machine.port_write(), (0x80, vec![0x5a]));
}

#[test]
fn a_string_write_arrives_whole_with_the_width_of_an_item() {
    let mut code = vec![0xbe]; // mov esi, DATA
    code.extend((DATA as u32).to_le_bytes());
    code.extend([0xb9, 3, 0, 0, 0]); // mov ecx, 3
    code.extend([0x66, 0xba, 0xf8, 0x03]); // mov dx, 0x3f8
    code.extend([0xfc, 0xf3, 0x6e]); // cld; rep outsb
    code.extend([0xe6, 0x80]); // out 0x80, al
    let Some(mut machine) = TestVm::protected(&code) else {
        return;
    };
    machine.write(DATA, b"abc");
    let mut written = Vec::new();
    while written.len() < 3 {
        match machine.vcpu.run().unwrap() {
            Exit::PioOut { port, width, data } => {
                assert_eq!((port, width), (0x3f8, 1));
                written.extend_from_slice(data);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(written, b"abc");
    assert_eq!(machine.port_write().0, 0x80);
}

#[test]
fn memory_that_is_not_ram_is_read_and_written_by_the_monitor() {
    // mov eax, [0xc0001000]; mov [0xc0001004], eax
    let code = [0xa1, 0, 0x10, 0, 0xc0, 0xa3, 4, 0x10, 0, 0xc0];
    let Some(mut machine) = TestVm::protected(&code) else {
        return;
    };
    match machine.vcpu.run().unwrap() {
        Exit::MmioRead { address, data } => {
            assert_eq!((address, data.len()), (0xc000_1000, 4));
            data.copy_from_slice(&[1, 2, 3, 4]);
        }
        other => panic!("{other:?}"),
    }
    match machine.vcpu.run().unwrap() {
        Exit::MmioWrite { address, data } => {
            assert_eq!((address, data), (0xc000_1004, &[1, 2, 3, 4][..]));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_entry_has_the_start_info_in_rbx() {
    // mov eax, ebx; out 0x80, eax
    let Some(mut machine) = TestVm::protected(&[0x89, 0xd8, 0xe7, 0x80]) else {
        return;
    };
    assert_eq!(machine.port_write().1, 0x6000_u32.to_le_bytes());
}

#[test]
fn the_guest_recognises_tare_by_cpuid() {
    // mov eax, 0x40000100; cpuid; mov eax, ebx; out 0x80, eax
    let code = [0xb8, 0, 1, 0, 0x40, 0x0f, 0xa2, 0x89, 0xd8, 0xe7, 0x80];
    let Some(mut machine) = TestVm::protected(&code) else {
        return;
    };
    assert_eq!(machine.port_write().1, b"Tare");
}

#[test]
fn instructions_of_ring_0_are_counted_where_they_are_emulated() {
    // 1000 turns of a loop: mov ecx, 1000; 1: dec ecx; jnz 1b; out 0x80, al
    let code = [0xb9, 0xe8, 3, 0, 0, 0x49, 0x75, 0xfd, 0xe6, 0x80];
    let (Some(mut machine), Some((_, probe))) = (TestVm::protected(&code), kvm()) else {
        return;
    };
    let Ok(stats) = machine.vcpu.stats() else {
        tare_vmtest::lacks("KVM has no statistics descriptors");
        return;
    };
    let count = || stats.scalar("insn_emulation").unwrap().unwrap();
    let before = count();
    machine.port_write();
    let emulated = count() - before;
    match probe.kind {
        KvmKind::Emulated => assert!((2001..2010).contains(&emulated), "{emulated}"),
        KvmKind::Hardware => assert!(emulated < 100, "{emulated}"),
    }
    let names: Vec<_> = stats.read().unwrap().iter().map(|it| it.name).collect();
    assert!(names.contains(&"halt_exits"), "{names:?}");
    assert!(names.contains(&"halt_wait_hist"), "{names:?}");
}
