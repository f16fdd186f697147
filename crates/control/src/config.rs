//! The machine that `tare run` asks `tare-monitor` for.
//!
//! `tare` checks and opens everything; the monitor gets descriptors that are
//! open already, so that it can confine itself before it reads a guest byte.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::RawFd;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::halt::HaltPolicy;
use tare_frames::Rules;
use tare_host::signal_number::SignalNumber;
use tare_policy::coalesce::{Mode, Ratio, SettingsError};

/// One virtual machine. Written as JSON to `machine.json` in the run directory
/// and passed as `tare-monitor --config FD`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineConfig {
    /// Name of the run, unique among running machines; see [`crate::rundir::valid_name`].
    pub name: String,
    /// vCPUs, 1 to 16.
    pub cpus: u8,
    /// Guest memory in MiB.
    pub memory_mib: u32,
    /// Whether the kernel is to back it by huge pages; None: as the host is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub huge_pages: Option<HugePages>,
    /// Kernel command line, without the final NUL.
    pub cmdline: String,
    /// Where the image came from, for people; the monitor reads the descriptor.
    pub image_path: String,
    /// Open image file.
    pub image: Descriptor,
    /// Open initramfs, if any.
    pub initrd: Option<Descriptor>,
    /// Open archive that the guest finds before [`Self::initrd`] and that is mapped instead of copied,
    /// if any: machines that have the same share the host's memory for it. It must not change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_files: Option<Descriptor>,
    /// What the image is.
    #[serde(default)]
    pub guest: GuestKind,
    /// Whether a Linux guest starts Tare's first process, which passes signals on to its command.
    #[serde(default)]
    pub has_init: bool,
    /// What asks a program or that command to end, if the machine runs one.
    #[serde(default = "stop_signal")]
    pub stop_signal: SignalNumber,
    /// Network interface, if any.
    pub net: Option<NetConfig>,
    /// Disks, in bus order.
    #[serde(default)]
    pub disks: Vec<DiskConfig>,
    /// virtio-rng is there unless this is false.
    pub rng: bool,
    /// How a halted vCPU waits.
    #[serde(default)]
    pub halt: HaltPolicy,
    /// CPUs of the host that the vCPUs have alone, one for each; empty unless
    /// [`Self::halt`] is dedicated.
    #[serde(default, rename = "own_cpus")]
    pub dedicated_cpus: Vec<DedicatedCpu>,
    /// Where the serial console's output goes.
    pub console: Console,
    /// Where the standard streams of the guest's program are.
    #[serde(default)]
    pub streams: Streams,
    /// Listening UNIX socket of the control interface.
    pub control: Descriptor,
    /// The run directory, removed by the monitor when it ends.
    pub run_dir: String,
    /// What stays in it.
    #[serde(default)]
    pub leaves: Leaves,
    /// Locked file in the run directory; the lock says that the machine lives.
    pub lock: Descriptor,
    /// What this KVM is, a `tare_hv::Probe`, if `tare` had to find out; otherwise the
    /// monitor does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<serde_json::Value>,
    /// What the monitor gives up before it reads the image.
    #[serde(default)]
    pub jail: Jail,
}

/// As on Linux.
fn stop_signal() -> SignalNumber {
    SignalNumber::TERM
}

/// Whether guest memory is in transparent huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HugePages {
    /// Where the host has some; small pages elsewhere.
    Auto,
    /// Never.
    Off,
}

/// What stays in the run directory of a machine that ends, unless its end was requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Leaves {
    /// Nothing: the directory goes.
    #[default]
    Nothing,
    /// Log and exit code, if it started.
    OwnEnd,
    /// The same, and the log if it did not start: a keeper starts it again, or removes the rest.
    ForKeeper,
}

/// What a monitor gives up before it reads what others wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Jail {
    /// Its own namespaces for mounts, IPC, host name and network, where the kernel grants
    /// them.
    pub namespaces: bool,
    /// The user that it becomes; None: it keeps its own.
    pub user: Option<JailUser>,
}

/// An unprivileged user, of one machine alone if it comes from Tare's range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JailUser {
    /// User ID.
    pub uid: u32,
    /// Group ID.
    pub gid: u32,
    /// What keeps other machines from the same user, held open as long as the machine lives.
    pub claim: Option<Descriptor>,
}

/// A CPU of the host that a vCPU has alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DedicatedCpu {
    /// Its number.
    pub cpu: u16,
    /// Locked file that says whose it is.
    pub lock: Descriptor,
}

/// What an image is: how it is booted, and what its status means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestKind {
    /// An application with the library OS.
    #[default]
    LibraryOs,
    /// A Linux kernel.
    Linux,
    /// A program for Linux, with the image that runs programs. Its status is the
    /// machine's.
    Program,
}

/// A descriptor inherited from `tare`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Descriptor(pub RawFd);

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetConfig {
    /// Hardware address.
    pub mac: [u8; 6],
    /// Largest IP packet in bytes.
    pub mtu: u16,
    /// The other end.
    pub backend: NetBackend,
    /// Frames a second in each direction; 0: no limit.
    #[serde(default)]
    pub frames_per_s: u64,
    /// Bytes of frames a second in each direction; 0: no limit.
    #[serde(default)]
    pub bytes_per_s: u64,
}

/// The other end of a network interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum NetBackend {
    /// passt.
    Stream(StreamConfig),
    /// Published ports that the monitor serves itself.
    Forward(ForwardConfig),
    /// A tap interface opened with `IFF_NO_PI | IFF_VNET_HDR`, header size 12.
    Tap {
        /// The tap's descriptor.
        fd: Descriptor,
        /// The interface's name, for people.
        name: String,
    },
}

