//! A machine on its way to its engine, as data: planned ([`MachineSpec`]), then prepared
//! ([`PreparedMachine`]).
//!
//! Neighbours: `plan` makes the first, `launch` the second; `monitor` and `qemu` start it.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use tare_control::config::{GuestKind, HugePages};
use tare_control::exit::{ExitCode, RunExit};
use tare_control::halt::HaltPolicy;
use tare_control::rundir::RunDir;
use tare_frames::Rules;
use tare_host::signal_number::SignalNumber;
use tare_hv::Probe;
use tare_policy::limit::NetLimits;
use tare_rootfs::walk::Listing;
use tare_rootfs::{Tree, guest};

use crate::dedicated_cpus::DedicatedCpu;
use crate::disk::OpenDisk;
use crate::failure::{Explain, Failure};
use crate::image::Image;
use crate::interruption::Interruption;
use crate::linux::root::LinuxRoot;
use crate::passt::Passt;
use crate::ports::PortSocket;
use crate::publish::Publish;
use crate::record::Record;
use crate::request::JobMode;
use crate::run_dir_guard::RunDirGuard;
use crate::user::MachineUser;
use crate::virtiofsd::Virtiofsd;
use crate::volume::OpenVolume;

/// A machine as planned: checked and open. It goes unchanged from the plan into the
/// monitor's configuration or QEMU's command line.
#[derive(Debug)]
pub(crate) struct MachineSpec {
    /// What the image is.
    pub(crate) guest: GuestKind,
    /// The image.
    pub(crate) image: Image,
    /// vCPUs.
    pub(crate) cpus: u8,
    /// Guest memory.
    pub(crate) memory_mib: u32,
    /// Whether that memory is in huge pages; `None`: as the host is set.
    pub(crate) huge_pages: Option<HugePages>,
    /// What asks a program to end.
    pub(crate) stop_signal: SignalNumber,
    /// The guest's command line.
    pub(crate) cmdline: String,
    /// Its disks.
    pub(crate) disks: Vec<OpenDisk>,
    /// Directories of the host that it shares.
    pub(crate) volumes: Vec<OpenVolume>,
    /// How a halted vCPU waits.
    pub(crate) halt: HaltPolicy,
    /// CPUs of the host that its vCPUs have alone.
    pub(crate) dedicated_cpus: Vec<DedicatedCpu>,
    /// The user that it becomes; `None` for the user who starts it.
    pub(crate) user: Option<MachineUser>,
    /// Where the machine runs.
    pub(crate) place: JobMode,
    /// The KVM probe, where planning needed it, so that the engine need not repeat it.
    pub(crate) probe: Option<Probe>,
}

impl MachineSpec {
    /// Whether its Linux starts Tare's first process, which runs a command.
    pub(crate) fn has_init(&self) -> bool {
        guest::starts_init(&self.cmdline)
    }

    /// Whether it has a program or command that gets the host's signals.
    pub(crate) fn gets_signals(&self) -> bool {
        self.guest == GuestKind::Program || self.has_init()
    }
}

/// What a machine boots.
#[derive(Debug)]
pub(crate) struct Boot {
    /// The image or kernel.
    pub(crate) image: Image,
    /// The name of machines of this kind.
    pub(crate) name: String,
    /// The guest's files.
    pub(crate) files: Files,
    /// What asks a program to end, if its image says so.
    pub(crate) stop_signal: Option<SignalNumber>,
    /// The guest's command line.
    pub(crate) cmdline: String,
}

/// Where the guest's files come from.
#[derive(Debug)]
pub(crate) enum Files {
    /// There are none.
    None,
    /// An initramfs as it is.
    Initrd(File),
    /// A directory, to be packed.
    Root(Listing),
    /// The table of a site whose files are on a disk.
    Site(Tree),
    /// Linux's files, with our first process.
    Linux(LinuxRoot),
    /// A program's files.
    Program {
        /// The files.
        tree: Tree,
        /// The start parameters, of this machine alone.
        start: Tree,
        /// What was skipped in the root.
        warnings: Vec<String>,
    },
}

impl Files {
    /// What was skipped in the root.
    pub(crate) fn warnings(&self) -> &[String] {
        match self {
            Self::Root(listing) => &listing.warnings,
            Self::Linux(root) => &root.warnings,
            Self::Program { warnings, .. } => warnings,
            Self::None | Self::Initrd(_) | Self::Site(_) => &[],
        }
    }
}

/// A guest's files as its engine takes them, open.
#[derive(Debug, Default)]
pub(crate) struct PackedFiles {
    /// An archive that is mapped.
    pub(crate) shared: Option<File>,
    /// An initramfs that is copied, behind it.
    pub(crate) own: Option<File>,
}

