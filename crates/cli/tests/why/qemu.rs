//! The `storm` image in QEMU with KVM.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;
use serde_json::json;
use tare_host::child::ends_with_us;
use tare_qemu::qmp::Qmp;

use super::support::{IO_TIMEOUT, TestDir, eventually};

/// Firmware with a twentieth of SeaBIOS's instructions; microvm has its own.
const FIRMWARE: &str = "/usr/share/qemu/qboot.rom";

/// A machine, killed when dropped.
pub(super) struct Qemu {
    child: Child,
    console: String,
}

impl Qemu {
    /// Returns when the guest begins.
    pub(super) fn start(
        place: &TestDir,
        image: &Path,
        model: &str,
        cmdline: &str,
        more: &[&str],
    ) -> Self {
        let qemu = Self::spawn(place, image, model, cmdline, more);
        qemu.until_it_prints("storm\":");
        qemu
    }

    /// Returns at once.
    pub(super) fn spawn(
        place: &TestDir,
        image: &Path,
        model: &str,
        cmdline: &str,
        more: &[&str],
    ) -> Self {
        let console = place.file("console", b"");
        let mut command = Command::new("qemu-system-x86_64");
        command
            .args(["-name", "storm-in-qemu,debug-threads=on", "-M", model])
            .args(["-accel", "kvm", "-cpu", "host,-arch-capabilities,-cx16"])
            .args(["-m", "64", "-kernel", image.to_str().unwrap()])
            .args(["-append", cmdline, "-nodefaults", "-display", "none"])
            .args(["-serial", &format!("file:{console}")])
            .args(more);
        let has_own = model.starts_with("microvm") || more.contains(&"-bios");
        if !has_own && Path::new(FIRMWARE).is_file() {
            command.args(["-bios", FIRMWARE]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null());
        // Also if the tests are killed.
        let child = ends_with_us(&mut command, Signal::KILL).spawn().unwrap();
        Self { child, console }
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn console(&self) -> String {
        std::fs::read_to_string(&self.console).unwrap_or_default()
    }

    pub(super) fn until_it_prints(&self, text: &str) {
        eventually(text, || self.console().contains(text));
    }
}

/// Lets a machine that was started with `-S` run, by its control socket (QMP).
pub(super) fn resume(socket: &Path) {
    let mut qmp = Qmp::connect(socket, IO_TIMEOUT).unwrap();
    assert!(qmp.begin().unwrap());
    qmp.execute("cont", &json!({})).unwrap().unwrap();
}

impl Drop for Qemu {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
