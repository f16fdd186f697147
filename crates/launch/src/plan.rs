//! From the arguments of the command line to a plan: everything is checked here
//! and nothing is changed. Files are opened, since a check by name could be
//! overtaken.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use tare_control::config::GuestKind;
use tare_control::exit::ExitCode;
use tare_control::halt::HaltPolicy;
use tare_control::rundir::valid_name;
use tare_frames::Rules;
use tare_rootfs::Tree;
use tare_rootfs::walk::{Links, Listing, walk};

use crate::Terminal;
use crate::disk::{self, OpenDisk};
use crate::engine::{self, Engine};
use crate::failure::{Explain, Failure};
use crate::image::{self, Image};
use crate::limits::Limits;
use crate::linux::{self, LinuxRoot};
use crate::memory_size::MemorySize;
use crate::net_choice::NetChoice;
use crate::own_cpus::{self, OwnCpu};
use crate::publish::Publish;
use crate::request::{Place, Request};
use crate::user::{self, MachineUser};
use crate::{cmdline, frame_rules, machine_size, passt, ports, program, tap};

/// A run that can be started.
#[derive(Debug)]
pub struct Plan {
    /// What executes the guest.
    pub(crate) engine: Engine,
    /// What the image is.
    pub(crate) guest: GuestKind,
    /// The image.
    pub(crate) image: Image,
    /// What the machine is called.
    pub(crate) name: Name,
    /// vCPUs.
    pub(crate) cpus: u8,
    /// Guest memory.
    pub(crate) memory_mib: u32,
    /// The guest's command line.
    pub(crate) cmdline: String,
    /// The guest's files.
    pub(crate) files: Files,
    /// Its network.
    pub(crate) net: Net,
    /// Its disks.
    pub(crate) disks: Vec<OpenDisk>,
    /// How a halted vCPU waits.
    pub(crate) halt: HaltPolicy,
    /// CPUs of the host that its vCPUs have alone.
    pub(crate) own_cpus: Vec<OwnCpu>,
    /// The notice about Linux on a KVM that emulates ring 0, in a sentence.
    pub(crate) emulated: Option<String>,
    /// The user that it becomes; None: the one who starts it.
    pub(crate) user: Option<MachineUser>,
    /// What it may use at most.
    pub(crate) limits: Limits,
    /// Where the run belongs.
    pub(crate) place: Place,
}

/// A machine's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// As given.
    Given(String),
    /// This and the first free number.
    Numbered(String),
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
    /// Linux's, with its first process.
    Linux(LinuxRoot),
    /// A program's, with what it starts with.
    Program {
        /// The files.
        tree: Tree,
        /// What of the root was passed over.
        warnings: Vec<String>,
    },
}

impl Files {
    /// What of the root was passed over.
    pub(crate) fn warnings(&self) -> &[String] {
        match self {
            Self::Root(listing) => &listing.warnings,
            Self::Linux(root) => &root.warnings,
            Self::Program { warnings, .. } => warnings,
            Self::None | Self::Initrd(_) => &[],
        }
    }
}

/// The machine's network.
#[derive(Debug)]
pub(crate) enum Net {
    /// No interface.
    None,
    /// passt.
    User {
        /// Its forwards.
        forwards: Vec<Publish>,
        /// What the guest may not reach.
        filter: Rules,
    },
    /// An attached tap interface.
    Tap {
        /// Its name.
        name: String,
        /// Its descriptor.
        file: File,
    },
}

/// Words that do not go together, or a file that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlanError {
    /// Not a machine's name.
    #[error("invalid machine name {0:?}")]
    BadName(String),
    /// Forwards without passt.
    #[error("--publish needs --net user")]
    PublishWithoutUser,
    /// Words for a program, with an image that is none.
    #[error("a command after -- and --env are for programs and Linux guests; IMAGE is neither")]
    WordsForImage,
    /// Halt polling in an engine that cannot set it.
    #[error("--halt needs Tare's own monitor (--engine tare)")]
    HaltWithoutTare,
    /// A limit of a network that is not there.
    #[error("--limit-net needs a network: leave out --net none")]
    LimitWithoutNet,
    /// A limit of the network in an engine that has none.
    #[error("--limit-net needs Tare's own monitor (--engine tare)")]
    NetLimitWithoutTare,
    /// The initramfs.
    #[error("cannot open the initramfs {}", path.display())]
    Initrd {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The initramfs and the image are more than memory.
    #[error("the initramfs {} does not fit into {memory_mib} MiB of memory", path.display())]
    InitrdTooLarge {
        /// The file.
        path: PathBuf,
        /// Guest memory.
        memory_mib: u32,
    },
}

