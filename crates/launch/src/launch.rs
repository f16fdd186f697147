//! The effects of `tare run`, in an order that leaves nothing behind when one
//! fails: the run directory first, since its lock decides who has the name.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;

use tare_control::config::GuestKind;
use tare_control::exit::{Ended, ExitCode};
use tare_control::halt::HaltPolicy;
use tare_control::rundir::{RunDir, RunRoot};
use tare_frames::Rules;
use tare_host::process::start_time;
use tare_policy::limit::NetLimits;
use tare_qemu::Accelerator;
use tare_rootfs::cpio;

use crate::Terminal;
use crate::disk::OpenDisk;
use crate::engine::Engine;
use crate::failure::{Explain, Failure};
use crate::interruption::Interruption;
use crate::own_cpus::OwnCpu;
use crate::passt::Passt;
use crate::plan::{Files, Net, Plan};
use crate::publish::Publish;
use crate::rates::NetRate;
use crate::record::{EngineName, Record, now_s};
use crate::request::Place;
use crate::run_dir_guard::RunDirGuard;
use crate::user::MachineUser;
use crate::{limits, mac, monitor, passt, qemu};

/// A file of the run that cannot be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot make {what} in {}", dir.display())]
pub struct RunFileError {
    pub(crate) what: &'static str,
    pub(crate) dir: std::path::PathBuf,
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

/// A machine that only needs its engine.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// Its run directory and lock.
    pub(crate) run_dir: RunDirGuard,
    /// What `tare ps` shows.
    pub(crate) record: Record,
    /// What the image is.
    pub(crate) guest: GuestKind,
    /// The open image.
    pub(crate) image: File,
    /// The open initramfs.
    pub(crate) initrd: Option<File>,
    /// The guest's command line.
    pub(crate) cmdline: String,
    /// The network interface.
    pub(crate) link: Option<Link>,
    /// Its disks.
    pub(crate) disks: Vec<OpenDisk>,
    /// How a halted vCPU waits.
    pub(crate) halt: HaltPolicy,
    /// CPUs of the host that its vCPUs have alone.
    pub(crate) own_cpus: Vec<OwnCpu>,
    /// Open `console.log`.
    pub(crate) console_log: File,
    /// The user that it becomes.
    pub(crate) user: Option<MachineUser>,
    /// Where the run belongs.
    pub(crate) place: Place,
    /// Whether a signal asked for the end meanwhile.
    pub(crate) interruption: Interruption,
}

impl Prepared {
    /// Waits until the other end of the network is there.
    pub(crate) fn connect(&mut self) -> Result<(), Failure> {
        if let Some(LinkEnd::Passt { passt, .. }) = self.link.as_mut().map(|link| &mut link.end) {
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
    Passt {
        /// The process and the socket to it.
        passt: Passt,
        /// What the guest may not reach.
        filter: Rules,
    },
    /// A tap interface.
    Tap {
        /// Its name.
        name: String,
        /// Its descriptor.
        file: File,
    },
}

/// How a start went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Launched {
    /// The machine runs in the background under this name.
    Background(String),
    /// The machine has ended.
    Ended(Ended),
}

/// Starts the machine. In the foreground Tare's engine does not return from
/// this: the process becomes the monitor.
pub fn launch(plan: Plan, terminal: &dyn Terminal) -> Result<Launched, Failure> {
    if let Some(notice) = plan.notice() {
        terminal.warn(&notice);
    }
    plan.files
        .warnings()
        .iter()
        .for_each(|warning| terminal.warn(warning));
    let Plan {
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
        user,
        limits,
        place,
        ..
    } = plan;
    // From here on Ctrl-C lets the guard remove the directory.
    let interruption = Interruption::watch().map_err(|e| Failure::new(ExitCode::Internal, e))?;
    let run_dir = RunDirGuard::take(&RunRoot::open_default()?, &name)?;
    let forwards = forwards(&net);
    let record = Record {
        engine: engine_name(&engine),
        pid: std::process::id(),
        start_time: start_time(std::process::id()),
        image: image.path.to_string_lossy().into_owned(),
        cpus,
        memory_mib,
        ports: forwards.iter().map(Publish::to_string).collect(),
        started_s: now_s(),
        user: match engine {
            Engine::Tare(_) => user.as_ref().map(|user| user.uid),
            // QEMU keeps the user who starts it; its passt does not.
            Engine::Qemu { .. } => None,
        },
    };
    limits::sweep();
    // From here on what is started is in the group: passt, the monitor or QEMU.
    limits::enter(limits, &disks, run_dir.dir().name())?;
    let runs_as = user.as_ref().map(|user| user.passt);
    let mut link = link(net, mac::address(run_dir.dir().name()), runs_as)?;
    if let (Some(link), Some(NetRate(rate))) = (&mut link, limits.net) {
        link.limits = rate;
    }
    // While passt starts.
    let initrd = initrd(files)?;
    let console_log = console_log(run_dir.dir())?;
    let prepared = Prepared {
        run_dir,
        record,
        guest,
        image: image.file,
        initrd,
        cmdline,
        link,
        disks,
        halt,
        own_cpus,
        console_log,
        user,
        place,
        interruption,
    };
    match engine {
        Engine::Tare(program) => monitor::start(&program, prepared, terminal),
        Engine::Qemu {
            program,
            accelerator,
            ..
        } => qemu::start(&program, accelerator, prepared, terminal),
    }
}

fn forwards(net: &Net) -> Vec<Publish> {
    match net {
        Net::User { forwards, .. } => forwards.clone(),
        Net::None | Net::Tap { .. } => Vec::new(),
    }
}

fn engine_name(engine: &Engine) -> EngineName {
    match engine {
        Engine::Tare(_) => EngineName::Tare,
        Engine::Qemu {
            accelerator: Accelerator::Tcg,
            ..
        } => EngineName::Qemu,
        Engine::Qemu {
            accelerator: Accelerator::Kvm,
            ..
        } => EngineName::QemuKvm,
    }
}

fn link(net: Net, mac: [u8; 6], runs_as: Option<(u32, u32)>) -> Result<Option<Link>, Failure> {
    let end = match net {
        Net::None => return Ok(None),
        Net::Tap { name, file } => LinkEnd::Tap { name, file },
        Net::User { forwards, filter } => LinkEnd::Passt {
            passt: passt::start(&forwards, mac, runs_as)?,
            filter,
        },
    };
    let limits = NetLimits::default();
    Ok(Some(Link { mac, end, limits }))
}

fn initrd(files: Files) -> Result<Option<File>, Failure> {
    Ok(match files {
        Files::None => None,
        Files::Initrd(file) => Some(file),
        Files::Root(listing) => Some(cpio::pack(&listing.tree)?),
        Files::Linux(root) => Some(cpio::pack(&root.tree)?),
        Files::Program { tree, .. } => Some(cpio::pack(&tree)?),
    })
}

fn keep_log(said: &str, dir: &RunDir) -> Result<(), RunFileError> {
    if said.is_empty() {
        return Ok(());
    }
    fs::write(dir.passt_log(), said).map_err(RunFileError::of("the log of passt", dir))
}

fn console_log(dir: &RunDir) -> Result<File, RunFileError> {
    OpenOptions::new()
        .create_new(true)
        .append(true)
        .read(true)
        .mode(0o600)
        .open(dir.console_log())
        .map_err(RunFileError::of("the console's log", dir))
}
