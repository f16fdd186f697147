//! The program: set up, build, confine, run, end, and leave nothing behind.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::thread::{Pid, gettid};
use tare_abi::exit::GuestExit;
use tare_control::api::State;
use tare_control::config::{Console, MachineConfig};
use tare_control::exit::{Ended, ExitCode};
use tare_control::rundir::{Removal, RunDir, record_end};
use tare_control::sentence::chain;
use tare_daemon::{jail, signals};
use tare_hv::KickHandle;

use crate::confine::{Files, OnViolation, Role};
use crate::console::terminal;
use crate::exit_reason::{ExitReason, ShutdownHandle};
use crate::http::server::Server;
use crate::inherit::{Inherited, borrow};
use crate::machine::{Control, Machine};
use crate::observe::ThreadObserver;
use crate::poll::Poll;
use crate::start::{Setup, Sources, StartError, failed_to, read_config};
use crate::vcpu::settle;
use crate::wiring::eventfd;
use crate::{confine, routes};

/// Stack of each thread besides the main one, in bytes.
const STACK_BYTES: usize = 256 << 10;
/// How long threads get to end.
const TIMEOUT: Duration = Duration::from_millis(1500);
const SIGNAL: u64 = 0;
const END: u64 = 1;
const HALT: u64 = 2;
const SERVER: u64 = 3;

/// Runs the monitor with the program's arguments; the result is its exit code.
pub fn run(arguments: impl Iterator<Item = OsString>) -> Ended {
    let started = Instant::now();
    end_on_panic();
    // Before any descriptor is made.
    let inherited = Inherited::all();
    // A signal during the set-up must not leave the run directory behind. Should this
    // fail, `build` fails for the same reason and reports it.
    let _ = signals::install();
    let config = inherited
        .map_err(StartError::from)
        .and_then(|mut inherited| Ok((read_config(arguments, &mut inherited)?, inherited)));
    let (config, inherited) = match config {
        Ok(both) => both,
        Err(error) => return refuse(&error).into(),
    };
    // Opened before the main thread may open nothing any more.
    let run_dir = RunDir::at(&config.run_dir);
    let removal = run_dir.removal();
    let removable = removal.as_ref().ok().and_then(Option::as_ref);
    let removable = removable.map(Removal::directories);
    let setup = Setup::new(config, inherited)
        .and_then(|both| enter_jail(&both.0.config, removable).map(|()| both));
    let (code, kept, lock) = match setup {
        Ok((mut setup, sources)) => {
            let (code, kept) = live(&mut setup, sources, removable, started);
            (code, kept, Some(setup.lock))
        }
        Err(error) => (refuse(&error).into(), Kept::Nothing, None),
    };
    match removal {
        Ok(Some(removal)) => {
            if let Err(error) = leave(&removal, kept, lock.as_ref(), code) {
                complain(&format!("cannot clean the run directory: {error}"));
            }
        }
        Ok(None) => {}
        Err(error) => complain(&chain(&error)),
    }
    // Only now may another machine have the name.
    drop(lock);
    code
}

/// Run root and run directory, open for the removal at the end.
type Removable<'a> = Option<[&'a OwnedFd; 2]>;

/// What stays of a machine in its run directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    Nothing,
    /// Until `tare rm`.
    LogAndCode,
}

fn leave(
    removal: &Removal,
    kept: Kept,
    lock: Option<&OwnedFd>,
    ended: Ended,
) -> std::io::Result<()> {
    match (kept, lock) {
        (Kept::LogAndCode, Some(lock)) => {
            removal.remove_only_running()?;
            record_end(lock, ended.number())
        }
        _ => removal.remove(),
    }
}

/// Gives up all privileges before the image, the initramfs and the disks are read: only
/// removing the run directory may need a capability.
fn enter_jail(config: &MachineConfig, removable: Removable<'_>) -> Result<(), StartError> {
    let on_violation = OnViolation {
        program: "tare-monitor",
        restore: terminal::restore,
    };
    confine::install_violation_handler(on_violation).map_err(of_errno("handle signals"))?;
    jail::enter(&config.jail)?;
    let directories = removable.map_or(Vec::new(), Vec::from);
    confine::drop_capabilities_but_removal(&directories)
        .map_err(failed_to("drop its capabilities"))?;
    confine::confine_set_up(Files::read_kernel_only(removable)?)?;
    Ok(())
}

