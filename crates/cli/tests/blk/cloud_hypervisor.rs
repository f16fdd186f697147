//! Cloud Hypervisor, where it is installed, with Tare's load generator.

use std::process::Command;

use crate::daemon::Daemon;
use crate::support::{TestDir, installed, needs};

#[test]
fn a_guest_of_cloud_hypervisor_reads_and_writes() {
    if !installed("cloud-hypervisor") {
        // Debian has no package of it: nothing that a test may require.
        tare_vmtest::lacks("cloud-hypervisor is not installed");
        return;
    }
    if !needs::kvm() {
        return;
    }
    let Some(image) = needs::built("blk") else {
        return;
    };
    let place = TestDir::new();
    let disk = place.file("d.img", &[0; 8 << 20]);
    let daemon = Daemon::start(&place, &format!("{disk},queues=1"));
    let socket = place.path().join("s");
    let drive = format!(
        "vhost_user=true,socket={},num_queues=1,queue_size=256",
        socket.display()
    );
    let ended = Command::new("timeout")
        .args(["60", "cloud-hypervisor", "--cpus", "boot=1"])
        .args(["--memory", "size=128M,shared=on", "--kernel"])
        .arg(image)
        .args(["--cmdline", "console=ttyS0 cif=8 read=50 count=200"])
        .args(["--disk", &drive])
        .args(["--serial", "tty", "--console", "off"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(said.contains("\"completed\":200,"), "{said}");
    assert!(said.contains("\"errors\":0,"), "{said}");
    assert!(daemon.counter("reads") > 0 && daemon.counter("writes") > 0);
    assert_eq!(daemon.counter("protocol_errors"), 0);
}