/// The machine's network.
#[derive(Debug)]
pub(crate) enum Net {
    /// No interface.
    None,
    /// Published ports, and what the guest reaches.
    User {
        /// All of them.
        forwards: Vec<Publish>,
        /// Their sockets, if the monitor serves them.
        direct: Option<Vec<PortSocket>>,
        /// passt for what the guest opens, and for the ports if the monitor does not serve them, and what the guest
        /// may not reach; `None` if the monitor serves all that there is.
        passt: Option<Rules>,
    },
    /// An attached tap interface.
    Tap {
        /// Its name.
        name: String,
        /// Its descriptor.
        file: File,
    },
}

/// A machine that is ready for its engine.
#[derive(Debug)]
pub(crate) struct PreparedMachine {
    /// What was planned.
    pub(crate) spec: MachineSpec,
    /// Its run directory and lock.
    pub(crate) run_dir: RunDirGuard,
    /// What `tare ps` shows.
    pub(crate) record: Record,
    /// Its files.
    pub(crate) files: PackedFiles,
    /// The network interface.
    pub(crate) link: Option<Link>,
    /// Who serves its shared directories.
    pub(crate) virtiofsds: Vec<Virtiofsd>,
    /// Open `console.log`.
    pub(crate) console_log: File,
    /// Whether a signal has requested the end.
    pub(crate) interruption: Interruption,
}

/// A machine that is starting in the background.
pub(crate) struct Starting {
    /// Its run directory and lock.
    pub(crate) run_dir: RunDirGuard,
    /// Open `console.log`.
    pub(crate) console_log: File,
    /// Whether a signal has requested the end.
    pub(crate) interruption: Interruption,
}

impl PreparedMachine {
    /// Splits the machine for a start in the background: what to wait with, the record, and
    /// descriptors to keep until the machine's process has inherited them.
    pub(crate) fn into_starting(self) -> (Starting, Record, impl Sized + use<>) {
        let starting = Starting {
            run_dir: self.run_dir,
            console_log: self.console_log,
            interruption: self.interruption,
        };
        let open = (self.spec, self.files, self.link, self.virtiofsds);
        (starting, self.record, open)
    }

    /// Waits until the other end of the network is there.
    pub(crate) fn connect(&mut self) -> Result<(), Failure> {
        if let Some(passt) = self.link.as_mut().and_then(|link| link.end.passt()) {
            keep_log(&passt.wait_ready()?, self.run_dir.dir())?;
        }
        self.interruption.check()?;
        Ok(())
    }
}

/// A network interface.
#[derive(Debug)]
pub(crate) struct Link {
    /// Hardware address.
    pub(crate) mac: [u8; 6],
    /// The other end.
    pub(crate) end: LinkEnd,
    /// Frames and bytes a second, in each direction.
    pub(crate) limits: NetLimits,
}

/// The other end of a network interface.
#[derive(Debug)]
pub(crate) enum LinkEnd {
    /// passt, which may not be ready yet.
    Passt(FilteredPasst),
    /// The monitor.
    Direct {
        /// Sockets of the published ports.
        sockets: Vec<PortSocket>,
        /// Whether the guest has IPv6.
        has_ipv6: bool,
        /// For everything else.
        passt: Option<FilteredPasst>,
    },
    /// A tap interface.
    Tap {
        /// Its name.
        name: String,
        /// Its descriptor.
        file: File,
    },
}

/// A passt.
#[derive(Debug)]
pub(crate) struct FilteredPasst {
    /// The process and the socket to it.
    pub(crate) passt: Passt,
    /// What the guest may not reach.
    pub(crate) filter: Rules,
}

impl LinkEnd {
    fn passt(&mut self) -> Option<&mut Passt> {
        match self {
            Self::Passt(passt)
            | Self::Direct {
                passt: Some(passt), ..
            } => Some(&mut passt.passt),
            Self::Direct { passt: None, .. } | Self::Tap { .. } => None,
        }
    }
}

/// How a start ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Launched {
    /// The machine runs in the background under this name.
    Background(String),
    /// The machine has ended.
    Ended(RunExit),
}

/// A file of the run that cannot be created.
#[derive(Debug, thiserror::Error)]
#[error("cannot make {what} in {}", dir.display())]
pub struct RunFileError {
    pub(crate) what: &'static str,
    pub(crate) dir: PathBuf,
    pub(crate) source: io::Error,
}

impl RunFileError {
    /// For `map_err`.
    pub fn of(what: &'static str, dir: &RunDir) -> impl FnOnce(io::Error) -> Self {
        let dir = dir.path().to_owned();
        move |source| Self { what, dir, source }
    }
}

impl Explain for RunFileError {
    fn code(&self) -> ExitCode {
        ExitCode::Output
    }
}

fn keep_log(said: &str, dir: &RunDir) -> Result<(), RunFileError> {
    if said.is_empty() {
        return Ok(());
    }
    dir.write_file(&dir.passt_log(), said.as_bytes())
        .map_err(RunFileError::of("the log of passt", dir))
}
