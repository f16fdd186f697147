//! From the command line's arguments to a plan: checks everything and changes nothing. Files are
//! opened, since a check by name could be outdated at the start.

use std::net::Ipv4Addr;

use tare_control::config::{GuestKind, HugePages};
use tare_control::exit::ExitCode;
use tare_control::halt::HaltPolicy;
use tare_control::rundir::valid_name;
use tare_frames::Prefix;
use tare_host::signal_number::SignalNumber;
use tare_rootfs::walk::{Links, walk};

use crate::attempt::Attempt;
use crate::engine::{self, Engine, EngineError};
use crate::failure::{Explain, Failure};
use crate::image::{self, Image};
use crate::interruption::{Interrupted, Interruption};
use crate::limits::Limits;
use crate::linux::{self, root::LinuxRoot};
use crate::machine::{Boot, Files, MachineSpec, Net};
use crate::memory_choice::{self, MemoryChoice};
use crate::memory_size::MemorySize;
use crate::net_choice::{Forward, NetChoice, Outbound, UserNet};
use crate::publish::Publish;
use crate::record::Reloadable;
use crate::request::{JobMode, Request};
use crate::run_dir_guard::Name;
use crate::{
    Terminal, cmdline, dedicated_cpus, disk, disk_choice, frame_rules, image_check, initrd,
    machine_size, passt, ports, program, site, tap, user, volume,
};

/// The least memory that a control group may leave a machine: its monitor and `tare` start in it.
const LEAST_MIB: u32 = 16;

/// A run that can be started.
#[derive(Debug)]
pub struct Plan {
    /// The machine.
    pub(crate) machine: MachineSpec,
    /// What executes the guest.
    pub(crate) engine: Engine,
    /// Its name.
    pub(crate) name: Name,
    /// The guest's files.
    pub(crate) files: Files,
    /// Its network.
    pub(crate) net: Net,
    /// A notice about Linux on a KVM that emulates ring 0.
    pub(crate) emulated: Option<String>,
    /// What it may use at most.
    pub(crate) limits: Limits,
    /// How it can get another root at run time, if it can.
    pub(crate) reload: Option<Reloadable>,
    /// The keeper's attempt, if it is one.
    pub(crate) attempt: Option<Attempt>,
    /// Signals that are caught already.
    pub(crate) interruption: Option<Interruption>,
}

/// Options that exclude each other.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlanError {
    /// Not a machine's name.
    #[error("invalid machine name {0:?}")]
    BadName(String),
    /// Forwards without passt.
    #[error("--publish needs --net user")]
    PublishWithoutUser,
    /// passt for ports, and no passt.
    #[error(
        "--net user,outbound=off needs forward=direct: passt cannot refuse the guest's \
         connections"
    )]
    OutboundOffWithPasst,
    /// Addresses for a guest that opens no connections.
    #[error("--net user,outbound=off and allow= exclude each other")]
    AllowWithoutOutbound,
    /// Arguments for an image that is not a program.
    #[error(
        "a command after --, --entrypoint, --workdir and --env are for programs and Linux guests; IMAGE is neither: leave them out"
    )]
    WordsForImage,
    /// A site's file for a program.
    #[error("--site is for the images http and http-disk, not for programs")]
    SiteForProgram,
    /// An initramfs for a program.
    #[error("--initrd is for images and Linux guests: give a program its files with --root")]
    InitrdForProgram,
    /// Less memory than the machine's own processes take.
    #[error(
        "--limit-memory {0}M is too small for tare itself: give at least {LEAST_MIB}M, or leave it out"
    )]
    NoMemoryLeft(u32),
    /// `--reload` for something without a root.
    #[error("--reload is for the image http, not for programs and Linux guests")]
    ReloadForProgram,
    /// A place for files where there is no program.
    #[error(
        "at= is for programs (tare run ./program): IMAGE and Linux guests mount disks themselves"
    )]
    PlaceWithoutProgram,
    /// A working directory that is relative to nothing.
    #[error("--workdir {0:?} is not an absolute path in the guest: begin it with /")]
    RelativeWorkdir(String),
    /// A signal for something that gets none.
    #[error(
        "--stop-signal is for programs (tare run ./program) and Linux guests with --root: others get no signals"
    )]
    SignalWithoutProgram,
    /// More disks than a program has use for.
    #[error("{0} disks: a program can mount one")]
    SeveralDisks(usize),
    /// Halt polling in an engine that cannot set it.
    #[error("--halt needs Tare's own monitor (--engine tare)")]
    HaltWithoutTare,
    /// Small pages with an engine that always requests large ones.
    #[error("hugepages=off needs Tare's own monitor (--engine tare)")]
    SmallPagesWithoutTare,
    /// A network limit without a network.
    #[error("--limit-net needs a network: leave out --net none")]
    LimitWithoutNet,
    /// A network limit with an engine that has none.
    #[error("--limit-net needs Tare's own monitor (--engine tare)")]
    NetLimitWithoutTare,
}

