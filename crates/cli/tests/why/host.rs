//! A host in QEMU's translator: Debian's kernel, KVM on an AMD-V that QEMU emulates, cgroups of
//! version 2 alone, and this build's `tare`. The processor runs the guests of its machines, as on
//! hardware; everything is some twenty times slower.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use tare_rootfs::tree::Node;
use tare_rootfs::{Kernel, Tree, host};

use super::support::needs::qemu;
use super::support::serial::{self, SerialGuest, add_modules, debian_kernel};
use super::support::{TIMEOUT, TestDir, installed};

/// Where the image is.
pub(super) const IMAGE: &str = "/storm";
/// What the guest says after each line, before its status.
const ENDED: &str = "line ended: ";
const READY: &str = "host ready";

/// Its processor has AMD-V, whose parts are a module. A line of the test's is a line of the shell's.
const SCRIPT: &str = "#!/bin/busybox sh
/bin/busybox --install -s /bin
mkdir -p /proc /sys /dev /tmp /run
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs run /run
mount -t cgroup2 cgroup /sys/fs/cgroup
mount -t tracefs tracing /sys/kernel/tracing
for module in /modules/*.ko; do insmod $module; done
exec </dev/ttyS0 >/dev/ttyS0 2>&1
stty -echo
echo host ready
while read -r line; do (eval \"$line\") </dev/null; echo \"line ended: $?\"; done
";

/// A running host.
pub(super) struct Host(SerialGuest);

impl Host {
    /// Boots it with this image; `None` where a part is missing, as a line says.
    pub(super) fn boot(place: &TestDir, image: &Path) -> Option<Self> {
        let kernel = kernel()?;
        let initramfs = initramfs(place, &kernel, image);
        let mut qemu = Command::new("qemu-system-x86_64");
        // One thread for both CPUs: with one for each, QEMU 7.2 now and then executes an old
        // translation of code that Linux has just patched (a static key), and both CPUs take
        // int3 forever.
        qemu.args(["-accel", "tcg,thread=single", "-cpu", "EPYC", "-smp", "2"])
            .args(["-m", "768M", "-machine", "q35", "-nodefaults", "-no-reboot"])
            .args(["-display", "none", "-serial", "stdio", "-append"])
            .arg("console=ttyS0 quiet loglevel=1 rdinit=/init panic=-1 no_timer_check")
            .arg("-kernel")
            .arg(&kernel.image)
            .arg("-initrd")
            .arg(initramfs);
        let host = Self(SerialGuest::start(&mut qemu));
        host.until(READY);
        Some(host)
    }

    /// What a line of the shell's prints, which must succeed.
    #[track_caller]
    pub(super) fn run(&mut self, line: &str) -> String {
        self.0.write(line);
        let (said, status) = self.until(ENDED);
        assert_eq!(status, "0", "{line}: {said}");
        said
    }

    /// The content of a file.
    #[track_caller]
    pub(super) fn read(&mut self, file: &str) -> String {
        self.run(&format!("cat {file}")).trim_end().to_owned()
    }

    /// What it says until a line that begins so, and the rest of that line.
    #[track_caller]
    fn until(&self, word: &str) -> (String, String) {
        let deadline = Instant::now() + TIMEOUT;
        let mut said = String::new();
        loop {
            let Some(line) = self.0.line(deadline) else {
                panic!("the host did not say {word:?}: {said}");
            };
            // What a command printed last may have no end of line.
            if let Some((before, rest)) = line.split_once(word) {
                said.push_str(before);
                return (said, rest.to_owned());
            }
            said.push_str(&line);
            said.push('\n');
        }
    }
}

fn kernel() -> Option<Kernel> {
    let lacks = |why: &str| {
        tare_vmtest::lacks(why);
        None
    };
    if !qemu() {
        return None;
    }
    for program in ["busybox", "strip"] {
        if !installed(program) {
            return lacks(&format!("{program} is not installed"));
        }
    }
    let monitor = Path::new(env!("CARGO_BIN_EXE_tare")).with_file_name("tare-monitor");
    if !monitor.is_file() {
        return lacks("tare-monitor is not built");
    }
    debian_kernel().map_or_else(|why| lacks(&why), Some)
}

fn initramfs(place: &TestDir, kernel: &Kernel, image: &Path) -> PathBuf {
    let mut tree = Tree::new();
    let busybox = host::add_program(&mut tree, "busybox").unwrap();
    add(&mut tree, "bin/busybox", Path::new(&busybox));
    add(&mut tree, IMAGE.trim_start_matches('/'), image);
    let tare = Path::new(env!("CARGO_BIN_EXE_tare"));
    for program in [tare.to_owned(), tare.with_file_name("tare-monitor")] {
        let name = program.file_name().unwrap().to_str().unwrap();
        let small = place.path().join(name);
        let mut strip = Command::new("strip");
        let stripped = strip.arg("-o").arg(&small).arg(&program).status();
        assert!(stripped.unwrap().success());
        for library in host::libraries(&program).unwrap() {
            host::add_file(&mut tree, &library).unwrap();
        }
        add(&mut tree, &format!("bin/{name}"), &small);
    }
    add_modules(&mut tree, kernel, &["kvm_amd"]);
    serial::initramfs(place, tree, SCRIPT.to_owned())
}

fn add(tree: &mut Tree, name: &str, file: &Path) {
    let executable = fs::canonicalize(file).unwrap();
    tree.insert(name, Node::host(&executable, 0o755).unwrap())
        .unwrap();
}
