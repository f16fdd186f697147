//! QEMU's command line, and the descriptors that it names. Nothing in it is a path of the
//! host: QEMU is another user in another root when it reads this.

use std::fs::File;
use std::io::{self, Seek as _};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use tare_control::config::{DiskCache, GuestKind};
use tare_devices::blk::Access;
use tare_qemu::{Accelerator, CommandLine, GuestSystem, MachineType, escaped};
use tare_rootfs::guest;

use crate::attempt::Output;
use crate::disk::OpenDisk;
use crate::linux::stdio;
use crate::machine::{Link, LinkEnd, PreparedMachine};
use crate::request::JobMode;
use crate::user::MachineUser;

/// QEMU's arguments with the descriptors that they name.
#[derive(Debug)]
pub(super) struct QemuLine {
    pub(super) arguments: Vec<String>,
    /// To be kept until QEMU has started, and no longer: among them is the control socket.
    pub(super) handed: Vec<OwnedFd>,
    /// The streams of a pipeline among them, for [`stdio::keep_blocking`].
    pub(super) streams: Vec<OwnedFd>,
}

/// A command line with the sets of descriptors that it has so far.
struct Draft {
    line: CommandLine,
    handed: Vec<OwnedFd>,
    last_set: u32,
}

impl QemuLine {
    /// For a machine that only needs its engine.
    pub(super) fn of(accelerator: Accelerator, machine: &PreparedMachine) -> io::Result<Self> {
        let spec = &machine.spec;
        let (machine_type, system) = match spec.guest {
            GuestKind::LibraryOs | GuestKind::Program => {
                (MachineType::Microvm, GuestSystem::LibraryOs)
            }
            GuestKind::Linux => (MachineType::Q35, GuestSystem::Linux),
        };
        let mut draft = Draft {
            line: CommandLine::new(machine_type, accelerator, system, spec.cpus),
            handed: Vec::new(),
            last_set: stdio::LAST_SET,
        };
        let user = spec.user.as_ref();
        let kernel = draft.readable(&spec.image.file, user)?;
        let initrd = machine.initrd.as_ref();
        let initrd = initrd.map(|file| draft.readable(file, user)).transpose()?;
        let name = machine.run_dir.dir().name();
        draft
            .line
            .sandbox()
            // Threads with names, by which `tare pin` finds the vCPUs.
            .option("-name", format!("{name},debug-threads=on"))
            .memory_mib(spec.memory_mib)
            .kernel(&kernel)
            .append(&spec.cmdline)
            .exit_port()
            .virtio("virtio-rng", "");
        if let Some(initrd) = initrd {
            draft.line.initrd(&initrd);
        }
        // A held lock says that the machine runs: QEMU keeps it too.
        inherit(machine.run_dir.lock())?;
        // And its user and its passt's are this machine's alone as long as it runs.
        if let Some(claim) = user.and_then(|user| user.claim.as_ref()) {
            inherit(claim)?;
        }
        let streams = draft.console(machine)?;
        draft.control(machine)?;
        if let Some(link) = &machine.link {
            draft.net(link)?;
        }
        for (number, disk) in spec.disks.iter().enumerate() {
            draft.drive(number, disk)?;
        }
        let arguments = draft.line.args().iter();
        Ok(Self {
            arguments: arguments
                .map(|argument| argument.to_string_lossy().into_owned())
                .collect(),
            handed: draft.handed,
            streams,
        })
    }
}

impl Draft {
    /// A path at which QEMU opens a file that it reads. One that its user could not open is
    /// copied.
    fn readable(&mut self, file: &File, user: Option<&MachineUser>) -> io::Result<PathBuf> {
        if user.is_none_or(|user| may_read(file, user.uid, user.gid)) {
            return Ok(format!("/proc/self/fd/{}", inherit(file)?).into());
        }
        let mut copy = File::from(memfd_create("tare-image", MemfdFlags::empty())?);
        let mut from = File::open(itself(file))?;
        io::copy(&mut from, &mut copy)?;
        copy.rewind()?;
        let path = format!("/proc/self/fd/{}", copy.as_raw_fd()).into();
        self.handed.push(copy.into());
        Ok(path)
    }