impl Explain for PlanError {
    fn code(&self) -> ExitCode {
        ExitCode::Usage
    }

    fn hint(&self) -> Option<String> {
        matches!(self, Self::BadName(_)).then(|| {
            "use 1 to 64 letters, digits, '.', '_' or '-', beginning with a letter or digit"
                .to_owned()
        })
    }
}

/// Checks `request` against this host. Files are opened; nothing is changed, except that
/// Debian's kernel is downloaded once.
pub fn plan(request: Request, terminal: &dyn Terminal) -> Result<Plan, Failure> {
    // For a Linux guest a kernel may be downloaded and a disk made: a signal lets what is unfinished
    // be removed.
    let watched = request.kernel.is_some().then(Interruption::watch);
    let interruption = watched.transpose().map_err(Interruption::failed)?;
    let check = || interruption.as_ref().map_or(Ok(()), Interruption::check);
    let planned = planned(request, terminal, &check);
    // What the signal ended too has failed for no other reason.
    check()?;
    Ok(Plan {
        interruption,
        ..planned?
    })
}

fn planned(
    request: Request,
    terminal: &dyn Terminal,
    check: &dyn Fn() -> Result<(), Interrupted>,
) -> Result<Plan, Failure> {
    let cpus = machine_size::cpus(request.cpus)?;
    let own = request.image.as_deref().map(image::open).transpose()?;
    let guest = guest_kind(&request, own.as_ref())?;
    volume::check(&request.volumes, guest, request.root.is_some())?;
    if let Some(limit) = request.limits.memory.filter(|it| it.mib < LEAST_MIB) {
        return Err(PlanError::NoMemoryLeft(limit.mib).into());
    }
    let memory = request.memory.unwrap_or(default_memory(guest));
    let memory_mib = machine_size::memory_mib(memory.size)?;
    let boot = match &request.kernel {
        Some(kernel) => linux::choose(kernel, &request, memory_mib, terminal)?,
        None => library_os(&request, own, guest, memory_mib)?,
    };
    let (name, place) = match &request.attempt {
        Some(attempt) => (
            Name::Given(attempt.name()),
            JobMode::Attempt(attempt.output),
        ),
        None => (name_of(request.name, boot.name)?, request.place),
    };
    if matches!(request.net, NetChoice::User(_)) {
        ports::check(&request.publish)?;
    }
    let devices = if request.volumes.is_empty() {
        engine::Devices::Any
    } else {
        engine::Devices::QemusAlone
    };
    let (engine, probe) = engine::choose(request.engine, request.cpus, guest, devices)?;
    let net = net(request.net, request.publish, guest, &engine)?;
    if request.limits.net.is_some() {
        check_net_limit(&net, &engine)?;
    }
    let huge_pages = huge_pages(memory, &request.limits, &engine)?;
    let halt = halt(request.halt, &engine)?;
    let dedicated_cpus = match halt {
        HaltPolicy::Dedicated => dedicated_cpus::take(cpus)?,
        _ => Vec::new(),
    };
    let (cmdline, emulated) = linux::emulated::spare(boot.cmdline, probe.as_ref())?;
    let asked = match &request.attempt {
        // The guest may have written their content since it ran.
        Some(attempt) if attempt.restarts > 0 => disk_choice::all_raw(request.disks),
        _ => request.disks,
    };
    let volumes = volume::open_all(&request.volumes)?;
    let mut disks = disk::open(asked, cpus, &engine)?;
    if guest == GuestKind::Program {
        disks.iter().try_for_each(disk::check_file_system)?;
    }
    image_check::check(&boot.image, guest, memory_mib, &engine)?;
    if request.reload {
        image_check::check_reload(&boot.image)?;
    }
    if let (Some(ring), true) = (request.ring, guest != GuestKind::Linux) {
        image_check::check_ring(&boot.image, ring)?;
    }
    if request.site.is_some() {
        image_check::check_site(&boot.image)?;
    }
    if let Files::Linux(LinuxRoot {
        disk: Some(disk), ..
    }) = &boot.files
    {
        check()?;
        // The first disk, since the first process receives its name.
        disks.insert(0, disk.make(cpus)?);
    }
    let reload = request.reload.then(|| Reloadable {
        disk: u32::try_from(disks.len()).unwrap_or(u32::MAX),
        has_site: request.site.is_some(),
    });
    let of_image = boot.stop_signal.unwrap_or(SignalNumber::TERM);
    Ok(Plan {
        machine: MachineSpec {
            guest,
            image: boot.image,
            cpus,
            memory_mib,
            huge_pages,
            stop_signal: request.stop_signal.unwrap_or(of_image),
            cmdline,
            disks,
            volumes,
            halt,
            dedicated_cpus,
            user: user::choose(request.user)?,
            place,
            probe,
        },
        engine,
        name,
        files: boot.files,
        net,
        emulated,
        limits: request.limits,
        reload,
        attempt: request.attempt,
        interruption: None,
    })
}

