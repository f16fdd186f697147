//! The I/O thread: the front-end's messages, its queues and the engine, driven
//! by readiness alone. One front-end at a time; another waits until it has gone.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tare_control::sentence::chain;
use tare_daemon::disk::DiskRules;
use tare_daemon::poll::{Interest, Poll, Wait};
use tare_daemon::rules::SharedRules;
use tare_devices::blk::{Clock as _, MonotonicClock};
use vhost::vhost_user::{BackendReqHandler, Error};

use crate::counters::VhostCounters;
use crate::incoming::{self, Incoming, Timeouts, Waiting};
use crate::session::{Channel, Session, install_bus_error_handler};

const STOP: u64 = 0;
const LISTENER: u64 = 1;
const FRONTEND: u64 = 2;
const ENGINE: u64 = 3;
const WAKE: u64 = 4;
/// Tokens of queues begin here.
pub(crate) const QUEUES: u64 = 16;
/// Complaints about front-ends that are printed in each minute; more are only counted.
const MOST_COMPLAINTS: u32 = 20;
const COMPLAINTS_SPAN: Duration = Duration::from_secs(60);
/// How long no front-end is accepted after the system refused one.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// The connection is watched so while its front-end has replies to read.
const REPLIES: Interest = Interest {
    readable: false,
    writable: true,
};
const MEMORY_GONE: &str =
    "a front-end is sent away: it shortened the file of memory that it had shared";

/// The connection, so that the main thread can end a wait for its next byte.
pub(crate) type Connected = Arc<Mutex<Option<UnixStream>>>;

/// The thread's state.
pub(crate) struct IoLoop {
    poll: Arc<Poll>,
    listener: UnixListener,
    listens: Interest,
    session: Arc<Mutex<Session>>,
    frontend: Option<BackendReqHandler<Mutex<Session>>>,
    /// The front-end has to send its first message, or the rest of one.
    waiting: Option<Waiting>,
    /// How long it may take.
    timeouts: Timeouts,
    /// What the connection is watched for.
    watched: Interest,
    /// The listener is not watched until then.
    accepts_after: Option<Instant>,
    connected: Connected,
    /// A descriptor that makes room for another.
    spare: Option<OwnedFd>,
    counters: Arc<VhostCounters>,
    complaints: u32,
    complaints_since: Instant,
    /// Rules that the main thread changes; `wake` says when.
    rules: Arc<SharedRules<DiskRules>>,
    wake: OwnedFd,
    /// This thread has taken its turn since it was last asked.
    answered: Arc<AtomicBool>,
    /// Watched as long as they are open.
    _events: Vec<OwnedFd>,
}

impl IoLoop {
    /// Watches everything; `stop` ends the loop.
    pub(crate) fn new(
        poll: Arc<Poll>,
        listener: UnixListener,
        session: Arc<Mutex<Session>>,
        counters: Arc<VhostCounters>,
        stop: OwnedFd,
        wake: OwnedFd,
    ) -> io::Result<Self> {
        install_bus_error_handler()?;
        listener.set_nonblocking(true)?;
        poll.add(&stop, STOP)?;
        poll.add(&wake, WAKE)?;
        let mut events = vec![stop];
        let engine = lock(&session)
            .device()
            .event()
            .map(|it| it.try_clone_to_owned());
        if let Some(engine) = engine.transpose()? {
            poll.add(&engine, ENGINE)?;
            events.push(engine);
        }
        let rules = DiskRules::now(lock(&session).device());
        let mut io = Self {
            poll,
            listener,
            listens: Interest::default(),
            session,
            frontend: None,
            waiting: None,
            timeouts: Timeouts::default(),
            watched: Interest::default(),
            accepts_after: None,
            connected: Connected::default(),
            spare: Some(wake.try_clone()?),
            counters,
            complaints: 0,
            complaints_since: Instant::now(),
            rules: Arc::new(SharedRules::new(rules)),
            wake,
            answered: Arc::new(AtomicBool::new(true)),
            _events: events,
        };
        io.listen(Interest::READ)?;
        Ok(io)
    }

    /// Other timeouts than the usual ones.
    #[cfg(test)]
    pub(crate) fn with_timeouts(self, timeouts: Timeouts) -> Self {
        Self { timeouts, ..self }
    }

    /// Where the connection is found while there is one.
    pub(crate) fn connected(&self) -> Connected {
        Arc::clone(&self.connected)
    }

