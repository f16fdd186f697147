//! From the command line to a checked set-up: parses the configuration, and takes every descriptor
//! that it names into a type.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::io::{Read as _, Seek as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;

use rustix::stdio::{stderr, stdout};
use tare_abi::layout::{MAX_CPUS, MIN_MEMORY_MIB};
use tare_boot::LoadError;
use tare_control::config::{Console, Descriptor, MachineConfig, Streams};
use tare_control::exit::ExitCode;
use tare_control::halt::HaltPolicy;
use tare_control::rundir::{RunDir, valid_name};
use tare_daemon::SetUpError;
use tare_daemon::jail::JailError;
use tare_devices::blk::DiskError;
use tare_hv::{Kvm, Probe};

use crate::confine::ConfineError;
use crate::console::output::Screen;
use crate::console::ports;
use crate::disk;
use crate::disk::OpenDisk;
use crate::guest_files::GuestFiles;
use crate::inherit::{InheritError, Inherited};
use crate::link::{AnyLink, OpenLinkError};
use crate::wiring::WiringError;

const MAX_CONFIG_BYTES: u64 = 1 << 20;
/// Smallest MTU of IPv4 (RFC 791).
const MIN_MTU: u16 = 68;

/// Why a machine does not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error("usage: tare-monitor --config FD (started by `tare run`)")]
    Usage,
    #[error("the configuration cannot be read")]
    ReadConfig(#[source] io::Error),
    #[error("the configuration is not valid JSON for this version")]
    ParseConfig(#[source] serde_json::Error),
    #[error("the configuration is wrong: {0}")]
    BadConfig(String),
    #[error(transparent)]
    Inherit(#[from] InheritError),
    #[error("{asked} vCPUs: use 1 to {most}")]
    Cpus { asked: u8, most: usize },
    #[error("{mib} MiB of guest memory is too small: the minimum is {MIN_MEMORY_MIB} MiB")]
    TooLittleMemory { mib: u32 },
    #[error(transparent)]
    Memory(#[from] tare_hv::MemoryError),
    #[error(transparent)]
    Link(#[from] OpenLinkError),
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error(transparent)]
    OpenKvm(#[from] tare_hv::OpenError),
    #[error("cannot probe KVM")]
    Probe(#[from] tare_hv::ProbeError),
    #[error("cannot create the virtual machine")]
    Vm(#[from] tare_hv::VmError),
    #[error(
        "KVM here has no vCPUs whose halts do not exit (KVM_CAP_X86_DISABLE_EXITS), which \
         --halt dedicated needs: use --halt poll=200000 for the fastest wake-ups possible"
    )]
    DedicatedRefused,
    #[error(
        "KVM here accepts KVM_CAP_X86_DISABLE_EXITS but still intercepts halts, so --halt \
         dedicated has no effect: use --halt poll=200000 for the fastest wake-ups possible"
    )]
    DedicatedIgnored,
    #[error(
        "a program needs ring 3 on this machine, whose KVM emulates ring 0 and cannot switch its \
         vector registers there: leave out --ring 0"
    )]
    ProgramInRing0,
    #[error("cannot create a vCPU")]
    Vcpu(#[from] tare_hv::VcpuError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("cannot connect a device's notifications and interrupts")]
    Wiring(#[from] WiringError),
    #[error("cannot place a device on the PCI bus")]
    Bus(#[from] tare_devices::pci::AddError),
    #[error("the monitor could not enter its jail")]
    Jail(#[from] JailError),
    #[error("the monitor could not confine itself")]
    Confine(#[from] ConfineError),
    #[error("the monitor could not {what}")]
    Io {
        what: &'static str,
        source: io::Error,
    },
}

impl StartError {
    /// The monitor's exit code.
    pub(crate) fn code(&self) -> ExitCode {
        use tare_hv::OpenError;
        match self {
            Self::Usage | Self::ReadConfig(_) | Self::ParseConfig(_) | Self::BadConfig(_) => {
                ExitCode::Usage
            }
            Self::Inherit(_) | Self::ProgramInRing0 => ExitCode::Usage,
            Self::Cpus { .. } => ExitCode::Cpus,
            Self::TooLittleMemory { .. } | Self::Memory(_) => ExitCode::Memory,
            Self::Link(OpenLinkError::Tap { .. }) => ExitCode::Tap,
            Self::Link(_) => ExitCode::Passt,
            Self::Disk(error) => disk::code(error),
            Self::OpenKvm(OpenError::NoPermission) => ExitCode::KvmPermission,
            Self::DedicatedRefused | Self::DedicatedIgnored => ExitCode::KvmUnsupported,
            Self::OpenKvm(_) | Self::Probe(_) | Self::Vm(_) | Self::Vcpu(_) => {
                ExitCode::KvmUnsupported
            }
            Self::Load(error) => error.into(),
            Self::Jail(JailError::ParentEnded) => ExitCode::Terminated,
            Self::Wiring(_) | Self::Bus(_) | Self::Jail(_) | Self::Confine(_) | Self::Io { .. } => {
                ExitCode::Internal
            }
        }
    }
}

impl From<SetUpError> for StartError {
    fn from(error: SetUpError) -> Self {
        match error {
            SetUpError::Io { act, source } => Self::Io { what: act, source },
            SetUpError::Confine(error) => Self::Confine(error),
        }
    }
}

/// For errors whose source says what was read or written.
pub(crate) fn failed_to(what: &'static str) -> impl FnOnce(io::Error) -> StartError {
    move |source| StartError::Io { what, source }
}

/// All that `tare` passed, and all that needs a privilege to open: the jail has neither devices nor
/// terminals nor rings. Opening reads no content written by others.
pub(crate) struct Setup {
    pub(crate) screen: Option<Screen>,
    /// Standard streams that are ports, if they are.
    pub(crate) streams: Option<ports::Standard>,
    pub(crate) config: MachineConfig,
    /// The number of this process outside of its PID namespace.
    pub(crate) pid: u32,
    pub(crate) link: Option<AnyLink>,
    pub(crate) disks: Vec<OpenDisk>,
    pub(crate) console_log: File,
    pub(crate) control: UnixListener,
    /// Open as long as the machine lives.
    pub(crate) lock: OwnedFd,
}

/// What building the machine needs and its guest must not reach: closed before the guest runs.
pub(crate) struct Sources {
    pub(crate) kvm: Kvm,
    /// The probe's result, if `tare` passed one.
    pub(crate) probe: Option<Probe>,
    pub(crate) image: File,
    pub(crate) files: GuestFiles,
}

/// Reads the configuration that the command line names. If this fails, even the run directory
/// cannot be removed: its path is unknown.
pub(crate) fn read_config(
    arguments: impl Iterator<Item = OsString>,
    inherited: &mut Inherited,
) -> Result<MachineConfig, StartError> {
    let arguments: Vec<OsString> = arguments.collect();
    let [flag, fd] = arguments.as_slice() else {
        return Err(StartError::Usage);
    };
    let fd = fd.to_str().and_then(|fd| fd.parse().ok());
    let (true, Some(fd)) = (flag == "--config", fd) else {
        return Err(StartError::Usage);
    };
    let mut file = File::from(inherited.take(Descriptor(fd))?);
    // A pipe cannot be rewound, and need not be.
    let _ = file.rewind();
    let mut text = Vec::new();
    file.take(MAX_CONFIG_BYTES)
        .read_to_end(&mut text)
        .map_err(StartError::ReadConfig)?;
    serde_json::from_slice(&text).map_err(StartError::ParseConfig)
}

impl Setup {
    /// Checks `config` and takes its descriptors; closes all others.
    pub(crate) fn new(
        mut config: MachineConfig,
        mut inherited: Inherited,
        pid: u32,
    ) -> Result<(Self, Sources), StartError> {
        check(&config)?;
        let kvm = Kvm::open()?;
        let probe = config
            .probe
            .take()
            .map(serde_json::from_value)
            .transpose()
            .map_err(StartError::ParseConfig)?;
        let (screen, streams) =
            open_streams(&config).map_err(failed_to("use its standard streams"))?;
        let mut take = |descriptor| inherited.take(descriptor);
        let (Console::Stdio { log } | Console::Log { log }) = config.console;
        let image = take(config.image)?.into();
        let mut file = |descriptor: Option<Descriptor>| {
            let taken = descriptor.map(&mut take).transpose()?;
            Ok::<_, StartError>(taken.map(File::from))
        };
        let files = GuestFiles {
            shared: file(config.shared_files)?,
            own: file(config.initrd)?,
        };
        let console_log = take(log)?.into();
        let control = take(config.control)?.into();
        let lock = take(config.lock)?;
        if let Some(claim) = config.jail.user.and_then(|user| user.claim) {
            // The user belongs to this machine alone as long as this process lives.
            std::mem::forget(take(claim)?);
        }
        for own in &config.dedicated_cpus {
            // Its lock lasts as long as this process.
            std::mem::forget(take(own.lock)?);
        }
        let link = config
            .net
            .as_ref()
            .map(|net| AnyLink::open(net, &mut inherited))
            .transpose()?;
        let disks = config
            .disks
            .iter()
            .map(|disk| disk::open(disk, &mut inherited))
            .collect::<Result<_, _>>()?;
        inherited.close_rest();
        let setup = Self {
            screen,
            streams,
            config,
            pid,
            link,
            disks,
            console_log,
            control,
            lock,
        };
        let sources = Sources {
            kvm,
            probe,
            image,
            files,
        };
        Ok((setup, sources))
    }
}

/// Where the serial port is shown, and the streams that are ports.
fn open_streams(config: &MachineConfig) -> io::Result<(Option<Screen>, Option<ports::Standard>)> {
    Ok(match (&config.console, config.streams) {
        (Console::Stdio { .. }, Streams::Serial) => (Some(Screen::new(stdout())?), None),
        (Console::Stdio { .. }, Streams::Ports) => (
            Some(Screen::new(stderr())?),
            Some(ports::Standard::of_process()?),
        ),
        (Console::Log { .. }, Streams::Serial) => (None, None),
        (Console::Log { .. }, Streams::Ports) => (None, Some(ports::Standard::default())),
    })
}

fn check(config: &MachineConfig) -> Result<(), StartError> {
    let bad = |what: &str| Err(StartError::BadConfig(what.to_owned()));
    if !valid_name(&config.name) || RunDir::at(&config.run_dir).name() != config.name {
        return bad("its name and run directory do not belong together");
    }
    if config.net.as_ref().is_some_and(|net| net.mtu < MIN_MTU) {
        return bad("its network's MTU is smaller than 68 bytes");
    }
    let own = match config.halt {
        HaltPolicy::Dedicated => usize::from(config.cpus),
        _ => 0,
    };
    if config.dedicated_cpus.len() != own {
        return bad("dedicated vCPUs and the CPUs that they have alone differ in number");
    }
    let (asked, most) = (config.cpus, usize::from(MAX_CPUS));
    if asked == 0 || usize::from(asked) > most {
        return Err(StartError::Cpus { asked, most });
    }
    match config.memory_mib {
        mib if mib < MIN_MEMORY_MIB => Err(StartError::TooLittleMemory { mib }),
        _ => Ok(()),
    }
}