    /// A path by which QEMU uses open files, all the same one, of which it takes the one
    /// that is open as it asks (`monitor_fdset_dup_fd_add`, monitor/fds.c).
    fn set(&mut self, files: &[&File]) -> io::Result<String> {
        self.last_set += 1;
        let set = self.last_set;
        for file in files {
            let number = inherit(file)?;
            self.line
                .option("-add-fd", format!("fd={number},set={set}"));
        }
        Ok(format!("/dev/fdset/{set}"))
    }

    /// The console, or the streams of a pipeline.
    fn console(&mut self, machine: &PreparedMachine) -> io::Result<Vec<OwnedFd>> {
        let log = File::options()
            .append(true)
            .open(machine.run_dir.dir().console_log())?;
        let path = self.set(&[&log])?;
        self.handed.push(log.into());
        match machine.spec.place {
            JobMode::Foreground | JobMode::Attempt(Output::Terminal)
                if guest::starts_init(&machine.spec.cmdline) && stdio::wanted() =>
            {
                return Ok(stdio::add(&mut self.line, &path)?);
            }
            JobMode::Foreground | JobMode::Attempt(Output::Terminal) => self.line.option(
                "-chardev",
                format!("stdio,id=console,signal=on,logfile={path},logappend=on"),
            ),
            JobMode::Background | JobMode::Attempt(Output::Log) => self
                .line
                .option("-chardev", format!("file,id=console,path={path},append=on")),
        };
        self.line.serial("chardev:console");
        Ok(Vec::new())
    }

    /// QMP at the control socket.
    fn control(&mut self, machine: &PreparedMachine) -> io::Result<()> {
        let socket = UnixListener::bind(machine.run_dir.dir().control_socket())?;
        let number = inherit(&socket)?;
        self.handed.push(socket.into());
        let chardev = format!("socket,id=control,fd={number},server=on,wait=off");
        self.line
            .option("-chardev", chardev)
            .option("-mon", "chardev=control,mode=control");
        Ok(())
    }

    fn net(&mut self, link: &Link) -> io::Result<()> {
        // The supervisor adds the one that leads to its relay and so to passt.
        if let LinkEnd::Tap { file, .. } = &link.end {
            let backend = format!("tap,id=net,fd={},vhost=off", inherit(file)?);
            self.line.option("-netdev", backend);
        }
        let [a, b, c, d, e, f] = link.mac;
        let mac = format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}");
        self.line
            .virtio("virtio-net", &format!("netdev=net,mac={mac}"));
        Ok(())
    }

    /// QEMU opens a disk for reading first, whatever it is for. Its own lock would be kept
    /// away by the one that comes with the descriptor.
    fn drive(&mut self, number: usize, disk: &OpenDisk) -> io::Result<()> {
        let (file, read_only) = match disk.access {
            Access::ReadOnly => (self.set(&[&disk.file])?, "on"),
            Access::ReadWrite => {
                let for_reading = File::open(itself(&disk.file))?;
                let set = self.set(&[&disk.file, &for_reading])?;
                self.handed.push(for_reading.into());
                (set, "off")
            }
        };
        let driver = if disk.file.metadata()?.file_type().is_block_device() {
            "host_device"
        } else {
            "file"
        };
        let cache = match disk.cache {
            DiskCache::Writeback => "writeback",
            DiskCache::Writethrough => "writethrough",
        };
        let source = match disk.latency_us {
            0 => format!("format=raw,file.driver={driver},file.filename={file},file.locking=off"),
            latency_us => slowly(driver, &file, disk_bytes(&disk.file)?, latency_us),
        };
        self.line.option(
            "-drive",
            format!(
                "if=none,id=disk{number},{source},readonly={read_only},cache={cache},discard=unmap"
            ),
        );
        let serial = escaped(Path::new(&disk.serial));
        let queues = disk.queues;
        let properties = format!("drive=disk{number},num-queues={queues},serial={serial}");
        self.line.virtio("virtio-blk", &properties);
        Ok(())
    }
}