fn guest_kind(request: &Request, image: Option<&Image>) -> Result<GuestKind, PlanError> {
    let guest = match (&request.kernel, image) {
        (Some(_), _) => GuestKind::Linux,
        (None, None) => GuestKind::Program,
        (None, Some(image)) if program::is_program(image) => GuestKind::Program,
        (None, Some(_)) => GuestKind::LibraryOs,
    };
    if guest != GuestKind::LibraryOs && request.reload {
        return Err(PlanError::ReloadForProgram);
    }
    if guest == GuestKind::Program && request.initrd.is_some() {
        return Err(PlanError::InitrdForProgram);
    }
    let disks = &request.disks;
    if guest != GuestKind::Program && disks.iter().any(|disk| disk.at.is_some()) {
        return Err(PlanError::PlaceWithoutProgram);
    }
    if guest == GuestKind::Program && disks.len() > 1 {
        return Err(PlanError::SeveralDisks(disks.len()));
    }
    let gets_signals = match guest {
        GuestKind::Program => true,
        GuestKind::Linux => request.root.is_some(),
        GuestKind::LibraryOs => false,
    };
    if let Some(directory) = request.workdir.as_ref().filter(|it| !it.starts_with('/')) {
        return Err(PlanError::RelativeWorkdir(directory.clone()));
    }
    if !gets_signals && request.stop_signal.is_some() {
        return Err(PlanError::SignalWithoutProgram);
    }
    if guest == GuestKind::LibraryOs && request.names_command() {
        return Err(PlanError::WordsForImage);
    }
    Ok(guest)
}