/// A connected stream socket with QEMU's framing, a 32-bit big-endian
/// length before each Ethernet frame (passt).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamConfig {
    /// The socket.
    pub fd: Descriptor,
    /// Which addresses the guest may not reach through it.
    pub filter: Rules,
}

/// Published ports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForwardConfig {
    /// The ports.
    pub ports: Vec<ForwardedPort>,
    /// The host's hardware address, which passt has too.
    pub gateway_mac: [u8; 6],
    /// The guest's address.
    pub guest: Ipv4Addr,
    /// The host's address.
    pub gateway: Ipv4Addr,
    /// The guest's and the host's, if the guest has IPv6.
    pub v6: Option<(Ipv6Addr, Ipv6Addr)>,
    /// passt for everything else; none if there is nothing else.
    pub passt: Option<PasstConfig>,
}

/// What a separate process serves: the network of a machine in QEMU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortsConfig {
    /// The network, which is not [`NetBackend::Tap`].
    pub net: NetConfig,
    /// The socket whose other end QEMU has, with a 32-bit big-endian length before each frame.
    pub guest: Descriptor,
    /// Where it runs.
    pub jail: Jail,
}

impl PortsConfig {
    /// First argument of such a process; the second is the configuration as JSON.
    pub const OPTION: &str = "--serve-ports";
}

/// passt beside published ports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PasstConfig {
    /// Its socket.
    pub stream: StreamConfig,
    /// When it starts.
    pub start: PasstStart,
}

/// When passt starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PasstStart {
    /// It has started.
    Started,
    /// With the first frame in its socket.
    WhenNeeded,
}

/// A published port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForwardedPort {
    /// Socket that is bound; one for TCP listens.
    pub fd: Descriptor,
    /// What it is for.
    pub protocol: Protocol,
    /// The guest's port.
    pub guest: u16,
    /// For UDP: bound to all addresses of the host, and each datagram says which it was sent to (`IP_PKTINFO`,
    /// `IPV6_RECVPKTINFO`).
    pub all_addresses: bool,
}

/// A transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Protocol {
    /// `tcp` or `udp`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskConfig {
    /// Where it came from, for people; the monitor uses the descriptor.
    pub path: String,
    /// The open file or block device, whose lock `tare` holds.
    pub file: Descriptor,
    /// Whether the guest may only read it.
    pub read_only: bool,
    /// When a write counts as done, until the guest changes that.
    pub cache: DiskCache,
    /// Serial number, up to 20 printable ASCII characters.
    pub serial: String,
    /// Queues, 1 to 16.
    pub queues: u16,
    /// Which completions interrupt the guest.
    pub coalesce: DiskCoalesce,
    /// Time that each request takes at least, microseconds: storage of that
    /// latency. 0: as long as it takes.
    #[serde(default)]
    pub latency_us: u32,
    /// Requests a second; 0: no limit.
    #[serde(default)]
    pub iops: u64,
    /// Bytes read and written a second; 0: no limit.
    #[serde(default)]
    pub bytes_per_s: u64,
}

/// When a write counts as done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiskCache {
    /// When the host has it; a flush makes it durable.
    #[default]
    Writeback,
    /// When it is durable.
    Writethrough,
}

/// Which completions of a disk interrupt the guest; as text `auto`, `off` or a
/// ratio such as `1/4`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum DiskCoalesce {
    /// As few as the queue's depth needs (vIC).
    #[default]
    Auto,
    /// All.
    Off,
    /// A fixed ratio, whatever is in flight: the control arm.
    Ratio {
        /// Delivered.
        delivered: u32,
        /// Of this many completions.
        of: u32,
    },
}

/// Text that is not a [`DiskCoalesce`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid coalescing {0:?}: use auto, off, or a ratio such as 1/4")]
pub struct NoCoalesce(String);

impl FromStr for DiskCoalesce {
    type Err = NoCoalesce;

    fn from_str(text: &str) -> Result<Self, NoCoalesce> {
        match text {
            "auto" => return Ok(Self::Auto),
            "off" => return Ok(Self::Off),
            _ => {}
        }
        let ratio = text.split_once('/').and_then(|(delivered, of)| {
            let (delivered, of) = (delivered.parse().ok()?, of.parse().ok()?);
            Ratio::new(delivered, of).ok()?;
            Some(Self::Ratio { delivered, of })
        });
        ratio.ok_or_else(|| NoCoalesce(text.to_owned()))
    }
}

impl fmt::Display for DiskCoalesce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Off => f.write_str("off"),
            Self::Ratio { delivered, of } => write!(f, "{delivered}/{of}"),
        }
    }
}

impl TryFrom<String> for DiskCoalesce {
    type Error = NoCoalesce;

    fn try_from(text: String) -> Result<Self, NoCoalesce> {
        text.parse()
    }
}

impl From<DiskCoalesce> for String {
    fn from(coalesce: DiskCoalesce) -> Self {
        coalesce.to_string()
    }
}

impl DiskCoalesce {
    /// The rule that it names.
    pub fn mode(self) -> Result<Mode, SettingsError> {
        Ok(match self {
            Self::Auto => Mode::Auto,
            Self::Off => Mode::Off,
            Self::Ratio { delivered, of } => Mode::Fixed(Ratio::new(delivered, of)?),
        })
    }
}

/// Where the standard streams of the guest's program are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Streams {
    /// On the serial console.
    #[default]
    Serial,
    /// Ports of a virtio console; the serial console then goes to standard error.
    Ports,
}

/// Where the serial console goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Console {
    /// Standard output, and input from standard input; output also goes to `log`.
    Stdio {
        /// Open `console.log` of the run directory.
        log: Descriptor,
    },
    /// Only to `console.log`.
    Log {
        /// Open `console.log` of the run directory.
        log: Descriptor,
    },
}