/// A file whose requests take so long. QEMU has no filter that delays, but a null
/// device that does, and a quorum that waits for all its members: the file, asked twice,
/// outvotes the null device.
fn slowly(driver: &str, file: &str, bytes: u64, latency_us: u32) -> String {
    let member = |n: u8| {
        format!(
            "children.{n}.driver=raw,children.{n}.file.driver={driver},\
             children.{n}.file.filename={file},children.{n}.file.locking=off"
        )
    };
    let latency_ns = u64::from(latency_us) * 1000;
    format!(
        "driver=quorum,vote-threshold=2,{},{},children.2.driver=null-co,\
         children.2.size={bytes},children.2.latency-ns={latency_ns}",
        member(0),
        member(1)
    )
}

/// Of a file or a block device.
fn disk_bytes(file: &File) -> io::Result<u64> {
    Ok(rustix::fs::seek(file, rustix::fs::SeekFrom::End(0))?)
}

/// Whether that user can open an open file for reading, by mode, access lists and whatever else
/// the kernel goes by: tried by a thread that becomes the user, without any other group and,
/// by the change from root, without capabilities (`capabilities(7)`).
fn may_read(file: &File, uid: u32, gid: u32) -> bool {
    let body = || {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        set_thread_groups(&[])?;
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)?;
        File::open(itself(file)).map(drop)
    };
    let tried = thread::scope(|scope| scope.spawn(body).join());
    matches!(tried, Ok(Ok(())))
}

/// A path at which an open file is opened once more.
fn itself(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

fn inherit(fd: &impl AsFd) -> io::Result<i32> {
    fcntl_setfd(fd, FdFlags::empty())?;
    Ok(fd.as_fd().as_raw_fd())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use rustix::fs::{XattrFlags, fchown, fsetxattr};
    use rustix::process::geteuid;

    use super::*;

    /// `posix_acl(5)` as the kernel stores it (`linux/posix_acl_xattr.h`): version 2; the owner
    /// reads and writes, one user more reads, mask and others.
    fn access_list(reader: u32, others: u16) -> Vec<u8> {
        const NONE: u32 = u32::MAX;
        let entries = [
            (0x01, 6, NONE),
            (0x02, 4, reader),
            (0x04, 0, NONE),
            (0x10, 4, NONE),
            (0x20, others, NONE),
        ];
        let mut bytes = 2u32.to_le_bytes().to_vec();
        for (tag, permissions, id) in entries {
            bytes.extend(u16::to_le_bytes(tag));
            bytes.extend(u16::to_le_bytes(permissions));
            bytes.extend(u32::to_le_bytes(id));
        }
        bytes
    }

    #[test]
    fn who_may_read_a_file_is_the_kernels_to_say() {
        const USER: u32 = 1_900_000_100;
        const GROUP: u32 = 1_900_000_200;
        if !geteuid().is_root() {
            println!("SKIP: only root becomes another user");
            return;
        }
        let file = tempfile::tempfile().unwrap();
        let set = |mode| file.set_permissions(Permissions::from_mode(mode)).unwrap();
        fchown(&file, None, Some(Gid::from_raw(GROUP))).unwrap();
        set(0o600);
        assert!(!may_read(&file, USER, GROUP));
        set(0o640);
        assert!(may_read(&file, USER, GROUP));
        assert!(!may_read(&file, USER, GROUP + 1));
        set(0o604);
        assert!(!may_read(&file, USER, GROUP), "the group's bits count");
        assert!(may_read(&file, USER, GROUP + 1));
        // The caller is who it was.
        assert!(geteuid().is_root());
        let list = access_list(USER, 0);
        let name = c"system.posix_acl_access";
        if fsetxattr(&file, name, &list, XattrFlags::empty()).is_err() {
            println!("SKIP: this file system has no access lists");
            return;
        }
        assert!(may_read(&file, USER, GROUP + 1));
        assert!(!may_read(&file, USER + 1, GROUP + 1));
    }
}
