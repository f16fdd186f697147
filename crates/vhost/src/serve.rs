//! The program: the main thread and one for each disk, confined, until a signal or a request ends them.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use tare_control::sentence::chain;
use tare_daemon::confine::{self, ConfineError, Files, OnViolation, Role};
use tare_daemon::disk::AdjustableDisk;
use tare_daemon::main_loop::MainLoop;
use tare_daemon::observe::MemoryObserver;
use tare_daemon::poll::Poll;
use tare_daemon::threads::Threads;
use tare_daemon::{SetUpError, failed_to, heap};
use tare_devices::blk::{Blk, BlkSettings, Disk, Growth, MonotonicClock, choose, paced};
use tare_devices::virtio::VirtioDevice as _;

use crate::activation::Supervisor;
use crate::counters::VhostCounters;
use crate::exit_reason::ExitReason;
use crate::failure::complain;
use crate::io::{Connected, IoLoop, QUEUES};
use crate::routes::{self, Control, DiskControl, Failure};
use crate::session::Session;
use crate::socket::Socket;
use crate::watchdog::Watchdog;

/// When the connection of a front-end that holds up the end is closed.
const FRONTEND_TIMEOUT: Duration = Duration::from_millis(200);
/// How long the I/O thread gets to end what is in flight, whatever hangs. The rest is in
/// the log of requests in flight, and a successor does it again.
const END_TIMEOUT: Duration = Duration::from_millis(1_500);

/// What is served.
pub struct BlkDaemon {
    /// Name of the run.
    pub name: String,
    /// Its disks, each with its own I/O thread; one at least.
    pub disks: Vec<ServedDisk>,
    /// Listening control socket.
    pub control: UnixListener,
    /// The run directory, whose files may be removed at the end.
    pub run_dir: PathBuf,
    /// Who wants to know that it serves.
    pub supervisor: Supervisor,
}

/// One disk, and where it is served.
pub struct ServedDisk {
    /// Its name, for people.
    pub path: String,
    /// The open, locked disk.
    pub disk: Disk,
    /// How it looks to the guest.
    pub settings: BlkSettings,
    /// Time that each request takes at least.
    pub latency: Duration,
    /// Where front-ends connect.
    pub socket: Socket,
}

/// Serves the disk until a signal or a request; `ready` is called when front-ends
/// can connect. The socket is removed at the end.
pub fn serve(daemon: BlkDaemon, ready: impl FnOnce()) -> Result<ExitReason, SetUpError> {
    heap::share();
    let started = Instant::now();
    let on_violation = OnViolation {
        program: "tare blk",
        restore: || {},
    };
    confine::install_violation_handler(on_violation)
        .map_err(|errno| failed_to("handle signals")(errno.into()))?;
    let BlkDaemon {
        name,
        disks,
        control,
        run_dir,
        supervisor,
    } = daemon;
    let ended = event()?;
    let main = MainLoop::new(control)?;
    main.watch(&ended, routes::FAILED)?;

    let several = disks.len() > 1;
    let mut threads = Threads::new();
    let (mut controls, mut sockets) = (Vec::new(), Vec::new());
    let (mut stops, mut connected) = (Vec::new(), Vec::new());
    for (number, disk) in disks.into_iter().enumerate() {
        let thread = if several {
            format!("io{number}")
        } else {
            "io".to_owned()
        };
        let (socket, control, io, stop) = prepare(disk)?;
        connected.push(io.connected());
        stops.push(stop);
        let failure = Arc::clone(&control.failure);
        spawn(&mut threads, thread, io, failure, clone(&ended)?)?;
        controls.push(control);
        sockets.push(socket);
    }
    let mut routes = Control {
        name,
        started,
        disks: controls,
        threads: threads.observers()?,
        memory: MemoryObserver::new(Vec::new()),
        watchdog: Watchdog::new(supervisor),
        end: None,
    };
    let mut files = Files::remove_only(&run_dir)?;
    let mut directories = vec![&*run_dir];
    directories.extend(run_dir.parent());
    for directory in sockets.iter().filter_map(Socket::directory) {
        files = files.and_remove_in(directory)?;
        directories.push(directory);
    }
    confine::drop_capabilities(&directories).map_err(failed_to("drop its capabilities"))?;
    confine::confine(Role::Main, files)?;
    threads.open_gate();
    ready();
    routes.watchdog.supervisor().ready();
    let reason = main.run(&mut routes).unwrap_or_else(|error| {
        ExitReason::Failed(format!("the main thread cannot wait: {error}"))
    });
    routes.watchdog.supervisor().stopping();
    end(&threads, &stops, &connected);
    Ok(reason)
}

