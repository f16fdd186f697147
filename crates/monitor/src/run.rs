//! The program: set up, build, confine, run, end, and remove all traces.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::stdio::stdin;
use rustix::termios::isatty;
use tare_abi::exit::GuestExit;
use tare_control::api::State;
use tare_control::config::{
    Console, GuestKind, Jail, Leaves, MachineConfig, NetBackend, NetConfig,
};
use tare_control::exit::{ExitCode, RunExit};
use tare_control::rundir::{Removal, RunDir, record_end};
use tare_control::sentence::chain;
use tare_daemon::jail::Entering;
use tare_daemon::main_loop::MainLoop;
use tare_daemon::threads::Threads;
use tare_daemon::{jail, signals};
use tare_host::end_requests::{EndRequests, Keys};
use tare_host::process::{own_number, start_time};
use tare_host::signals::OF_PROGRAMS;
use tare_hv::KickHandle;

use crate::complaint::complain;
use crate::confine::{ConfineError, Files, OnViolation, Role};
use crate::console::terminal;
use crate::drain::Drain;
use crate::ending::Ending;
use crate::exit_reason::{ExitReason, ShutdownHandle};
use crate::inherit::{Inherited, borrow};
use crate::machine::{AssembledMachine, Control};
use crate::start::{Setup, Sources, StartError, failed_to, read_config};
use crate::vcpu::pin_thread;
use crate::wiring::eventfd;
use crate::{confine, heap, routes};

/// How long threads get to end.
const TIMEOUT: Duration = Duration::from_millis(1500);

/// Runs the monitor with the program's arguments; the result is its exit code.
pub fn run(arguments: impl Iterator<Item = OsString>) -> RunExit {
    let started = Instant::now();
    end_on_panic();
    heap::share();
    // Before any descriptor is opened.
    let inherited = Inherited::all();
    let config = inherited
        .map_err(StartError::from)
        .and_then(|mut inherited| Ok((read_config(arguments, &mut inherited)?, inherited)));
    let (config, inherited) = match config {
        Ok(both) => both,
        Err(error) => return refuse(&error).into(),
    };
    // Opened before the main thread loses the right to open files.
    let run_dir = RunDir::at(&config.run_dir);
    let removal = run_dir.removal();
    let leaves = config.leaves;
    terminal::look();
    // From here on this is the machine's process, if the kernel grants it a PID namespace.
    let further = further_signals(&config);
    let entering = jail::fork_into_namespaces(&config.jail, further);
    // A signal during the set-up must not leave the run directory behind. Should this
    // fail, `build` fails for the same reason and reports it.
    let _ = signals::install_also(further);
    let removable = removal
        .as_ref()
        .ok()
        .and_then(Option::as_ref)
        .map(Removal::directories);
    let setup = entering.map_err(StartError::from).and_then(|entering| {
        let pid = name_process(&run_dir)?;
        let (setup, sources) = Setup::new(config, inherited, pid)?;
        enter_jail(&setup.config.jail, removable, &entering)?;
        Ok((setup, sources))
    });
    let (code, kept, lock) = match setup {
        Ok((mut setup, sources)) => {
            let (code, kept) = live(&mut setup, sources, removable, started);
            (code, kept, Some(setup.lock))
        }
        Err(error) => (refuse(&error).into(), Retained::of_failed(leaves), None),
    };
    match removal {
        Ok(Some(removal)) => {
            if let Err(error) = leave(&removal, kept, lock.as_ref(), code) {
                complain(format!("cannot clean the run directory: {error}"));
            }
        }
        Ok(None) => {}
        Err(error) => complain(chain(&error)),
    }
    // Only now may another machine take the name.
    drop(lock);
    code
}

/// Run root and run directory, open for the removal at the end.
type Removable<'a> = Option<[&'a OwnedFd; 2]>;

/// What remains of a machine in its run directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Retained {
    Nothing,
    /// For the keeper, which sees the exit code.
    Log,
    /// Until `tare rm`.
    LogAndCode,
}

