//! Disks of every kind, and what the kernel does not allow.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::process::Command;

use rustix::process::Signal;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};
use tare_qemu::{Accelerator, CommandLine, GuestSystem, MachineType, PROGRAM};
use tare_vhost::front::Front;

use crate::daemon::{Daemon, started};
use crate::support::needs::{built, kvm, skip};
use crate::support::{TestDir, eventually, installed};

/// Bytes of a disk.
const BYTES: usize = 1 << 20;

/// Makes a front-end read sector 1 and write 0x5a to sector 2.
fn used(place: &TestDir, daemon: &Daemon) -> u8 {
    let front = started(place);
    front.offer_read(0, 1);
    front.notify();
    let read = front.answer(1);
    front.offer_write(1, 2, 0x5a);
    front.notify();
    front.answer(2);
    assert_eq!((daemon.counter("reads"), daemon.counter("writes")), (1, 1));
    read
}

fn sector(path: &str, number: u64) -> [u8; 512] {
    let mut sector = [0; 512];
    let file = File::open(path).unwrap();
    file.read_exact_at(&mut sector, number * 512).unwrap();
    sector
}

/// Runs `act` where io_uring_setup(2) fails with EPERM, as in containers, also for every process
/// that `act` starts.
fn without_io_uring<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    const IO_URING_SETUP: i64 = 425;
    const EPERM: u32 = 1;
    let filter: BpfProgram = SeccompFilter::new(
        BTreeMap::from([(IO_URING_SETUP, Vec::new())]),
        SeccompAction::Allow,
        SeccompAction::Errno(EPERM),
        TargetArch::x86_64,
    )
    .unwrap()
    .try_into()
    .unwrap();
    std::thread::scope(|scope| {
        let confined = scope.spawn(move || {
            rustix::thread::set_no_new_privs(true).unwrap();
            apply_filter(&filter).unwrap();
            act()
        });
        confined.join().unwrap()
    })
}

#[test]
fn a_daemon_that_may_not_use_io_uring_says_so_and_serves() {
    let place = TestDir::new();
    let disk = place.file("d.img", &[3; BYTES]);
    let mut daemon = without_io_uring(|| Daemon::start(&place, &disk));
    assert_eq!(used(&place, &daemon), 3);
    assert_eq!(sector(&disk, 2), [0x5a; 512]);
    let ended = daemon.signal(Signal::TERM);
    let said = ended.err.matches("io_uring is not allowed here").count();
    assert_eq!(said, 1, "{ended:?}");
}

#[test]
fn a_machine_that_may_not_use_io_uring_says_so_and_runs() {
    let Some(image) = kvm().then(|| built("blk")).flatten() else {
        return;
    };
    let place = TestDir::new();
    let disk = place.file("d.img", &[0; BYTES]);
    let cmdline = "cif=4 read=50 verify=on committer=on count=40 warm_ms=0";
    let run = ["run", image.to_str().unwrap(), "--net", "none", "--disk"];
    let ended =
        without_io_uring(|| place.run(&[&run[..], &[&disk, "--cmdline", cmdline]].concat()));
    ended.expect(0, "\"errors\":0,\"error\":null,\"mismatches\":0");
    let said = ended.err.matches("is served without io_uring").count();
    assert_eq!(said, 1, "{ended:?}");
}

/// A loop device over a file, gone when dropped.
pub(crate) struct Loop(pub(crate) String);

impl Loop {
    /// Where there is none, prints SKIP and gives `None`.
    pub(crate) fn over(file: &str, more: &[&str]) -> Option<Self> {
        let made = Command::new("losetup")
            .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
            .args(["--find", "--show"])
            .args(more)
            .arg(file)
            .output();
        match made {
            Ok(made) if made.status.success() => {
                let path = String::from_utf8(made.stdout).unwrap();
                Some(Self(path.trim().to_owned()))
            }
            other => {
                tare_vmtest::lacks(format!("no loop device: {other:?}"));
                None
            }
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup")
            .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
            .args(["-d", &self.0])
            .status();
    }
}

/// The daemon has the device open with O_DIRECT.
#[track_caller]
fn assert_direct(daemon: &Daemon, device: &Loop) {
    // Its flags while it is served: O_DIRECT is 0o40000 in /proc.
    let pid = daemon.stats().unwrap().pid;
    let direct: Vec<_> = fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| fs::read_link(entry.path()).is_ok_and(|it| it == *device.0))
        .map(|entry| {
            let info = format!("/proc/{pid}/fdinfo/{}", entry.file_name().display());
            let info = fs::read_to_string(info).unwrap();
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
            u32::from_str_radix(flags.unwrap().trim(), 8).unwrap() & 0o40000 != 0
        })
        .collect();
    assert!(
        !direct.is_empty() && direct.iter().all(|it| *it),
        "{direct:?}"
    );
}

