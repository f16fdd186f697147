//! The same in monitors that are not Tare's: Firecracker and Cloud Hypervisor,
//! where they are installed, and a QEMU that does not name its threads.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use tare_qemu::{Accelerator, CommandLine, GuestSystem, MachineType, PROGRAM};

use super::support::{TestDir, eventually, installed};
use super::{expect_cause, ready};

/// Words for a guest that ticks.
const TICK: &str = "mode=tick hz=500";

/// A monitor, killed when dropped.
struct Monitor(Child);

impl Monitor {
    /// Starts it with the console in a file; returns when the guest begins.
    fn start(command: &mut Command, console: &str) -> Self {
        let child = command
            .stdin(Stdio::null())
            .stdout(std::fs::File::create(console).unwrap())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let monitor = Self(child);
        eventually("the guest begins", || {
            std::fs::read_to_string(console).is_ok_and(|text| text.contains("storm\":"))
        });
        monitor
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Names the tick of a guest in `program`, with the arguments that start it.
fn names_the_tick(program: &str, args: impl FnOnce(&TestDir, &str, &str) -> Vec<String>) {
    let Some((_alone, image)) = ready() else {
        return;
    };
    if !installed(program) {
        tare_vmtest::lacks(format!("{program} is not installed"));
        return;
    }
    let place = TestDir::new();
    let console = place.file("console", b"");
    let args = args(&place, image.to_str().unwrap(), &console);
    let monitor = Monitor::start(Command::new(program).args(args), &console);
    expect_cause(&place, &monitor.0.id().to_string(), "periodic_tick");
}

#[test]
fn why_names_a_tick_in_firecracker() {
    names_the_tick("firecracker", |place, image, _| {
        let config = serde_json::json!({
            "boot-source": {"kernel_image_path": image, "boot_args": TICK},
            "drives": [],
            "machine-config": {"vcpu_count": 1, "mem_size_mib": 64},
        });
        let config = place.file("firecracker.json", config.to_string().as_bytes());
        let args = ["--no-api", "--id", "storm", "--config-file", &config];
        args.map(str::to_owned).into()
    });
}

#[test]
fn why_names_a_tick_in_cloud_hypervisor() {
    names_the_tick("cloud-hypervisor", |_, image, _| {
        let args = ["--kernel", image, "--cmdline", TICK, "--cpus", "boot=1"];
        let more = [
            "--memory",
            "size=64M",
            "--console",
            "off",
            "--serial",
            "tty",
        ];
        args.into_iter().chain(more).map(str::to_owned).collect()
    });
}

#[test]
fn why_finds_the_vcpus_of_a_qemu_that_does_not_name_its_threads() {
    names_the_tick(PROGRAM, |_, image, _| {
        let guest = GuestSystem::LibraryOs;
        let mut line = CommandLine::new(MachineType::Q35, Accelerator::Kvm, guest, 1);
        line.option("-name", "storm")
            .memory_mib(64)
            .kernel(Path::new(image))
            .append(TICK)
            .serial("stdio");
        let args = line.args().iter();
        args.map(|arg| arg.to_str().unwrap().to_owned()).collect()
    });
}
