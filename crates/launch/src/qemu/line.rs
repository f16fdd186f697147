//! QEMU's command line, and the descriptors that it names. It contains no path of the host: QEMU is
//! another user in another root when it reads this.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::stdio::stdin;
use rustix::termios::isatty;
use tare_abi::streams;
use tare_control::config::{DiskCache, GuestKind};
use tare_devices::blk::Access;
use tare_host::end_requests::Keys;
use tare_host::signal_number::SignalNumber;
use tare_qemu::{Accelerator, CommandLine, GuestSystem, MachineType, escaped};

use crate::attempt::Output;
use crate::disk::OpenDisk;
use crate::guest_signals::GuestSignals;
use crate::linux::stdio;
use crate::machine::{Link, LinkEnd, PreparedMachine};
use crate::qemu::draft::Draft;
use crate::request::JobMode;
use crate::virtiofsd::Virtiofsd;

/// QEMU's arguments with the descriptors that they name.
#[derive(Debug)]
pub(super) struct QemuLine {
    pub(super) arguments: Vec<String>,
    /// Keep them until QEMU has started, and no longer: the control socket is among them.
    pub(super) handed: Vec<OwnedFd>,
    /// The streams of a pipeline among them, for [`stdio::make_blocking`].
    pub(super) streams: Vec<OwnedFd>,
    /// How the guest's command gets signals, with the socket that the process inherits which passes them on.
    pub(super) signals: Option<(GuestSignals, OwnedFd)>,
}

/// What the console's place is.
struct Placed {
    /// The streams of a pipeline.
    streams: Vec<OwnedFd>,
    keys: Keys,
}

impl QemuLine {
    /// For a machine that is ready for its engine; `network` is QEMU's end of a socket to the process that
    /// serves its network.
    pub(super) fn of(
        accelerator: Accelerator,
        machine: &PreparedMachine,
        network: Option<OwnedFd>,
    ) -> io::Result<Self> {
        let spec = &machine.spec;
        let (machine_type, system) = match spec.guest {
            GuestKind::LibraryOs | GuestKind::Program => {
                (MachineType::Microvm, GuestSystem::LibraryOs)
            }
            GuestKind::Linux => (MachineType::Q35, GuestSystem::Linux),
        };
        let line = CommandLine::new(machine_type, accelerator, system, spec.cpus);
        let mut draft = Draft::of(line, stdio::LAST_SET);
        let user = spec.user.as_ref();
        let kernel = draft.readable(&spec.image.file, user)?;
        let initrd = machine
            .files
            .own
            .as_ref()
            .map(|file| draft.readable(file, user))
            .transpose()?;
        let name = machine.run_dir.dir().name();
        draft
            .line
            .sandbox()
            // Named threads, by which `tare pin` finds the vCPUs.
            .option("-name", format!("{name},debug-threads=on"))
            .kernel(&kernel)
            .append(&spec.cmdline)
            .exit_port()
            .virtio("virtio-rng", "");
        if machine.virtiofsds.is_empty() {
            draft.line.memory_mib(spec.memory_mib);
        } else {
            // A process that serves it maps it.
            draft.line.memory_in_memfd(spec.memory_mib, true);
        }
        if let Some(initrd) = initrd {
            draft.line.initrd(&initrd);
        }
        // A held lock means that the machine runs, so QEMU keeps it too.
        draft.hand(machine.run_dir.lock())?;
        // Its user and its passt's stay reserved for this machine as long as it runs.
        if let Some(claim) = user.and_then(|user| user.claim.as_ref()) {
            draft.hand(claim)?;
        }
        let has_init = spec.has_init();
        if spec.gets_signals() {
            // A program's console has no other port.
            let ports = if has_init { "" } else { "max_ports=2" };
            draft.line.virtio("virtio-serial", ports);
        }
        let Placed { streams, keys } = draft.console(machine, has_init)?;
        // The last port of the console: the guest takes it as a sign that all have names.
        let signals = spec
            .gets_signals()
            .then(|| draft.signals(spec.stop_signal, keys));
        let signals = signals.transpose()?;
        draft.control(machine)?;
        if let Some(link) = &machine.link {
            draft.net(link, network)?;
        }
        for (number, disk) in spec.disks.iter().enumerate() {
            draft.drive(number, disk)?;
        }
        for virtiofsd in &machine.virtiofsds {
            draft.share(virtiofsd)?;
        }
        let arguments = draft.line.args().iter();
        Ok(Self {
            arguments: arguments
                .map(|argument| argument.to_string_lossy().into_owned())
                .collect(),
            handed: draft.kept,
            streams,
            signals,
        })
    }
}