#[test]
fn a_device_of_4_kib_blocks_is_served_as_one_without_the_hosts_cache() {
    let place = TestDir::new();
    let file = place.file("d.img", &[3; BYTES]);
    let args = ["--direct-io=on", "--sector-size", "4096"];
    let Some(device) = Loop::over(&file, &args) else {
        return;
    };
    let daemon = Daemon::start(&place, &device.0);
    assert_direct(&daemon, &device);
    let mut front = Front::connect(&place.path().join("s"));
    assert_eq!(front.config(20), 4096);
    front.share();
    front.start(0, 0).unwrap();
    front.offer_read_4k(0, 8);
    front.notify();
    assert_eq!(front.answer(1), 3);
    front.offer_read(1, 8);
    front.notify();
    eventually("part of a block is refused", || front.used() == 2);
    assert_eq!(daemon.counter("malformed_requests"), 1);
}

#[test]
fn a_block_device_is_served_without_the_hosts_cache() {
    let place = TestDir::new();
    let file = place.file("d.img", &[3; BYTES]);
    let Some(device) = Loop::over(&file, &["--direct-io=on"]) else {
        return;
    };
    let mut daemon = Daemon::start(&place, &device.0);
    assert_direct(&daemon, &device);
    assert_eq!(used(&place, &daemon), 3);
    assert_eq!(daemon.counter("bounced"), 0);
    let path = place.path().join("t");
    let again = [
        "blk",
        "--socket",
        path.to_str().unwrap(),
        "--disk",
        &device.0,
    ];
    place.run(&again).expect(36, "fuser -v");
    assert_eq!(daemon.signal(Signal::TERM).code, Some(143));
    assert_eq!(sector(&device.0, 2), [0x5a; 512]);
}

#[test]
fn a_read_only_block_device_is_served_to_be_read_only() {
    let place = TestDir::new();
    let file = place.file("d.img", &[3; BYTES]);
    let Some(device) = Loop::over(&file, &["--read-only"]) else {
        return;
    };
    let socket = place.path().join("s");
    let args = ["blk", "--socket", socket.to_str().unwrap(), "--disk"];
    let refused = place.run(&[&args[..], &[&device.0]].concat());
    refused.expect(34, "add ,ro to give it to be read only");
    assert!(!socket.exists());
    let daemon = Daemon::start(&place, &format!("{},ro", device.0));
    let mut front = Front::connect(&socket);
    front.share();
    front.start(0, 0).unwrap();
    front.offer_read(0, 1);
    front.notify();
    assert_eq!(front.answer(1), 3);
    assert_eq!(daemon.counter("reads"), 1);
}

#[test]
fn a_file_is_extended_by_set_and_a_device_after_its_owner_has() {
    let place = TestDir::new();
    let file = place.file("d.img", &[3; BYTES]);
    let Some(device) = Loop::over(&file, &[]) else {
        return;
    };
    let (size, odd) = (format!("disk0.size={}", 2 * BYTES), "disk0.size=3000001");
    let daemon = Daemon::start(&place, &device.0);
    let refused = place.run(&["set", "disk", &size, "disk0.iops=7"]);
    refused.expect(2, "its device has 1048576 bytes: extend it first");
    // All of a change, or nothing.
    let settings = place.run(&["set", "disk"]).out;
    let iops = settings.lines().find(|line| line.starts_with("disk0.iops"));
    assert_eq!(iops.unwrap().split_whitespace().last(), Some("0"));
    File::options()
        .write(true)
        .open(&file)
        .unwrap()
        .set_len(2 * BYTES as u64)
        .unwrap();
    let told = Command::new("losetup")
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .args(["-c", &device.0])
        .status();
    assert!(told.unwrap().success());
    place.run(&["set", "disk", &size]).expect(0, "2097152");
    let mut front = Front::connect(&place.path().join("s"));
    assert_eq!(front.config(0), 4096);
    drop((front, daemon));
    drop(device);

    let daemon = Daemon::start(&place, &file);
    place
        .run(&["set", "disk", "disk0.size=1M"])
        .expect(2, "cannot become shorter");
    place
        .run(&["set", "disk", odd])
        .expect(2, "not a multiple of its blocks");
    place
        .run(&["set", "disk", "disk0.size=1G"])
        .expect(0, "1073741824");
    front = Front::connect(&place.path().join("s"));
    assert_eq!(front.config(0), 1 << 21);
    assert_eq!(fs::metadata(&file).unwrap().len(), 1 << 30);
    assert_eq!(daemon.counter("resizes"), 1);
}

