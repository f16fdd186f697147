//! The effects of `tare run`, ordered so that a failure leaves nothing behind: the run directory
//! first, since its lock decides which machine has the name.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;

use tare_control::config::GuestKind;
use tare_control::rundir::{RunDir, RunRoot};
use tare_host::process::start_time;
use tare_qemu::Accelerator;

use crate::engine::Engine;
use crate::failure::Failure;
use crate::interruption::Interruption;
use crate::link::LinkMaker;
use crate::machine::{Launched, MachineSpec, Net, PreparedMachine, RunFileError};
use crate::passt::PasstUser;
use crate::plan::Plan;
use crate::publish::Publish;
use crate::rates::NetRate;
use crate::record::{EngineName, Record, now_s};
use crate::run_dir_guard::RunDirGuard;
use crate::{Terminal, limits, monitor, packed_files, qemu, reload, user, virtiofsd};

/// Starts the machine. With Tare's engine in the foreground this does not return: the process
/// becomes the monitor.
pub fn launch(plan: Plan, terminal: &dyn Terminal) -> Result<Launched, Failure> {
    if let Some(notice) = plan.notice() {
        terminal.warn(&notice);
    }
    plan.files
        .warnings()
        .iter()
        .for_each(|warning| terminal.warn(warning));
    let Plan {
        mut machine,
        engine,
        name,
        files,
        net,
        limits,
        reload: reloadable,
        attempt,
        interruption,
        ..
    } = plan;
    // From here on Ctrl-C lets the guard remove the directory.
    let interruption = match interruption {
        Some(interruption) => interruption,
        None => Interruption::watch().map_err(Interruption::failed)?,
    };
    let run_dir = match &attempt {
        Some(attempt) => attempt.claim()?,
        None => RunDirGuard::take(&RunRoot::open_default()?, &name)?,
    };
    let mut record = record(&machine, &engine, &net);
    record.reload = reloadable;
    if let Some(attempt) = &attempt {
        record.restarts = attempt.restarts;
        record.keeper = Some(attempt.keeper);
    }
    limits::sweep();
    user::sweep();
    // From here on all children are in the group: passt, the monitor or QEMU.
    limits::enter(limits, &machine.disks, run_dir.dir().name())?;
    if reloadable.is_some() {
        machine.disks.push(reload::disk(run_dir.dir())?);
    }
    let passt_user = machine.user.as_ref().map(PasstUser::of).transpose();
    let passt_user =
        passt_user.map_err(RunFileError::of("a copy of the user's lock", run_dir.dir()))?;
    let waiter = match machine.guest {
        GuestKind::Linux => None,
        GuestKind::LibraryOs | GuestKind::Program => engine.monitor(),
    };
    let maker = LinkMaker {
        run_dir: run_dir.dir(),
        passt_user,
        waiter,
    };
    let mut link = maker.make(net)?;
    if let (Some(link), Some(NetRate(rate))) = (&mut link, limits.net) {
        link.limits = rate;
    }
    // While passt starts.
    let files = packed_files::pack(files, &engine)?;
    let serve = |volume| virtiofsd::start(volume, run_dir.dir());
    let virtiofsds = machine.volumes.iter().map(serve);
    let virtiofsds = virtiofsds.collect::<Result<Vec<_>, _>>()?;
    let console_log = match &attempt {
        Some(_) => console_log_again(run_dir.dir())?,
        None => console_log(run_dir.dir())?,
    };
    let prepared = PreparedMachine {
        spec: machine,
        run_dir,
        record,
        files,
        link,
        virtiofsds,
        console_log,
        interruption,
    };
    match engine {
        Engine::Tare(program) => monitor::start(&program, prepared, terminal),
        Engine::Qemu {
            program,
            monitor,
            accelerator,
            ..
        } => {
            let programs = qemu::Programs {
                qemu: &program,
                monitor: monitor.as_deref(),
            };
            qemu::start(programs, accelerator, prepared, terminal)
        }
    }
}

/// What `tare ps` shows of a machine that this process starts.
pub(crate) fn record(machine: &MachineSpec, engine: &Engine, net: &Net) -> Record {
    Record {
        engine: engine_name(engine),
        pid: std::process::id(),
        start_time: start_time(std::process::id()),
        image: machine.image.path.to_string_lossy().into_owned(),
        cpus: machine.cpus,
        memory_mib: machine.memory_mib,
        ports: forwards(net).iter().map(Publish::to_string).collect(),
        started_s: now_s(),
        restarts: 0,
        keeper: None,
        waits_after: None,
        reload: None,
        passes_signals: matches!(engine, Engine::Qemu { .. }) && machine.gets_signals(),
        user: machine.user.as_ref().map(|user| user.uid),
    }
}

fn forwards(net: &Net) -> &[Publish] {
    match net {
        Net::User { forwards, .. } => forwards,
        Net::None | Net::Tap { .. } => &[],
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

/// The log of a new machine.
pub(crate) fn console_log(dir: &RunDir) -> Result<File, RunFileError> {
    open_log(dir, OpenOptions::new().create_new(true).mode(0o600))
}

/// The log with what earlier attempts wrote.
fn console_log_again(dir: &RunDir) -> Result<File, RunFileError> {
    open_log(dir, &mut OpenOptions::new())
}

fn open_log(dir: &RunDir, options: &mut OpenOptions) -> Result<File, RunFileError> {
    options
        .append(true)
        .read(true)
        .open(dir.console_log())
        .map_err(RunFileError::of("the console's log", dir))
}