fn library_os(
    request: &Request,
    image: Option<Image>,
    guest: GuestKind,
    memory_mib: u32,
) -> Result<Boot, Failure> {
    let addresses = static_addresses(&request.net, &request.publish);
    let site = request.site.as_deref().map(site::read).transpose()?;
    let mut parameters = request.cmdline.clone();
    if site.is_some() {
        parameters = format!("{parameters} {}={}", tare_site::PARAMETER, tare_site::FILE);
    }
    if request.reload {
        parameters = format!("{parameters} {}=on", tare_site::reload::PARAMETER);
    }
    let cmdline = cmdline::build(addresses, request.idle, request.ring, &parameters)?;
    let image = match (guest, image) {
        (GuestKind::LibraryOs, Some(image)) => image,
        _ if site.is_some() => return Err(PlanError::SiteForProgram.into()),
        (_, image) => return program::choose(image, request, memory_mib, cmdline),
    };
    let room = machine_size::room_for_files(memory_mib, image.bytes);
    let files = match (&request.root, site) {
        (Some(root), None) => Files::Root(walk(root, Links::Followed, room)?),
        (Some(root), Some(site)) => {
            let room = room.saturating_sub(site.archive_bytes());
            let mut listing = walk(root, Links::Followed, room)?;
            site.pack(&mut listing.tree)?;
            Files::Root(listing)
        }
        (None, Some(site)) => Files::Site(site.pack_alone()?),
        (None, None) => initrd::open(request.initrd.clone(), memory_mib, room)?,
    };
    Ok(Boot {
        name: image::stem(&image.path),
        image,
        files,
        stop_signal: None,
        cmdline,
    })
}

fn default_memory(guest: GuestKind) -> MemoryChoice {
    let mib = match guest {
        GuestKind::LibraryOs => 64,
        GuestKind::Linux => 512,
        // Untouched memory costs nothing.
        GuestKind::Program => program::DEFAULT_MEMORY_MIB,
    };
    MemoryChoice {
        size: MemorySize { mib },
        huge_pages: None,
    }
}

/// With passt the addresses are known: the guest needs no DHCP, and does not wake for a router that
/// cannot answer.
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

fn net(
    choice: NetChoice,
    publish: Vec<Publish>,
    guest: GuestKind,
    engine: &Engine,
) -> Result<Net, Failure> {
    match choice {
        NetChoice::User(user) => user_net(user, publish, guest, engine),
        _ if !publish.is_empty() => Err(PlanError::PublishWithoutUser.into()),
        NetChoice::None => Ok(Net::None),
        NetChoice::Tap(name) => Ok(Net::Tap {
            file: tap::open(&name)?,
            name,
        }),
    }
}

fn user_net(
    user: UserNet,
    publish: Vec<Publish>,
    guest: GuestKind,
    engine: &Engine,
) -> Result<Net, Failure> {
    if engine.monitor().is_none() {
        return Err(EngineError::NoMonitor(None).into());
    }
    let forward = match (user.forward, engine) {
        (Forward::Auto, Engine::Tare(_)) if guest == GuestKind::Linux => Forward::Passt,
        (Forward::Auto, _) => Forward::Direct,
        (given, _) => given,
    };
    let passt = match user.outbound {
        Outbound::On => Some(frame_rules::of_this_host(user.allow)),
        Outbound::Off => {
            check_outbound_off(forward, &user.allow)?;
            None
        }
    };
    let direct = match forward {
        Forward::Direct => Some(ports::listen(&publish)?),
        Forward::Auto | Forward::Passt => None,
    };
    Ok(Net::User {
        forwards: publish,
        direct,
        passt,
    })
}

/// Without passt there is only what the monitor serves itself.
fn check_outbound_off(forward: Forward, allow: &[Prefix]) -> Result<(), PlanError> {
    if forward != Forward::Direct {
        return Err(PlanError::OutboundOffWithPasst);
    }
    if !allow.is_empty() {
        return Err(PlanError::AllowWithoutOutbound);
    }
    Ok(())
}

fn check_net_limit(net: &Net, engine: &Engine) -> Result<(), PlanError> {
    match (net, engine) {
        (Net::None, _) => Err(PlanError::LimitWithoutNet),
        (_, Engine::Tare(_)) => Ok(()),
        _ => Err(PlanError::NetLimitWithoutTare),
    }
}

/// QEMU always advises huge pages for its guest's memory.
fn huge_pages(
    memory: MemoryChoice,
    limits: &Limits,
    engine: &Engine,
) -> Result<Option<HugePages>, PlanError> {
    match (memory_choice::huge_pages(memory, limits), engine) {
        (huge_pages, Engine::Tare(_)) => Ok(huge_pages),
        _ if memory.huge_pages == Some(HugePages::Off) => Err(PlanError::SmallPagesWithoutTare),
        _ => Ok(None),
    }
}

/// QEMU has no option for `KVM_CAP_HALT_POLL`.
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
