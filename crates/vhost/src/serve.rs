//! The program: the main thread and one for each disk, confined, until a signal or a request ends them.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::{Arc, Barrier, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::thread::{Pid, gettid};
use tare_control::api::Stop;
use tare_control::exit::ExitCode;
use tare_control::sentence::chain;
use tare_daemon::confine::{self, ConfineError, Files, OnViolation, Role};
use tare_daemon::http::server::Server;
use tare_daemon::observe::{MemoryObserver, ThreadObserver};
use tare_daemon::poll::Poll;
use tare_daemon::signals;
use tare_devices::blk::{Blk, BlkSettings, Disk, MonotonicClock, choose, paced};
use tare_devices::virtio::VirtioDevice as _;

use crate::activation::Supervisor;
use crate::counters::VhostCounters;
use crate::failure::complain;
use crate::io::{Connected, IoLoop, QUEUES};
use crate::routes::{Control, DiskControl};
use crate::session::Session;
use crate::socket::Socket;

const SIGNAL: u64 = 0;
const ENDED: u64 = 1;
const SERVER: u64 = 2;
const STACK_BYTES: usize = 256 << 10;
/// How long the I/O thread gets to end what is in flight, whatever hangs. The rest is in
/// the log of requests in flight, and a successor does it again.
const END_TIMEOUT: Duration = Duration::from_millis(1_500);

/// What is served.
pub struct BlkDaemon {
    /// Name of the run.
    pub name: String,
    /// Its disks, each with an I/O thread of its own; one at least.
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

/// Why serving ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// A signal.
    Signal(signals::Request),
    /// A request on the control socket.
    Stopped(Stop),
    /// The I/O thread failed; a sentence.
    Failed(String),
}

impl Ended {
    /// The process's exit code.
    pub fn code(&self) -> ExitCode {
        match self {
            Self::Signal(signals::Request::Interrupt) => ExitCode::Interrupted,
            Self::Signal(signals::Request::Terminate) | Self::Stopped(Stop::Kill) => {
                ExitCode::Terminated
            }
            Self::Stopped(Stop::PowerOff) => ExitCode::Success,
            Self::Failed(_) => ExitCode::Internal,
        }
    }
}

/// Why serving does not begin.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The system refused something.
    #[error("cannot {act}")]
    Io {
        /// What.
        act: &'static str,
        /// Why.
        source: io::Error,
    },
    /// A thread cannot be confined.
    #[error("cannot confine a thread")]
    Confine(#[from] ConfineError),
}

fn failed_to(act: &'static str) -> impl FnOnce(io::Error) -> ServeError {
    move |source| ServeError::Io { act, source }
}