impl Retained {
    /// For a machine that did not start.
    fn of_failed(leaves: Leaves) -> Self {
        match leaves {
            Leaves::ForKeeper => Self::Log,
            Leaves::Nothing | Leaves::OwnEnd => Self::Nothing,
        }
    }
}

fn leave(
    removal: &Removal,
    kept: Retained,
    lock: Option<&OwnedFd>,
    ended: RunExit,
) -> std::io::Result<()> {
    match (kept, lock) {
        (Retained::LogAndCode, Some(lock)) => {
            removal.remove_only_running()?;
            record_end(lock, ended.number())
        }
        (Retained::Log, _) => removal.remove_only_running(),
        _ => removal.remove(),
    }
}

/// Names this process in `run.json`; its number outside of its PID namespace.
fn name_process(run_dir: &RunDir) -> Result<u32, StartError> {
    let named = || {
        let pid = own_number().ok_or(ErrorKind::NotFound)?;
        let start_time = start_time(pid).ok_or(ErrorKind::NotFound)?;
        run_dir.name_process(pid, start_time)?;
        Ok(pid)
    };
    named().map_err(failed_to("name its process in run.json"))
}

/// Gives up all privileges before the image, the initramfs and the disks are read: only
/// removing the run directory may need a capability.
fn enter_jail(
    jail: &Jail,
    removable: Removable<'_>,
    entering: &Entering,
) -> Result<(), StartError> {
    let on_violation = OnViolation {
        program: "tare-monitor",
        restore: terminal::restore,
    };
    confine::install_violation_handler(on_violation).map_err(of_errno("handle signals"))?;
    let entered = jail::enter_rest(jail, entering);
    let directories = removable.map_or(Vec::new(), Vec::from);
    // Needed also when the jail failed: it may have changed the user, whose removal of the run
    // directory needs the capability.
    let dropped = confine::drop_capabilities_but_removal(&directories);
    entered?;
    dropped.map_err(failed_to("drop its capabilities"))?;
    confine::confine_set_up(Files::read_kernel_only(removable)?)?;
    Ok(())
}

/// Runs one machine to its end; returns what remains of it.
fn live(
    setup: &mut Setup,
    sources: Sources,
    removable: Removable<'_>,
    started: Instant,
) -> (RunExit, Retained) {
    let outcome = build(setup, sources, started)
        .and_then(|(machine, control)| run_machine(setup, removable, machine, &control));
    terminal::restore();
    match outcome {
        Ok(Reached { reason, was_asked }) => {
            let reason = reason.explained(setup.config.guest, &setup.console_log);
            tell(&reason);
            let ended = reason.ended(setup.config.guest);
            // In the background the console has not been printed yet; a keeper reads the code.
            let stays = match setup.config.leaves {
                Leaves::Nothing => false,
                Leaves::OwnEnd => !reason.was_requested(),
                Leaves::ForKeeper => !(reason.was_requested() || was_asked),
            };
            if stays {
                (ended, Retained::LogAndCode)
            } else {
                (ended, Retained::Nothing)
            }
        }
        Err(error) => (
            refuse(&error).into(),
            Retained::of_failed(setup.config.leaves),
        ),
    }
}

/// What such a guest gets besides requests to end.
fn further_signals(config: &MachineConfig) -> &'static [i32] {
    match config.guest {
        GuestKind::Program => &OF_PROGRAMS,
        GuestKind::Linux if config.has_init => &OF_PROGRAMS,
        GuestKind::LibraryOs | GuestKind::Linux => &[],
    }
}

/// A Linux guest that gets signals may have the terminal as its console.
fn keys(config: &MachineConfig, streams: Option<&Drain>) -> Keys {
    let is_shown = matches!(config.console, Console::Stdio { .. });
    if config.has_init && is_shown && streams.is_none() && isatty(stdin()) {
        Keys::Consoles
    } else {
        Keys::Signals
    }
}

/// How a machine ended.
struct Reached {
    reason: ExitReason,
    /// A user requested the end; the guest may have ended by itself then.
    was_asked: bool,
}

