//! A Linux guest in QEMU's translator, with Debian's kernel, programs of this
//! computer and a shell script; the test drives the script over the serial
//! line.

use std::fs::{self, File};
use std::process::Command;
use std::time::{Duration, Instant};

use tare_qemu::{Accelerator, CommandLine, GuestSystem, MachineType, PROGRAM};
use tare_rootfs::{Kernel, Tree, host};

use crate::support::needs::skip;
use crate::support::serial::{SerialGuest, add_modules, debian_kernel, initramfs};
use crate::support::{TestDir, installed};

/// What the guest's script calls.
const PROGRAMS: [&str; 7] = ["cat", "fio", "insmod", "mkdir", "mount", "sync", "umount"];
const LIMIT: Duration = Duration::from_secs(120);

/// A kernel and an initramfs whose first process is a shell with `script`.
pub(crate) struct Linux {
    kernel: Kernel,
    initramfs: std::path::PathBuf,
}

impl Linux {
    /// `None`, said, where a part is missing.
    pub(crate) fn new(place: &TestDir, script: &str) -> Option<Self> {
        for program in [PROGRAM, "fio", "insmod", "mke2fs", "e2fsck"] {
            let in_sbin = std::path::Path::new("/sbin").join(program).is_file();
            let found = installed(program) || in_sbin;
            if !found && !skip(format!("{program} is not installed")) {
                return None;
            }
        }
        let kernel = match debian_kernel() {
            Ok(kernel) => kernel,
            Err(why) => {
                skip(format!("there is no kernel of Debian's: {why}"));
                return None;
            }
        };
        let mut tree = Tree::new();
        let shell = host::add_program(&mut tree, "sh").unwrap();
        for program in PROGRAMS {
            host::add_program(&mut tree, program).unwrap();
        }
        add_modules(&mut tree, &kernel, &["virtio_pci", "virtio_blk", "ext4"]);
        // The kernel's message may not come within the script's last line.
        let end = "read end\necho o >/proc/sysrq-trigger";
        let text = format!("#!{shell}\n{PROLOGUE}\n{script}\n{end}\n");
        let initramfs = initramfs(place, tree, text);
        Some(Self { kernel, initramfs })
    }

    /// Boots it with the disk that is served on the place's socket.
    pub(crate) fn boot(&self, place: &TestDir) -> Guest {
        let socket = place.path().join("s");
        let chardev = format!("socket,id=c,reconnect=1,path={}", socket.display());
        let mut line = CommandLine::new(MachineType::Q35, Accelerator::Tcg, GuestSystem::Linux, 2);
        line.memory_in_memfd(512, true)
            .serial("stdio")
            .kernel(&self.kernel.image)
            .initrd(&self.initramfs)
            .append("console=ttyS0 quiet rdinit=/init panic=-1 no_timer_check")
            .option("-chardev", chardev)
            .option("-device", "vhost-user-blk-pci,chardev=c,num-queues=2");
        let mut qemu = Command::new(PROGRAM);
        line.apply(&mut qemu);
        Guest(SerialGuest::start(&mut qemu))
    }
}

const PROLOGUE: &str = "export PATH=/usr/bin:/usr/sbin:/bin:/sbin
mkdir -p /proc /sys /dev /mnt /tmp
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in /modules/*.ko; do insmod $module; done
exec </dev/ttyS0 >/dev/ttyS0 2>&1";

/// A running guest.
pub(crate) struct Guest(SerialGuest);

impl Guest {
    /// The rest of the first line from here on that begins with `word`.
    pub(crate) fn says(&self, word: &str) -> String {
        let deadline = Instant::now() + LIMIT;
        let mut seen = Vec::new();
        loop {
            let Some(line) = self.0.line(deadline) else {
                panic!("the guest did not say {word}: {seen:#?}");
            };
            if let Some(rest) = line.strip_prefix(word) {
                return rest.trim().to_owned();
            }
            seen.push(line);
        }
    }

    /// Lets the script's next `read` return.
    pub(crate) fn go_on(&mut self) {
        self.0.write("");
    }

    /// Lets the guest power off, after what its script said last has been read.
    pub(crate) fn ends(mut self) {
        self.go_on();
        assert!(self.0.ends_within(LIMIT), "the guest does not power off");
    }
}

/// A file system on a new disk of that size; its path.
pub(crate) fn disk_with_file_system(place: &TestDir, bytes: u64) -> String {
    let path = place.path().join("d.img");
    File::create(&path).unwrap().set_len(bytes).unwrap();
    let made = Command::new("/sbin/mke2fs")
        .args(["-q", "-t", "ext4"])
        .arg(&path)
        .status();
    assert!(made.unwrap().success());
    assert!(fs::metadata(&path).unwrap().len() == bytes);
    path.to_str().unwrap().to_owned()
}

/// Whether the file system is sound.
#[track_caller]
pub(crate) fn check_file_system(disk: &str) {
    let checked = Command::new("/sbin/e2fsck")
        .args(["-fn", disk])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&checked.stdout);
    assert!(checked.status.success(), "{said}");
}
