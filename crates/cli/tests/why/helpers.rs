//! Separate processes that work for a machine: virtiofsd, `tare blk`.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::qemu::Qemu;
use super::support::needs::built;
use super::support::{TestDir, eventually, is_listening};
use super::{expect_covered, found, ready_with, why};

/// Where Debian has the virtiofsd of QEMU 7 and the one of today.
const VIRTIOFSD: [&str; 2] = ["/usr/lib/qemu/virtiofsd", "/usr/libexec/virtiofsd"];

/// A daemon, killed when dropped.
struct Daemon(Child);

impl Daemon {
    /// Returns when it listens.
    fn start(command: &mut Command, socket: &Path) -> Self {
        let command = command.stdin(Stdio::null()).stdout(Stdio::null());
        let daemon = Self(command.stderr(Stdio::null()).spawn().unwrap());
        eventually("the daemon listens", || is_listening(socket));
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
fn helpers(place: &TestDir, image: &Path, socket: &Path, device: &str) -> Vec<String> {
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
        tare_vmtest::lacks("virtiofsd is not installed");
        return;
    };
    let place = TestDir::new();
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

/// The disk's requests keep the daemon busy until the test ends.
const FLOOD: &str = "ms=600000 cif=8";

/// Time on a CPU of all threads of a process, ns, by thread.
fn on_cpu(pid: u32) -> Vec<(u32, u64)> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let times = tasks.map(|task| {
        let path = task.unwrap().path();
        let text = std::fs::read_to_string(path.join("schedstat")).unwrap();
        let tid = path.file_name().unwrap().to_str().unwrap().parse();
        let ns = text.split(' ').next().unwrap().parse();
        (tid.unwrap(), ns.unwrap())
    });
    times.collect()
}

#[test]
fn a_tare_blk_belongs_to_its_machine_and_its_cost_is_seen() {
    let Some((_alone, _)) = ready_with("qemu-system-x86_64") else {
        return;
    };
    let Some(image) = built("blk") else { return };
    let place = TestDir::new();
    let socket = place.path().join("blk.sock");
    let disk = place.file("disk", &[0; 1 << 20]);
    let disk = format!("{disk},format=raw");
    let args = ["blk", "--socket", socket.to_str().unwrap(), "--disk", &disk];
    let daemon = Daemon::start(&mut place.tare(&args), &socket);
    let chardev = format!("socket,id=c,path={}", socket.display());
    let memory = "memory-backend-memfd,id=m,size=64M,share=on";
    let device = "vhost-user-blk-pci,chardev=c,queue-size=256";
    let more = ["-object", memory, "-chardev", &chardev, "-device", device];
    let qemu = Qemu::spawn(&place, &image, "q35,memory-backend=m", FLOOD, &more);
    qemu.until_it_prints("begin\":true");
    let before = on_cpu(daemon.0.id());
    let told = why(&place, &qemu.pid().to_string());
    let after = on_cpu(daemon.0.id());
    expect_covered(&told);
    let threads = told["account"]["threads"].as_array().unwrap().iter();
    let helpers = threads.filter(|thread| thread["role"] == "helper");
    let mut spent_ns = 0;
    for thread in helpers {
        // All of them are the daemon's.
        let is = |(tid, _): &&(u32, u64)| thread["tid"] == *tid;
        let now = after
            .iter()
            .find(is)
            .unwrap_or_else(|| panic!("{thread}"))
            .1;
        let then = before.iter().find(is).map_or(0, |(_, ns)| *ns);
        let told_ns = thread["on_cpu"]["total_ns"].as_u64().unwrap();
        assert!(told_ns <= now - then, "{told_ns} of {}", now - then);
        spent_ns += told_ns;
    }
    let found = found(&told, "helpers").unwrap_or_else(|| panic!("{told}"));
    let share = found["share"].as_f64().unwrap();
    let window_ns = told["account"]["window_ns"].as_f64().unwrap();
    println!("{}, {:.1} % of a core", found["what"], share * 100.0);
    assert!(
        (share - spent_ns as f64 / window_ns).abs() < 1e-6,
        "{found}"
    );
    assert!(share > 0.0, "{found}");
    // By its process, not by the name of a thread alone.
    assert!(found["what"].as_str().unwrap().contains("process tare"));
    assert!(
        found["remedy"]
            .as_str()
            .unwrap()
            .contains("larger requests")
    );
}
