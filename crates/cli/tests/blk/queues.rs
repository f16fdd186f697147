//! The library OS's driver on a served disk, in QEMU's translator: queues of each length
//! over PCI, and virtio-mmio, whose queues may be longer than QEMU announces.

use std::time::Duration;

use tare_abi::exit::GuestExit;
use tare_vmtest::{Accelerator, MachineType, TestMachine};

use crate::daemon::Daemon;
use crate::support::needs::built;
use crate::support::{TestDir, installed};

const LIMIT: Duration = Duration::from_secs(60);
const JOB: &str = "cif=8 read=50 verify=on count=60 warm_ms=0";

fn loads(machine_type: MachineType, device: &str) {
    let Some(image) = built("blk") else { return };
    if !installed("qemu-system-x86_64") {
        return tare_vmtest::lacks("QEMU is not installed");
    }
    let place = TestDir::new();
    let disk = place.file("disk", &[0; 1 << 20]);
    let daemon = Daemon::start(&place, &format!("{disk},format=raw"));
    let socket = place.path().join("s");
    let chardev = format!("socket,id=c,path={}", socket.display());
    let memory = "memory-backend-memfd,id=m,size=64M,share=on";
    let args = [
        ("-machine", "memory-backend=m"),
        ("-object", memory),
        ("-chardev", &chardev),
        ("-device", device),
    ];
    let machine = TestMachine::new(&image, machine_type, Accelerator::Tcg).cmdline(JOB);
    let machine = args.iter().fold(machine, |machine, (name, value)| {
        machine.argument(name).argument(value)
    });
    let outcome = machine.run(LIMIT).unwrap();
    let console = outcome.console;
    assert_eq!(outcome.exit, Some(GuestExit::Status(0)), "{console}");
    assert!(console.contains("\"mismatches\":0"), "{console}");
    assert!(console.contains("\"done\":true"), "{console}");
    drop(daemon);
}

#[test]
fn a_queue_of_any_length_serves_over_pci() {
    for queue_size in ["", ",queue-size=4", ",queue-size=64", ",queue-size=256"] {
        let device = format!("vhost-user-blk-pci,chardev=c{queue_size}");
        loads(MachineType::Q35, &device);
    }
}

#[test]
fn a_queue_over_mmio_is_longer_than_announced() {
    loads(MachineType::Microvm, "vhost-user-blk,chardev=c");
}