/// One machine's life, and what stays of it.
fn live(
    setup: &mut Setup,
    sources: Sources,
    removable: Removable<'_>,
    started: Instant,
) -> (Ended, Kept) {
    let outcome = build(setup, sources, started)
        .and_then(|(machine, control)| run_machine(setup, removable, machine, &control));
    terminal::restore();
    match outcome {
        Ok(reason) => {
            let reason = reason.explained(setup.config.guest, &setup.console_log);
            tell(&reason);
            let ended = reason.ended(setup.config.guest);
            // In the background the console has not been shown yet.
            let background = matches!(setup.config.console, Console::Log { .. });
            if background && !reason.was_requested() {
                (ended, Kept::LogAndCode)
            } else {
                (ended, Kept::Nothing)
            }
        }
        Err(error) => (refuse(&error).into(), Kept::Nothing),
    }
}

fn build(
    setup: &mut Setup,
    sources: Sources,
    started: Instant,
) -> Result<(Machine, Control), StartError> {
    signals::install().map_err(failed_to("handle signals"))?;
    let control = Control {
        shutdown: ShutdownHandle::new(eventfd()?),
        stop: Arc::new(AtomicBool::new(false)),
        started,
    };
    let machine = Machine::build(setup, sources, &control)?;
    Ok((machine, control))
}

fn run_machine(
    setup: &Setup,
    removable: Removable<'_>,
    mut machine: Machine,
    control: &Control,
) -> Result<ExitReason, StartError> {
    let shutdown = &control.shutdown;
    let poll = Poll::new().map_err(failed_to("make an epoll"))?;
    let signal = signals::install().and_then(|event| poll.add(event, SIGNAL));
    signal
        .and_then(|()| poll.add(borrow(shutdown.event()), END))
        .map_err(failed_to("watch its events"))?;
    let listener = setup.control.try_clone();
    let server = listener.and_then(|listener| Server::new(listener, &poll, SERVER));
    let server = server.map_err(failed_to("serve its control socket"))?;

    let threads = Threads::spawn(machine.vcpus, machine.io, shutdown)?;
    machine.observer.threads = threads.observers()?;
    let vcpus = machine.observer.vcpu_threads();
    let vcpus = vcpus.map_err(failed_to("open its threads' statistics"))?;
    machine.observer.halt.borrow_mut().watch(vcpus);
    if let Some(event) = machine.observer.halt.borrow().event() {
        let watched = poll.add(borrow(event), HALT);
        watched.map_err(failed_to("watch its events"))?;
    }
    if matches!(setup.config.console, Console::Stdio { .. }) {
        terminal::enter_raw();
    }
    let files = match removable {
        Some([root, directory]) => Files::remove_in(root, directory)?,
        None => Files::none()?,
    };
    let routes = routes::Control {
        config: setup.config.clone(),
        observer: machine.observer,
        adjustable: machine.adjustable,
        shutdown: shutdown.clone(),
        stop_line: machine.stop_line,
        state: State::Running,
    };
    confine::confine(Role::Main, files)?;
    threads.gate.wait();

    let reason = serve(&poll, server, routes, shutdown);
    control.stop.store(true, Ordering::Release);
    let _ = machine.io_stop.write(1);
    threads.join(&machine.kick_handles);
    Ok(reason)
}

/// The main thread's loop, until there is a reason to end.
fn serve(
    poll: &Poll,
    mut server: Server,
    mut routes: routes::Control,
    shutdown: &ShutdownHandle,
) -> ExitReason {
    let mut ready = Vec::with_capacity(16);
    loop {
        if let Err(error) = poll.wait(&mut ready, server.wait()) {
            return ExitReason::Failed(format!("the main thread cannot wait: {error}"));
        }
        for token in ready.drain(..) {
            match token {
                SIGNAL => signals::received()
                    .into_iter()
                    .for_each(|it| shutdown.end(it.into())),
                END => {}
                HALT => routes.observer.halt.borrow_mut().due(),
                token => server.ready(poll, token, &mut routes),
            }
        }
        server.resume(poll);
        if let Some(reason) = shutdown.take() {
            return reason;
        }
    }
}