impl Draft {
    /// The console, or the streams of a pipeline.
    fn console(&mut self, machine: &PreparedMachine, has_init: bool) -> io::Result<Placed> {
        let log = File::options()
            .append(true)
            .open(machine.run_dir.dir().console_log())?;
        let path = self.set(&[&log])?;
        self.kept.push(log.into());
        match machine.spec.place {
            JobMode::Foreground | JobMode::Attempt(Output::Terminal)
                if has_init && stdio::wanted() =>
            {
                return Ok(Placed {
                    streams: stdio::add(&mut self.line, &path)?,
                    keys: Keys::Signals,
                });
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
        // A keeper of attempts passes keys on as signals too.
        let has_terminal = has_init && machine.spec.place == JobMode::Foreground && isatty(stdin());
        Ok(Placed {
            streams: Vec::new(),
            keys: if has_terminal {
                Keys::Consoles
            } else {
                Keys::Signals
            },
        })
    }

    /// The port by which the guest's command gets signals.
    fn signals(&mut self, stop: SignalNumber, keys: Keys) -> io::Result<(GuestSignals, OwnedFd)> {
        let (ours, qemus) = UnixStream::pair()?;
        let number = self.hand(&qemus)?;
        self.kept.push(qemus.into());
        self.line
            .option("-chardev", format!("socket,id=signals,fd={number}"))
            .option(
                "-device",
                format!("virtserialport,chardev=signals,name={}", streams::SIGNALS),
            );
        fcntl_setfd(&ours, FdFlags::empty())?;
        let socket = ours.as_raw_fd();
        Ok((GuestSignals { socket, stop, keys }, ours.into()))
    }

    /// QMP at the control socket.
    fn control(&mut self, machine: &PreparedMachine) -> io::Result<()> {
        let socket = UnixListener::bind(machine.run_dir.dir().control_socket())?;
        let number = self.hand(&socket)?;
        self.kept.push(socket.into());
        let chardev = format!("socket,id=control,fd={number},server=on,wait=off");
        self.line
            .option("-chardev", chardev)
            .option("-mon", "chardev=control,mode=control");
        Ok(())
    }

    fn net(&mut self, link: &Link, network: Option<OwnedFd>) -> io::Result<()> {
        if let LinkEnd::Tap { file, .. } = &link.end {
            let backend = format!("tap,id=net,fd={},vhost=off", self.hand(file)?);
            self.line.option("-netdev", backend);
        }
        if let Some(network) = network {
            let backend = format!("socket,id=net,fd={}", self.hand(&network)?);
            self.line.option("-netdev", backend);
            self.kept.push(network);
        }
        let [a, b, c, d, e, f] = link.mac;
        let mac = format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}");
        self.line
            .virtio("virtio-net", &format!("netdev=net,mac={mac}"));
        Ok(())
    }

    fn share(&mut self, Virtiofsd { tag, socket, .. }: &Virtiofsd) -> io::Result<()> {
        let chardev = format!("socket,id={tag},fd={}", self.hand(socket)?);
        self.line.option("-chardev", chardev);
        let properties = format!("chardev={tag},tag={tag},queue-size=1024");
        self.line.virtio("vhost-user-fs", &properties);
        Ok(())
    }

    /// Without QEMU's own lock, which would conflict with the one that the descriptor has.
    fn drive(&mut self, number: usize, disk: &OpenDisk) -> io::Result<()> {
        let (file, read_only) = match disk.access {
            Access::ReadOnly => (self.set(&[&disk.file])?, "on"),
            Access::ReadWrite => (self.disk(&disk.file)?, "off"),
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

/// A file whose requests take that long. QEMU has no filter that delays, but a null device that
/// does, and a quorum that waits for all its members: the file, listed twice, outvotes the null
/// device.
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