fn build(
    setup: &mut Setup,
    sources: Sources,
    started: Instant,
) -> Result<(AssembledMachine, Control), StartError> {
    signals::install().map_err(failed_to("handle signals"))?;
    let control = Control {
        shutdown: ShutdownHandle::new(eventfd()?),
        stop: Arc::new(AtomicBool::new(false)),
        started,
    };
    let machine = AssembledMachine::build(setup, sources, &control)?;
    Ok((machine, control))
}

fn run_machine(
    setup: &Setup,
    removable: Removable<'_>,
    mut machine: AssembledMachine,
    control: &Control,
) -> Result<Reached, StartError> {
    let shutdown = &control.shutdown;
    let listener = setup.control.try_clone();
    let main = MainLoop::new(listener.map_err(failed_to("serve its control socket"))?)?;
    main.watch(borrow(shutdown.event()), routes::END)?;

    let io = role_of_io(setup.config.net.as_ref());
    let threads = spawn(machine.vcpus, machine.io, io, shutdown)?;
    machine.observer.threads = threads.observers()?;
    let vcpus = machine
        .observer
        .vcpu_threads()
        .map_err(failed_to("open its threads' statistics"))?;
    machine.observer.halt.borrow_mut().watch(vcpus);
    if let Some(event) = machine.observer.halt.borrow().event() {
        main.watch(borrow(event), routes::HALT)?;
    }
    if matches!(setup.config.console, Console::Stdio { .. }) {
        terminal::enter(match (&machine.drain, &machine.signals) {
            (Some(_), Some(_)) => terminal::Keys::LinesAndQuit,
            (Some(_), None) => terminal::Keys::Lines,
            (None, Some(_)) => terminal::Keys::RawAndQuit,
            (None, None) => terminal::Keys::Raw,
        });
    }
    if let Some(drain) = &machine.drain {
        main.watch(borrow(drain.done()), routes::DRAINED)?;
    }
    let kicks = machine.kick_handles;
    let files = match removable {
        Some([root, directory]) => Files::remove_in(root, directory)?,
        None => Files::none()?,
    };
    let mut routes = routes::Control {
        config: setup.config.clone(),
        observer: machine.observer,
        adjustable: machine.adjustable,
        shutdown: shutdown.clone(),
        signals: machine.signals,
        requests: EndRequests::new(keys(&setup.config, machine.drain.as_ref())),
        ending: Ending::new(machine.drain, Arc::clone(&control.stop), kicks.clone()),
        state: State::Running,
    };
    confine::confine(Role::Main, files)?;
    threads.open_gate();

    let reason = main.run(&mut routes).unwrap_or_else(|error| {
        ExitReason::Failed(format!("the main thread cannot wait: {error}"))
    });
    control.stop.store(true, Ordering::Release);
    let _ = machine.io_stop.write(1);
    let kick = |_, _| kicks.iter().for_each(KickHandle::kick);
    if let Err(error) = threads.join(TIMEOUT, kick) {
        complain(error.to_string());
    }
    Ok(Reached {
        reason,
        was_asked: routes.state == State::Stopping,
    })
}

/// What the I/O thread may do.
pub(crate) fn role_of_io(net: Option<&NetConfig>) -> Role {
    match net.map(|net| &net.backend) {
        Some(NetBackend::Forward(config)) if config.ports.iter().any(|it| it.all_addresses) => {
            Role::IoAllAddresses
        }
        _ => Role::Io,
    }
}

