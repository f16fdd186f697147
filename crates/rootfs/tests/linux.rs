//! Debian's cloud kernel with one program of this computer, in QEMU's translator.
#![allow(clippy::unwrap_used)]

use std::ffi::OsStr;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::io::{FdFlags, fcntl_setfd};
use tare_qemu::{Accelerator, CommandLine, GuestSystem, MachineType, PROGRAM};
use tare_rootfs::guest::{self, CMDLINE, MACHINE_MODULES, UNTIMED};
use tare_rootfs::kernel::debian;
use tare_rootfs::modules::Modules;
use tare_rootfs::tree::{EntryKind, Node};
use tare_rootfs::{Cache, FileCapability, Kernel, Root, Task, Tree, cpio, ext4, host};
use tare_vmtest::{installed, lacks, linux_or_skip};

/// What a test needs; without it the test says why it does nothing.
fn kernel_and_init() -> Option<(Kernel, std::path::PathBuf)> {
    if !installed(PROGRAM) {
        return linux_or_skip(Err(format!("{PROGRAM} is not installed")));
    }
    let cache = linux_or_skip(Cache::open_default())?;
    let kernel = linux_or_skip(debian::find_or_obtain(&cache))?;
    let init = linux_or_skip(guest::find_init())?;
    Some((kernel, init))
}

fn boot(kernel: &Kernel, init: &Path, mut tree: Tree, task: Task, more: &[&str]) -> String {
    let modules = Modules::open(&kernel.modules)
        .unwrap()
        .closure(MACHINE_MODULES)
        .unwrap();
    guest::add_init(&mut tree, task, &modules, init).unwrap();
    let initramfs = cpio::pack(&tree).unwrap();
    fcntl_setfd(&initramfs, FdFlags::empty()).unwrap();
    let initrd = format!("/proc/self/fd/{}", initramfs.as_raw_fd());
    let mut line = CommandLine::new(MachineType::Q35, Accelerator::Tcg, GuestSystem::Linux, 1);
    line.memory_mib(256)
        .serial("stdio")
        .kernel(&kernel.image)
        .initrd(Path::new(&initrd))
        .append(&format!("console=ttyS0 quiet {UNTIMED} {CMDLINE}"));
    let mut qemu = Command::new("timeout");
    qemu.args(["300", PROGRAM]);
    let output = line
        .apply(&mut qemu)
        .args(more)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    said
}

/// Two names that are one as text with U+FFFD, a directory, and a target.
fn add_names_of_bytes(tree: &mut Tree) {
    host::add_program(tree, "od").unwrap();
    for (name, node) in [
        (&b"names/caf\xe8"[..], Node::bytes(*b"e8\n", 0o644)),
        (b"names/caf\xe9", Node::bytes(*b"e9\n", 0o644)),
        (b"names/d\xff/in", Node::bytes(*b"in\n", 0o644)),
        (b"names/link", Node::link_to(*b"d\xff/in")),
    ] {
        let name = host::place(Path::new(OsStr::from_bytes(name)));
        tree.insert(&name, node).unwrap();
    }
}

/// Prints the bytes of these names, and what the files hold.
const NAMES_SCRIPT: &str = "cd /names; echo $(printf %s: c* d* | od -An -tx1) $(cat c* link)";
const NAMES_SAID: &str = "63 61 66 e8 3a 63 61 66 e9 3a 64 ff 3a e8 e9 in";

#[test]
fn debians_kernel_runs_a_program_of_the_host_and_powers_off() {
    let Some((kernel, init)) = kernel_and_init() else {
        return;
    };
    let mut tree = Tree::new();
    let shell = host::add_program(&mut tree, "sh").unwrap();
    let script = "echo $GREETING from $(cat /proc/sys/kernel/hostname) in $PWD; exit 7";
    tree.insert("work/file", tare_rootfs::tree::Node::bytes(*b"", 0o644))
        .unwrap();
    host::add_program(&mut tree, "cat").unwrap();
    let task = Task {
        command: [&shell, "-c", script].map(str::to_owned).to_vec(),
        environment: vec!["GREETING=hello".to_owned()],
        working_directory: "/work".to_owned(),
        hostname: "guest".to_owned(),
        ..Task::default()
    };
    let said = boot(&kernel, &init, tree, task, &[]);
    assert!(said.contains("hello from guest in /work"), "{said}");
    assert!(said.contains("ended with status 7"), "{said}");
}

#[test]
fn pipes_capabilities_names_of_bytes_and_what_a_root_has_in_run_reach_the_guest() {
    let Some((kernel, init)) = kernel_and_init() else {
        return;
    };
    let mut tree = Tree::new();
    let shell = host::add_program(&mut tree, "sh").unwrap();
    let cat = host::add_program(&mut tree, "cat").unwrap();
    // cap_net_bind_service=ep
    let bind = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut program = tree.get(cat.trim_start_matches('/')).unwrap().clone();
    program.capability = FileCapability::parse(&bind);
    let capable = host::place(Path::new(OsStr::from_bytes(b"/bin/capable\xe9")));
    tree.insert(&capable, program).unwrap();
    add_names_of_bytes(&mut tree);
    tree.insert("run/app", Node::directory()).unwrap();
    let mut pipe = Node::directory();
    pipe.kind = EntryKind::Pipe;
    pipe.permissions = 0o666;
    tree.insert("srv/pipe", pipe).unwrap();
    let script = format!(
        "test -p /srv/pipe && echo a pipe; test -d /run/app && echo a directory; {NAMES_SCRIPT}; \
         $(printf '/bin/capable\\351') /proc/self/status"
    );
    let task = Task {
        command: [&shell, "-c", &script].map(str::to_owned).to_vec(),
        user: "1000:1000".to_owned(),
        ..Task::default()
    };
    let said = boot(&kernel, &init, tree, task, &[]);
    for right in [
        "a pipe",
        "a directory",
        NAMES_SAID,
        "CapEff:\t0000000000000400",
    ] {
        assert!(said.contains(right), "{right}: {said}");
    }
}

#[test]
fn the_root_may_be_a_disk() {
    let Some((kernel, init)) = kernel_and_init() else {
        return;
    };
    let mut tree = Tree::new();
    let shell = host::add_program(&mut tree, "sh").unwrap();
    host::add_program(&mut tree, "cat").unwrap();
    add_names_of_bytes(&mut tree);
    let mut file = tare_rootfs::tree::Node::bytes(*b"on the disk", 0o640);
    file.uid = 33;
    tree.insert("srv/file", file).unwrap();
    let place = tempfile::tempdir().unwrap();
    let disk = place.path().join("disk");
    if let Err(ext4::DiskError::NoProgram(_)) = ext4::make(&tree, &disk, 64 << 20) {
        return lacks("mke2fs is not installed");
    }
    let script = format!("cat /srv/file; {NAMES_SCRIPT}; echo x > /new && exit 5");
    let task = Task {
        command: [&shell, "-c", &script].map(str::to_owned).to_vec(),
        root: Root::Disk {
            device: "/dev/vda".to_owned(),
            filesystem: "ext4".to_owned(),
        },
        ..Task::default()
    };
    let drive = format!("file={},format=raw,if=virtio", disk.display());
    let said = boot(&kernel, &init, Tree::new(), task, &["-drive", &drive]);
    assert!(said.contains("on the disk"), "{said}");
    assert!(said.contains(NAMES_SAID), "{said}");
    assert!(said.contains("ended with status 5"), "{said}");
}