/// The threads besides the main one, waiting at the gate until it is confined.
struct Threads {
    handles: Vec<JoinHandle<()>>,
    names: mpsc::Receiver<(String, Pid)>,
    gate: Arc<Barrier>,
}

impl Threads {
    fn spawn(
        vcpus: Vec<crate::vcpu::VcpuLoop>,
        io: crate::io::IoLoop,
        shutdown: &ShutdownHandle,
    ) -> Result<Self, StartError> {
        let (sender, names) = mpsc::channel();
        let gate = Arc::new(Barrier::new(vcpus.len() + 2));
        let mut handles = Vec::with_capacity(vcpus.len() + 1);
        let mut start = |name: String, role, own_cpu, work: Box<dyn FnOnce() + Send>| {
            let (sender, gate, shutdown) = (sender.clone(), Arc::clone(&gate), shutdown.clone());
            let files = Files::none()?;
            let body = move || {
                let name = thread::current().name().unwrap_or_default().to_owned();
                let _ = sender.send((name, gettid()));
                drop(sender);
                let settled = settle(own_cpu);
                gate.wait();
                let confined = confine::confine(role, files);
                let confined = confined.map_err(|error| ExitReason::Failed(chain(&error)));
                match settled.and(confined) {
                    Ok(()) => work(),
                    Err(reason) => shutdown.end(reason),
                }
            };
            let builder = thread::Builder::new().name(name).stack_size(STACK_BYTES);
            handles.push(builder.spawn(body).map_err(failed_to("start a thread"))?);
            Ok::<_, StartError>(())
        };
        for vcpu in vcpus {
            let name = format!("vcpu{}", vcpu.vcpu.index());
            start(name, Role::Vcpu, vcpu.own_cpu, Box::new(|| vcpu.run()))?;
        }
        let failed = shutdown.clone();
        let io = move || {
            if let Err(error) = io.run() {
                failed.end(ExitReason::Failed(format!(
                    "the I/O thread failed: {error}"
                )));
            }
        };
        start("io".to_owned(), Role::Io, None, Box::new(io))?;
        Ok(Self {
            handles,
            names,
            gate,
        })
    }

    /// Observers of all threads, the main one first.
    fn observers(&self) -> Result<Vec<ThreadObserver>, StartError> {
        let others = self.names.iter().take(self.handles.len());
        let mut threads: Vec<_> = others.collect();
        threads.sort_by(|(a, _), (b, _)| (a.len(), a).cmp(&(b.len(), b)));
        let main = [("main".to_owned(), gettid())];
        main.into_iter()
            .chain(threads)
            .map(|(name, tid)| ThreadObserver::open(&name, tid))
            .collect::<Result<_, _>>()
            .map_err(failed_to("open its threads' statistics"))
    }

    /// Waits until the threads have ended, for [`TIMEOUT`] at most: the end of
    /// the process ends what is left.
    fn join(self, kick_handles: &[KickHandle]) {
        let deadline = Instant::now() + TIMEOUT;
        while !self.handles.iter().all(JoinHandle::is_finished) {
            if Instant::now() > deadline {
                return complain("a thread did not end in time");
            }
            kick_handles.iter().for_each(KickHandle::kick);
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A panic of any thread ends the process, and the terminal is as it was.
fn end_on_panic() {
    std::panic::set_hook(Box::new(|panic| {
        terminal::restore();
        complain(&format!("an error in Tare itself: {panic}"));
        std::process::exit(ExitCode::Internal as i32);
    }));
}

/// Says why the run ended, unless that is what everybody expects.
fn tell(reason: &ExitReason) {
    if !matches!(
        reason,
        ExitReason::PowerOff | ExitReason::Guest(GuestExit::Status(0))
    ) {
        complain(&reason.to_string());
    }
}

fn refuse(error: &StartError) -> ExitCode {
    complain(&chain(error));
    error.code()
}

/// One message. A closed standard error is ignored.
fn complain(message: &str) {
    let _ = writeln!(std::io::stderr(), "tare-monitor: {message}");
}

fn of_errno(what: &'static str) -> impl FnOnce(vmm_sys_util::errno::Error) -> StartError {
    move |errno| failed_to(what)(errno.into())
}
