//! Processes of their own that work for a machine: virtiofsd.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::qemu::Qemu;
use super::support::{Place, eventually};
use super::{ready_with, why};

/// Where Debian has the virtiofsd of QEMU 7 and the one of today.
const VIRTIOFSD: [&str; 2] = ["/usr/lib/qemu/virtiofsd", "/usr/libexec/virtiofsd"];

/// A daemon, killed when dropped.
struct Daemon(Child);

impl Daemon {
    /// Returns when its socket is there.
    fn start(command: &mut Command, socket: &Path) -> Self {
        let command = command.stdin(Stdio::null()).stdout(Stdio::null());
        let daemon = Self(command.stderr(Stdio::null()).spawn().unwrap());
        eventually("the daemon listens", || socket.exists());
        daemon
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// The threads of helpers in the account of a QEMU with this vhost-user device.
fn helpers(place: &Place, image: &Path, socket: &Path, device: &str) -> Vec<String> {
    let chardev = format!("socket,id=c,path={}", socket.display());
    let device = format!("{device},chardev=c");
    let memory = "memory-backend-memfd,id=m,size=64M,share=on";
    let more = ["-object", memory, "-chardev", &chardev, "-device", &device];
    let model = "q35,memory-backend=m";
    let qemu = Qemu::start(place, image, model, "mode=quiet", &more);
    let told = why(place, &qemu.pid().to_string());
    let threads = told["account"]["threads"].as_array().unwrap().iter();
    let helpers = threads.filter(|thread| thread["role"] == "helper");
    let name = |thread: &Value| thread["name"].as_str().unwrap().to_owned();
    helpers.map(name).collect()
}

#[test]
fn a_virtiofsd_belongs_to_its_machine() {
    let Some((_alone, image)) = ready_with("qemu-system-x86_64") else {
        return;
    };
    let Some(program) = VIRTIOFSD.iter().find(|path| Path::new(path).is_file()) else {
        eprintln!("SKIP: virtiofsd is not installed");
        return;
    };
    let place = Place::new();
    let socket = place.path().join("fs.sock");
    let shared = place.path().join("shared");
    std::fs::create_dir(&shared).unwrap();
    let mut command = Command::new(program);
    command.arg(format!("--socket-path={}", socket.display()));
    if *program == VIRTIOFSD[0] {
        command.args(["-o", &format!("source={}", shared.display())]);
    } else {
        command.arg(format!("--shared-dir={}", shared.display()));
    }
    let _daemon = Daemon::start(&mut command, &socket);
    let helpers = helpers(&place, &image, &socket, "vhost-user-fs-pci,tag=x");
    assert!(
        helpers.iter().any(|name| name.starts_with("virtiofsd")),
        "{helpers:?}"
    );
}