impl Explain for PlanError {
    fn code(&self) -> ExitCode {
        match self {
            Self::BadName(_)
            | Self::PublishWithoutUser
            | Self::WordsForImage
            | Self::HaltWithoutTare
            | Self::LimitWithoutNet
            | Self::NetLimitWithoutTare => ExitCode::Usage,
            Self::Initrd { .. } => ExitCode::ImageUnreadable,
            Self::InitrdTooLarge { .. } => ExitCode::ImageTooLarge,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::BadName(_) => Some(
                "use 1 to 64 letters, digits, '.', '_' or '-', beginning with a letter or digit"
                    .to_owned(),
            ),
            Self::InitrdTooLarge { .. } => {
                Some("give the guest more memory with --memory".to_owned())
            }
            _ => None,
        }
    }
}

/// Checks `request` against this computer. Files are opened; nothing is changed, except that
/// Debian's kernel is downloaded once.
pub fn plan(request: Request, terminal: &dyn Terminal) -> Result<Plan, Failure> {
    let args = request;
    let cpus = machine_size::cpus(args.cpus)?;
    let own = args.image.as_deref().map(image::open).transpose()?;
    let guest = match (&args.kernel, &own) {
        (Some(_), _) => GuestKind::Linux,
        (None, None) => GuestKind::Program,
        (None, Some(image)) if program::is_program(image) => GuestKind::Program,
        (None, Some(_)) => GuestKind::LibraryOs,
    };
    if guest == GuestKind::LibraryOs && !(args.command.is_empty() && args.env.is_empty()) {
        return Err(PlanError::WordsForImage.into());
    }
    let memory = args.memory.unwrap_or(default_memory(guest));
    let memory_mib = machine_size::memory_mib(memory)?;
    let Chosen {
        image,
        name,
        files,
        cmdline,
    } = match &args.kernel {
        Some(kernel) => linux::choose(kernel, &args, memory_mib, terminal)?,
        None => library_os(&args, own, guest, memory_mib)?,
    };
    let name = name_of(args.name, name)?;
    let net = net(args.net, args.publish)?;
    let engine = engine::choose(args.engine, args.cpus, guest)?;
    if args.limits.net.is_some() {
        check_net_limit(&net, &engine)?;
    }
    let halt = halt(args.halt, &engine)?;
    let own_cpus = match halt {
        HaltPolicy::Dedicated => own_cpus::take(cpus)?,
        _ => Vec::new(),
    };
    let (cmdline, emulated) = linux::emulated::spare(cmdline, guest, &engine)?;
    let mut disks = disk::open(args.disks, cpus, &engine)?;
    crate::image_check::check(&image, guest, memory_mib, &engine)?;
    if let (Some(ring), true) = (args.ring, guest != GuestKind::Linux) {
        crate::image_check::check_ring(&image, ring)?;
    }
    if let Files::Linux(LinuxRoot {
        disk: Some(disk), ..
    }) = &files
    {
        // The first disk: the first process gets its name.
        disks.insert(0, disk.make(cpus)?);
    }
    Ok(Plan {
        engine,
        guest,
        image,
        name,
        cpus,
        memory_mib,
        cmdline,
        files,
        net,
        disks,
        halt,
        own_cpus,
        emulated,
        user: user::choose(args.user)?,
        limits: args.limits,
        place: args.place,
    })
}

/// What is booted and with what; a name for it.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) image: Image,
    /// What machines of this kind are called.
    pub(crate) name: String,
    pub(crate) files: Files,
    pub(crate) cmdline: String,
}

fn library_os(
    args: &Request,
    image: Option<Image>,
    guest: GuestKind,
    memory_mib: u32,
) -> Result<Chosen, Failure> {
    let addresses = static_addresses(&args.net, &args.publish);
    let cmdline = cmdline::build(addresses, args.idle, args.ring, &args.cmdline)?;
    let image = match (guest, image) {
        (GuestKind::LibraryOs, Some(image)) => image,
        (_, image) => return program::choose(image, args, memory_mib, cmdline),
    };
    let room = machine_size::room_for_files(memory_mib, image.bytes);
    let files = match (&args.root, &args.initrd) {
        (Some(root), _) => Files::Root(walk(root, Links::Followed, room)?),
        (None, initrd) => open_files(initrd.clone(), memory_mib, room)?,
    };
    Ok(Chosen {
        name: image::stem(&image.path),
        image,
        files,
        cmdline,
    })
}