/// Serves the disk until a signal or a request; `ready` is called when front-ends
/// can connect. The socket is removed at the end.
pub fn serve(daemon: BlkDaemon, ready: impl FnOnce()) -> Result<Ended, ServeError> {
    let started = Instant::now();
    let signal = signals::install().map_err(failed_to("handle signals"))?;
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
    let poll = Poll::new().map_err(failed_to("make an epoll"))?;
    poll.add(signal, SIGNAL)
        .and_then(|()| poll.add(&ended, ENDED))
        .map_err(failed_to("watch its events"))?;
    let server = Server::new(control, &poll, SERVER);
    let mut server = server.map_err(failed_to("serve its control socket"))?;

    let several = disks.len() > 1;
    let mut controls = Vec::new();
    let mut threads = Vec::new();
    let mut sockets = Vec::new();
    for (number, disk) in disks.into_iter().enumerate() {
        let thread = if several {
            format!("io{number}")
        } else {
            "io".to_owned()
        };
        let (socket, control, io, stop) = prepare(disk)?;
        threads.push(IoThread::spawn(thread, io, stop, clone(&ended)?)?);
        controls.push(control);
        sockets.push(socket);
    }
    let main = ThreadObserver::open("main", gettid());
    let others = threads
        .iter()
        .map(|it| ThreadObserver::open(&it.name, it.tid));
    let observers = [main].into_iter().chain(others).collect::<Result<_, _>>();
    let mut routes = Control {
        name,
        started,
        disks: controls,
        threads: observers.map_err(failed_to("open its threads' statistics"))?,
        memory: MemoryObserver::new(Vec::new()),
        stop: None,
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
    for thread in &threads {
        thread.gate.wait();
    }
    ready();
    supervisor.ready();
    let reason = wait(&poll, &mut server, &mut routes, &threads);
    supervisor.stopping();
    end(&threads);
    Ok(reason)
}

/// The device of one disk, its I/O loop, and what stops that.
fn prepare(disk: ServedDisk) -> Result<(Socket, DiskControl, IoLoop, OwnedFd), ServeError> {
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
    let engine = paced(chosen.engine, latency, Box::new(MonotonicClock));
    let device = Blk::new(settings, disk, engine, Box::new(MonotonicClock));
    let counters: Arc<VhostCounters> = Arc::default();
    let sources = [device.counters(), Arc::clone(&counters) as _];
    let epoll = Arc::new(Poll::new().map_err(failed_to("make an epoll"))?);
    let session = Session::new(device, Arc::clone(&epoll), Arc::clone(&counters), QUEUES);
    let session = Arc::new(Mutex::new(session));
    let stop = event()?;
    let listener = socket.listener().map_err(failed_to("serve the socket"))?;
    let io = IoLoop::new(epoll, listener, session, counters, clone(&stop)?, event()?);
    let io = io.map_err(failed_to("watch the socket"))?;
    let control = DiskControl {
        path,
        rules: io.rules(),
        counters: sources,
        wake: io.wake().map_err(failed_to("make an event"))?,
    };
    Ok((socket, control, io, stop))
}

/// The main thread's loop, until there is a reason to end.
fn wait(poll: &Poll, server: &mut Server, routes: &mut Control, threads: &[IoThread]) -> Ended {
    let mut ready = Vec::with_capacity(16);
    loop {
        if let Err(error) = poll.wait(&mut ready, server.wait()) {
            return Ended::Failed(format!("the main thread cannot wait: {error}"));
        }
        for token in ready.drain(..) {
            match token {
                SIGNAL => {
                    if let Some(request) = signals::received() {
                        return Ended::Signal(request);
                    }
                }
                ENDED => {
                    let failed = threads.iter().find_map(IoThread::failure);
                    return Ended::Failed(
                        failed.unwrap_or_else(|| "an I/O thread failed".to_owned()),
                    );
                }
                token => server.ready(poll, token, routes),
            }
        }
        server.resume(poll);
        if let Some(how) = routes.stop {
            return Ended::Stopped(how);
        }
    }
}

/// An I/O thread, seen from the main one.
struct IoThread {
    name: String,
    handle: JoinHandle<()>,
    tid: Pid,
    stop: OwnedFd,
    connected: Connected,
    /// It begins when the main thread is confined.
    gate: Arc<Barrier>,
    failure: Arc<Mutex<Option<String>>>,
}

impl IoThread {
    fn spawn(name: String, io: IoLoop, stop: OwnedFd, ended: OwnedFd) -> Result<Self, ServeError> {
        let connected = io.connected();
        let (sender, tid) = mpsc::channel();
        let gate = Arc::new(Barrier::new(2));
        let failure: Arc<Mutex<Option<String>>> = Arc::default();
        let files = Files::none()?;
        let (opens, fails) = (Arc::clone(&gate), Arc::clone(&failure));
        let body = move || {
            let _ = sender.send(gettid());
            drop(sender);
            opens.wait();
            let ran = match confine::confine(Role::Frontend, files) {
                Ok(()) => io.run().map_err(|error| chain(&error)),
                Err(error) => Err(chain(&error)),
            };
            if let Err(sentence) = ran {
                *fails.lock().unwrap_or_else(PoisonError::into_inner) = Some(sentence);
                let _ = rustix::io::write(&ended, &1u64.to_ne_bytes());
            }
        };
        let builder = thread::Builder::new().name(name.clone());
        let handle = builder.stack_size(STACK_BYTES).spawn(body);
        let handle = handle.map_err(failed_to("start a thread"))?;
        let gone = |_| failed_to("start a thread")(io::ErrorKind::BrokenPipe.into());
        Ok(Self {
            name,
            stop,
            connected,
            handle,
            tid: tid.recv().map_err(gone)?,
            gate,
            failure,
        })
    }

    /// Why it failed, if it did.
    fn failure(&self) -> Option<String> {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        let failure = failure.as_deref()?;
        Some(format!("the I/O thread {} failed: {failure}", self.name))
    }
}

/// Lets the threads end what is in flight. A front-end in the middle of a message
/// does not hold one up.
fn end(threads: &[IoThread]) {
    for thread in threads {
        let _ = rustix::io::write(&thread.stop, &1u64.to_ne_bytes());
    }
    let begin = Instant::now();
    let mut pause = Duration::from_micros(200);
    let run = || threads.iter().filter(|it| !it.handle.is_finished());
    while run().next().is_some() {
        if begin.elapsed() > END_TIMEOUT {
            return complain(
                "requests in flight did not end within 1.5 s: they are left to the next daemon",
            );
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
        if begin.elapsed() > Duration::from_millis(200) {
            for thread in run() {
                let connected = thread.connected.lock();
                if let Some(stream) = &*connected.unwrap_or_else(PoisonError::into_inner) {
                    let _ = stream.shutdown(std::net::Shutdown::Both);
                }
            }
        }
    }
}

fn event() -> Result<OwnedFd, ServeError> {
    let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
    event.map_err(|errno| failed_to("make an event")(errno.into()))
}

fn clone(event: &OwnedFd) -> Result<OwnedFd, ServeError> {
    event.try_clone().map_err(failed_to("make an event"))
}