/// Starts the I/O thread and one thread for each vCPU; they wait until the main thread is confined.
fn spawn(
    vcpus: Vec<crate::vcpu::VcpuLoop>,
    io: crate::io::IoLoop,
    io_role: Role,
    shutdown: &ShutdownHandle,
) -> Result<Threads, StartError> {
    let mut threads = Threads::new();
    let failed = shutdown.clone();
    let io = move |(), confined: Result<(), ConfineError>| {
        let failure = match confined.map(|()| io.run()) {
            Ok(Ok(())) => return,
            Ok(Err(error)) => format!("the I/O thread failed: {error}"),
            Err(error) => chain(&error),
        };
        failed.end(ExitReason::Failed(failure));
    };
    threads.spawn("io".to_owned(), io_role, || (), io)?;
    for vcpu in vcpus {
        let name = format!("vcpu{}", vcpu.vcpu.index());
        let (dedicated_cpu, shutdown) = (vcpu.dedicated_cpu, shutdown.clone());
        let work = move |settled: Result<(), ExitReason>, confined: Result<(), ConfineError>| {
            let confined = confined.map_err(|error| ExitReason::Failed(chain(&error)));
            match settled.and(confined) {
                Ok(()) => vcpu.run(),
                Err(reason) => shutdown.end(reason),
            }
        };
        threads.spawn(name, Role::Vcpu, move || pin_thread(dedicated_cpu), work)?;
    }
    Ok(threads)
}

/// Makes a panic of any thread end the process, with the terminal restored.
fn end_on_panic() {
    std::panic::set_hook(Box::new(|panic| {
        terminal::restore();
        complain(format!("an error in Tare itself: {panic}"));
        std::process::exit(ExitCode::Internal as i32);
    }));
}

/// Reports why the run ended, unless that is the normal end.
fn tell(reason: &ExitReason) {
    if !matches!(
        reason,
        ExitReason::PowerOff | ExitReason::Guest(GuestExit::Status(0))
    ) {
        complain(reason.to_string());
    }
}

fn refuse(error: &StartError) -> ExitCode {
    complain(chain(error));
    error.code()
}

fn of_errno(what: &'static str) -> impl FnOnce(vmm_sys_util::errno::Error) -> StartError {
    move |errno| failed_to(what)(errno.into())
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::fs;
    use std::process::Command;

    use rustix::process::{Pid, Signal, geteuid};
    use tare_control::config::JailUser;
    use tare_control::rundir::RunRoot;
    use tare_daemon::jail::JailError;
    use tare_host::child::ParentDeath;

    use super::*;

    /// The user ID of no account.
    const USER: u32 = 1_899_999_998;
    const DIRECTORY: &str = "TARE_TEST_RUN_DIRECTORY";

    /// Its parent ends when it is already the machine's user, who may not remove root's files. In a
    /// separate process, since a jail cannot be left.
    #[test]
    fn a_monitor_whose_parent_ends_within_its_jail_leaves_nothing() {
        if let Some(directory) = env::var_os(DIRECTORY) {
            return end_within_the_jail(&RunDir::at(directory));
        }
        if !geteuid().is_root() {
            tare_vmtest::lacks("only root's machines change their user");
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let root = RunRoot::open(place.path().join("run")).unwrap();
        let (directory, _lock) = root.create("machine").unwrap();
        fs::write(directory.console_log(), "x").unwrap();
        let name = "run::tests::a_monitor_whose_parent_ends_within_its_jail_leaves_nothing";
        let mut again = Command::new(env::current_exe().unwrap());
        again.args(["--exact", name, "--nocapture"]);
        let done = again.env(DIRECTORY, directory.path()).output().unwrap();
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(
            done.status.success() && said.contains("1 passed"),
            "{done:?}"
        );
        assert!(!directory.path().exists());
    }

    fn end_within_the_jail(directory: &RunDir) {
        let removal = directory.removal().unwrap().unwrap();
        let user = JailUser {
            uid: USER,
            gid: USER,
            claim: None,
        };
        let jail = Jail {
            namespaces: true,
            user: Some(user),
        };
        let gone = ParentDeath::on(Signal::CONT, Pid::from_raw(i32::MAX).unwrap());
        let entering = Entering::alone(gone);
        let error = enter_jail(&jail, Some(removal.directories()), &entering).unwrap_err();
        assert!(matches!(error, StartError::Jail(JailError::ParentEnded)));
        assert_eq!(geteuid().as_raw(), USER);
        leave(&removal, Retained::Nothing, None, error.code().into()).unwrap();
    }
}