#[test]
fn qemu_and_tare_do_not_take_each_others_disk() {
    if !installed(PROGRAM) {
        skip(format!("{PROGRAM} is not installed"));
        return;
    }
    let place = TestDir::new();
    let disk = place.file("d.img", &[0; BYTES]);
    let qemu = || {
        let guest = GuestSystem::LibraryOs;
        let mut line = CommandLine::new(MachineType::Q35, Accelerator::Tcg, guest, 1);
        line.flag("-S")
            .option("-qmp", "stdio")
            .option("-drive", format!("if=virtio,format=raw,file={disk}"));
        let mut qemu = Command::new(PROGRAM);
        line.apply(&mut qemu);
        qemu.stdin(std::process::Stdio::piped());
        qemu.stdout(std::process::Stdio::piped());
        qemu.stderr(std::process::Stdio::piped());
        qemu.spawn().unwrap()
    };
    let daemon = Daemon::start(&place, &disk);
    let refused = crate::support::end(qemu());
    refused.expect(1, "Failed to lock");
    drop(daemon);
    // The greeting comes when everything is open. The kernel releases the file of a killed
    // process's ring a moment later.
    let mut holder = qemu();
    eventually("QEMU has the disk", || {
        let mut greeting = [0; 1];
        let greeted = holder.stdout.as_mut().unwrap().read_exact(&mut greeting);
        if greeted.is_err() {
            holder.wait().unwrap();
            holder = qemu();
        }
        greeted.is_ok()
    });
    let path = place.path().join("t");
    let args = ["blk", "--socket", path.to_str().unwrap(), "--disk", &disk];
    let ended = place.run(&args);
    holder.kill().unwrap();
    holder.wait().unwrap();
    ended.expect(36, "is already in use");
}

/// A mounted file system, unmounted when dropped.
pub(crate) struct Mounted(pub(crate) String);

impl Drop for Mounted {
    /// The kernel releases the files of a ring a moment after its process has ended.
    fn drop(&mut self) {
        for _ in 0..100 {
            let done = Command::new("umount").args(["-q", &self.0]).status();
            if done.is_ok_and(|status| status.success()) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        println!("{} is still mounted", self.0);
    }
}

#[test]
fn a_block_device_that_the_host_has_mounted_is_refused() {
    let place = TestDir::new();
    let file = place.file("d.img", &[0; 1 << 20]);
    let made = Command::new("mke2fs")
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .args(["-q", "-t", "ext2", &file])
        .status();
    if !made.is_ok_and(|status| status.success()) {
        skip("mke2fs is not installed");
        return;
    }
    let Some(device) = Loop::over(&file, &[]) else {
        return;
    };
    let directory = place.path().join("mounted");
    std::fs::create_dir(&directory).unwrap();
    let mounted = Command::new("mount")
        .args(["-o", "ro", &device.0])
        .arg(&directory)
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        skip("mount does not work here");
        return;
    }
    let _mounted = Mounted(directory.to_str().unwrap().to_owned());
    let socket = place.path().join("s");
    let refused = place.run(&[
        "blk",
        "--socket",
        socket.to_str().unwrap(),
        "--disk",
        &device.0,
    ]);
    refused.expect(
        36,
        &format!("is mounted on {} by this host", directory.display()),
    );
}
