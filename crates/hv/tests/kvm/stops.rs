//! Stopping a vCPU that does not stop by itself, and settings of a machine.

use std::thread;
use std::time::{Duration, Instant};

use tare_hv::{DisableExits, Exit};

use crate::machine::{TestVm, kvm};

/// jmp to itself.
const FOR_EVER: [u8; 2] = [0xeb, 0xfe];

#[test]
fn a_kick_ends_a_loop_without_exits() {
    let Some(mut machine) = TestVm::protected(&FOR_EVER) else {
        return;
    };
    let kick_handle = machine.vcpu.kick_handle();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(20));
            kick_handle.kick();
        });
        assert!(matches!(machine.vcpu.run().unwrap(), Exit::Interrupted));
    });
}

#[test]
fn a_kick_before_the_run_is_not_lost_and_ends_one_run_only() {
    // out 0x80, al; jmp to the begin
    let Some(mut machine) = TestVm::protected(&[0xe6, 0x80, 0xeb, 0xfc]) else {
        return;
    };
    machine.vcpu.kick_handle().kick();
    assert!(matches!(machine.vcpu.run().unwrap(), Exit::Interrupted));
    assert_eq!(machine.port_write().0, 0x80);
    assert_eq!(machine.port_write().0, 0x80);
}

#[test]
fn many_kicks_stop_a_vcpu_wherever_they_meet_it() {
    let Some(mut machine) = TestVm::protected(&[0xe6, 0x80, 0xeb, 0xfc]) else {
        return;
    };
    let kick_handle = machine.vcpu.kick_handle();
    let deadline = Instant::now() + Duration::from_secs(20);
    for _ in 0..200 {
        thread::scope(|scope| {
            scope.spawn(|| kick_handle.kick());
            while !matches!(machine.vcpu.run().unwrap(), Exit::Interrupted) {
                assert!(Instant::now() < deadline, "a kick was lost");
            }
        });
    }
}

#[test]
fn a_kick_of_a_vcpu_that_is_gone_does_nothing() {
    let Some(machine) = TestVm::protected(&FOR_EVER) else {
        return;
    };
    let kick_handle = machine.vcpu.kick_handle();
    drop(machine);
    kick_handle.kick();
}

#[test]
fn halt_polling_and_exits_can_be_set_for_each_machine() {
    let (Some(machine), Some((_, probe))) = (TestVm::protected(&[]), kvm()) else {
        return;
    };
    if probe.capabilities.halt_poll {
        machine.vm.set_halt_poll_ns(0).unwrap();
        machine.vm.set_halt_poll_ns(200_000).unwrap();
    } else {
        assert!(machine.vm.set_halt_poll_ns(0).is_err());
    }
    // Too late: the machine has a vCPU.
    assert!(machine.vm.disable_exits(DisableExits::HLT).is_err());
}