    /// The disk's rules, for the main thread.
    pub(crate) fn rules(&self) -> Arc<SharedRules<DiskRules>> {
        Arc::clone(&self.rules)
    }

    /// Set when the thread has been woken.
    pub(crate) fn answered(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.answered)
    }

    /// Wakes the thread after a change.
    pub(crate) fn wake(&self) -> io::Result<OwnedFd> {
        self.wake.try_clone()
    }

    /// Runs until [`Self::new`]'s `stop` is signalled; ends what is in flight.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut ready = Vec::with_capacity(16);
        loop {
            let timeout = self.timeout();
            self.poll.wait(&mut ready, timeout)?;
            // Messages first: they may change what else was ready.
            for token in &ready {
                match *token {
                    STOP => {
                        lock(&self.session).forget_frontend();
                        return Ok(());
                    }
                    LISTENER => self.accept()?,
                    FRONTEND => self.message()?,
                    WAKE => self.change_rules(),
                    _ => {}
                }
            }
            self.look_again()?;
            let complaint = self.serve(&ready);
            if lock(&self.session).memory_is_gone() {
                self.complain(MEMORY_GONE);
                self.disconnect()?;
            } else if let Some(complaint) = complaint {
                self.complain(&complaint);
            }
        }
    }

    fn change_rules(&self) {
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        self.answered.store(true, Ordering::Relaxed);
        if let Some(rules) = self.rules.take_change() {
            lock(&self.session).set_rules(&rules);
        }
    }

    /// Queue work of one turn.
    fn serve(&self, ready: &[u64]) -> Option<String> {
        let mut session = lock(&self.session);
        for token in ready {
            match token.checked_sub(QUEUES) {
                Some(queue) => session.notified(queue as usize),
                None if *token == ENGINE => session.engine_ready(),
                None => {}
            }
        }
        session.go_on();
        if session
            .deadline_ns()
            .is_some_and(|due_ns| due_ns <= MonotonicClock.now_ns())
        {
            session.deadline_passed();
        }
        session.take_complaint()
    }

    /// How long to wait: without work, and with nothing held, forever.
    fn timeout(&self) -> Wait {
        let session = lock(&self.session);
        if session.has_more() {
            return Wait::No;
        }
        let held = session
            .deadline_ns()
            .map(|due_ns| due_ns.saturating_sub(MonotonicClock.now_ns()));
        let message = self.waiting.as_ref().map(|waiting| {
            if self.watched == Interest::default() {
                waiting.interval()
            } else {
                waiting.left()
            }
        });
        let accept = self
            .accepts_after
            .map(|at| at.saturating_duration_since(Instant::now()));
        let others = message
            .into_iter()
            .chain(accept)
            .map(|left| u64::try_from(left.as_nanos()).unwrap_or(u64::MAX));
        match others.chain(held).min() {
            Some(left_ns) => Wait::Nanoseconds(left_ns),
            None => Wait::Forever,
        }
    }

    /// What comes by time and not by an event: the rest of a message or its timeout,
    /// the next try to accept.
    fn look_again(&mut self) -> io::Result<()> {
        if self.accepts_after.is_some_and(|at| at <= Instant::now()) {
            self.accepts_after = None;
            self.listen(Interest::READ)?;
        }
        if self.waiting.is_some() && self.watched == Interest::default() {
            self.message()?;
        }
        if let Some(waiting) = &self.waiting
            && waiting.left().is_zero()
        {
            self.counters.silent.increment();
            let missing = if self.watched == REPLIES {
                "read its replies"
            } else {
                "send a message"
            };
            let seconds = waiting.timeout().as_secs();
            self.complain(&format!(
                "a front-end is sent away: it did not {missing} within {seconds} s"
            ));
            self.disconnect()?;
        }
        Ok(())
    }

    fn watch(&mut self, wanted: Interest) -> io::Result<()> {
        let stream = self
            .connected
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(stream) = &*stream {
            self.poll.change(stream, FRONTEND, self.watched, wanted)?;
        }
        self.watched = wanted;
        Ok(())
    }

    fn accept(&mut self) -> io::Result<()> {
        if self.frontend.is_some() {
            return Ok(());
        }
        let accepted = self
            .listener
            .accept()
            .and_then(|(stream, _)| Ok((self.twice(&stream)?, stream)));
        let (ours, stream) = match accepted {
            Ok(both) => both,
            Err(error) if passes(&error) => return Ok(()),
            Err(error) => {
                self.counters.accept_failures.increment();
                self.complain(&format!("a front-end cannot be accepted: {error}"));
                self.accepts_after = Some(Instant::now() + ACCEPT_PAUSE);
                return self.listen(Interest::default());
            }
        };
        stream.set_nonblocking(false)?;
        self.poll.add(&ours, FRONTEND)?;
        self.watched = Interest::READ;
        self.waiting = Some(Waiting::begin(self.timeouts.first));
        *self
            .connected
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(ours);
        let session = Arc::clone(&self.session);
        self.frontend = Some(BackendReqHandler::from_stream(stream, session));
        self.counters.frontends.increment();
        self.listen(Interest::default())
    }

    /// The connection once more. A front-end that was accepted is not lost for want of a
    /// descriptor: there is a spare one.
    fn twice(&mut self, stream: &UnixStream) -> io::Result<UnixStream> {
        stream.try_clone().or_else(|_| {
            self.spare = None;
            stream.try_clone()
        })
    }

    /// One message, if all of it is there.
    fn message(&mut self) -> io::Result<()> {
        if self.frontend.is_none() {
            return Ok(());
        }
        let stream = self
            .connected
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (found, takes_a_reply, channel) = match &*stream {
            Some(stream) => {
                let stream = stream.as_fd();
                let found = incoming::look(stream)?;
                let channel = (found == Incoming::Whole).then(|| Channel::look(stream));
                (found, incoming::takes_a_reply(stream)?, channel.flatten())
            }
            None => (Incoming::Whole, true, None),
        };
        drop(stream);
        if !takes_a_reply {
            // The reply to a message would wait for it.
            self.waiting
                .get_or_insert_with(|| Waiting::begin(self.timeouts.rest));
            return self.watch(REPLIES);
        }
        if found == Incoming::Part {
            self.waiting
                .get_or_insert_with(|| Waiting::begin(self.timeouts.rest));
            return self.watch(Interest::default());
        }
        if found == Incoming::Broken {
            self.counters.protocol_errors.increment();
            self.complain("a front-end is sent away: invalid message: descriptors in its header");
            return self.disconnect();
        }
        self.waiting = None;
        self.watch(Interest::READ)?;
        let Some(frontend) = &mut self.frontend else {
            return Ok(());
        };
        lock(&self.session).offer_channel(channel);
        match frontend.handle_request() {
            Ok(()) => {
                self.counters.messages.increment();
                Ok(())
            }
            Err(error) => {
                if !went(&error) {
                    self.counters.protocol_errors.increment();
                    let cause = chain(&error);
                    self.complain(&format!("a front-end is sent away: {cause}"));
                }
                self.disconnect()
            }
        }
    }

    fn disconnect(&mut self) -> io::Result<()> {
        lock(&self.session).forget_frontend();
        let stream = self
            .connected
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(stream) = stream {
            let nothing = Interest::default();
            self.poll.change(&stream, FRONTEND, self.watched, nothing)?;
        }
        (self.watched, self.waiting) = (Interest::default(), None);
        self.frontend = None;
        self.spare = self.wake.try_clone().ok();
        self.counters.disconnects.increment();
        self.listen(Interest::READ)
    }

    fn listen(&mut self, wanted: Interest) -> io::Result<()> {
        let listener = self.listener.as_fd();
        self.poll.change(listener, LISTENER, self.listens, wanted)?;
        self.listens = wanted;
        Ok(())
    }

    fn complain(&mut self, message: &str) {
        if self.complaints_since.elapsed() >= COMPLAINTS_SPAN {
            (self.complaints_since, self.complaints) = (Instant::now(), 0);
        }
        self.complaints += 1;
        match self.complaints {
            ..MOST_COMPLAINTS => crate::failure::complain(message),
            MOST_COMPLAINTS => {
                crate::failure::complain(&format!(
                    "{message}; further ones within a minute are only counted"
                ));
            }
            _ => self.complaints = MOST_COMPLAINTS + 1,
        }
    }
}

/// Whether the next front-end may be accepted at once.
fn passes(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
    matches!(error.kind(), ConnectionAborted | Interrupted | WouldBlock)
}

/// Whether the front-end just closed its end.
fn went(error: &Error) -> bool {
    matches!(
        error,
        Error::Disconnected | Error::PartialMessage | Error::SocketBroken(_)
    )
}

pub(crate) fn lock(session: &Mutex<Session>) -> MutexGuard<'_, Session> {
    session.lock().unwrap_or_else(PoisonError::into_inner)
}