/// The device of one disk, its I/O loop, and what stops that.
fn prepare(disk: ServedDisk) -> Result<(Socket, DiskControl, IoLoop, OwnedFd), SetUpError> {
    let ServedDisk {
        path,
        disk,
        settings,
        latency,
        socket,
    } = disk;
    let chosen = choose(&disk).map_err(failed_to("open the disk again"))?;
    if let Some(error) = &chosen.refused {
        complain(&format!(
            "io_uring is not allowed here ({error}): requests are served one after the other"
        ));
    }
    let growth = Growth::new(&disk).map_err(failed_to("open the disk again"))?;
    let engine = paced(chosen.engine, latency, Box::new(MonotonicClock));
    let device = Blk::new(settings, disk, engine, Box::new(MonotonicClock));
    let counters: Arc<VhostCounters> = Arc::default();
    let sources = [device.counters(), Arc::clone(&counters) as _];
    let epoll = Arc::new(Poll::new().map_err(failed_to("make an epoll"))?);
    let session = Session::new(device, Arc::clone(&epoll), Arc::clone(&counters), QUEUES);
    let session = Arc::new(Mutex::new(session));
    let stop = event()?;
    let listener = socket.listener().map_err(failed_to("serve the socket"))?;
    let io = IoLoop::new(epoll, listener, session, counters, clone(&stop)?, event()?)
        .map_err(failed_to("watch the socket"))?;
    let control = DiskControl {
        disk: AdjustableDisk {
            path,
            rules: io.rules(),
            growth,
        },
        counters: sources,
        wake: io.wake().map_err(failed_to("make an event"))?,
        answered: io.answered(),
        failure: Failure::default(),
    };
    Ok((socket, control, io, stop))
}

/// Starts the I/O thread of a disk; it waits until the main one is confined.
fn spawn(
    threads: &mut Threads,
    name: String,
    io: IoLoop,
    failure: Failure,
    ended: OwnedFd,
) -> Result<(), SetUpError> {
    let thread = name.clone();
    let work = move |(), confined: Result<(), ConfineError>| {
        let ran = match confined {
            Ok(()) => io.run().map_err(|error| chain(&error)),
            Err(error) => Err(chain(&error)),
        };
        if let Err(sentence) = ran {
            let sentence = format!("the I/O thread {thread} failed: {sentence}");
            *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(sentence);
            let _ = rustix::io::write(&ended, &1u64.to_ne_bytes());
        }
    };
    threads.spawn(name, Role::Frontend, || (), work)
}

/// Lets the threads end what is in flight. A front-end in the middle of a message
/// does not hold one up.
fn end(threads: &Threads, stops: &[OwnedFd], connected: &[Connected]) {
    for stop in stops {
        let _ = rustix::io::write(stop, &1u64.to_ne_bytes());
    }
    let remind = |elapsed, number: usize| {
        if elapsed > FRONTEND_TIMEOUT
            && let Some(connected) = connected.get(number)
            && let Some(stream) = &*connected.lock().unwrap_or_else(PoisonError::into_inner)
        {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    };
    if let Err(error) = threads.join(END_TIMEOUT, remind) {
        complain(&format!(
            "requests in flight did not end within 1.5 s: they are left to the next daemon ({error})"
        ));
    }
}

fn event() -> Result<OwnedFd, SetUpError> {
    let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
    event.map_err(|errno| failed_to("make an event")(errno.into()))
}

fn clone(event: &OwnedFd) -> Result<OwnedFd, SetUpError> {
    event.try_clone().map_err(failed_to("make an event"))
}