fn default_memory(guest: GuestKind) -> MemorySize {
    MemorySize {
        mib: match guest {
            GuestKind::LibraryOs => 64,
            GuestKind::Linux => 512,
            // Untouched memory costs nothing.
            GuestKind::Program => 512,
        },
    }
}

/// With passt the addresses are known: the guest need not ask for them, and does not wake
/// for a router that cannot answer.
fn static_addresses(net: &NetChoice, publish: &[Publish]) -> Option<cmdline::Addresses> {
    let v4 = || {
        format!(
            "{}/{},{}",
            Ipv4Addr::from(passt::GUEST),
            passt::PREFIX,
            Ipv4Addr::from(passt::GATEWAY)
        )
    };
    let v6 = || {
        if !passt::uses_ipv6(publish) {
            return "off".to_owned();
        }
        format!(
            "{}/{},{}",
            passt::GUEST_V6,
            passt::PREFIX_V6,
            passt::GATEWAY_V6
        )
    };
    matches!(net, NetChoice::User(_)).then(|| cmdline::Addresses { v4: v4(), v6: v6() })
}

fn name_of(given: Option<String>, stem: String) -> Result<Name, PlanError> {
    match given {
        None => Ok(Name::Numbered(stem)),
        Some(name) if valid_name(&name) => Ok(Name::Given(name)),
        Some(name) => Err(PlanError::BadName(name)),
    }
}

/// An initramfs as it is, or nothing.
pub(crate) fn open_files(
    initrd: Option<PathBuf>,
    memory_mib: u32,
    room: u64,
) -> Result<Files, PlanError> {
    match initrd {
        Some(path) => Ok(Files::Initrd(open_initrd(path, memory_mib, room)?)),
        None => Ok(Files::None),
    }
}

fn open_initrd(path: PathBuf, memory_mib: u32, room: u64) -> Result<File, PlanError> {
    let opened = File::open(&path).and_then(|file| Ok((file.metadata()?, file)));
    match opened {
        Err(source) => Err(PlanError::Initrd { path, source }),
        Ok((metadata, _)) if !metadata.is_file() => Err(PlanError::Initrd {
            path,
            source: io::Error::other("it is not a file"),
        }),
        Ok((metadata, _)) if metadata.len() > room => {
            Err(PlanError::InitrdTooLarge { path, memory_mib })
        }
        Ok((_, file)) => Ok(file),
    }
}

fn net(choice: NetChoice, publish: Vec<Publish>) -> Result<Net, Failure> {
    match choice {
        NetChoice::User(allow) => {
            ports::check(&publish)?;
            Ok(Net::User {
                forwards: publish,
                filter: frame_rules::of_this_host(allow),
            })
        }
        _ if !publish.is_empty() => Err(PlanError::PublishWithoutUser.into()),
        NetChoice::None => Ok(Net::None),
        NetChoice::Tap(name) => Ok(Net::Tap {
            file: tap::open(&name)?,
            name,
        }),
    }
}

fn check_net_limit(net: &Net, engine: &Engine) -> Result<(), PlanError> {
    match (net, engine) {
        (Net::None, _) => Err(PlanError::LimitWithoutNet),
        (_, Engine::Tare(_)) => Ok(()),
        _ => Err(PlanError::NetLimitWithoutTare),
    }
}

/// QEMU has no word for `KVM_CAP_HALT_POLL`.
fn halt(asked: Option<HaltPolicy>, engine: &Engine) -> Result<HaltPolicy, PlanError> {
    match (asked, engine) {
        (asked, Engine::Tare(_)) => Ok(asked.unwrap_or_default()),
        (None | Some(HaltPolicy::Kernel), _) => Ok(HaltPolicy::Kernel),
        _ => Err(PlanError::HaltWithoutTare),
    }
}

impl Plan {
    /// One line about an engine that was not requested, or that lacks a feature.
    pub(crate) fn notice(&self) -> Option<String> {
        match &self.engine {
            Engine::Qemu {
                because: Some(because),
                ..
            } => Some(format!("running in QEMU, much slower than KVM: {because}")),
            _ => self.emulated.clone(),
        }
    }
}
