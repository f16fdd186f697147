//! A thread as the scheduler knows it.

use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tare_hal::cpu::{self, CpuSet};
use tare_hal::fiber::Fiber;
use tare_hal::ipi;

use super::inbox::{Inbox, Left};
use super::local;
use super::token::Token;
use crate::thread::ThreadId;

/// One for each core.
pub(crate) static INBOXES: [Inbox<Thread>; cpu::MAX] = [const { Inbox::new() }; cpu::MAX];

/// A handle to a thread.
#[derive(Clone)]
pub struct Thread {
    task: Arc<Task>,
}

struct Task {
    id: ThreadId,
    core: usize,
    name: Option<String>,
    fiber: Fiber,
    token: Token,
    /// A deadline has passed and taken its timer away.
    timed_out: AtomicBool,
}

impl Thread {
    pub(super) fn new(name: Option<String>, core: usize, fiber: Fiber) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            task: Arc::new(Task {
                id: ThreadId(NEXT.fetch_add(1, Ordering::Relaxed)),
                core,
                name,
                fiber,
                token: Token::new(),
                timed_out: AtomicBool::new(false),
            }),
        }
    }

    /// The thread's identity.
    pub fn id(&self) -> ThreadId {
        self.task.id
    }

    /// The thread's name, if it has one.
    pub fn name(&self) -> Option<&str> {
        self.task.name.as_deref()
    }

    /// The core on which the thread runs.
    pub fn core(&self) -> usize {
        self.task.core
    }

    /// Makes [`park`](crate::thread::park) of that thread return, now or when it
    /// is next called. May be called on any core and by interrupt handlers.
    pub fn unpark(&self) {
        if self.task.token.notify() {
            self.make_ready();
        }
    }

    /// The same, but whoever finds that the thread's core halts must wake it.
    pub(super) fn unpark_quietly(&self) -> Left {
        if !self.task.token.notify() {
            Left::Awake
        } else if self.is_near() {
            local().push_ready(self.clone());
            Left::Awake
        } else {
            self.leave()
        }
    }

    /// Whether the queue of the thread's core may be touched from here.
    fn is_near(&self) -> bool {
        self.task.core == cpu::index() && !cpu::in_interrupt()
    }

    /// Puts the thread into its core's queue; it must not be in one already.
    pub(super) fn make_ready(&self) {
        if self.is_near() {
            local().push_ready(self.clone());
        } else {
            self.deliver();
        }
    }

    /// Leaves the thread for its core, and wakes the core if it halts.
    fn deliver(&self) {
        if self.leave() == Left::Halted {
            INBOXES[cpu::index()].ipis_sent.add(1);
            ipi::wake(self.task.core);
        }
    }

    fn leave(&self) -> Left {
        let core = self.task.core;
        INBOXES[core].leave(self.clone(), core, &INBOXES[cpu::index()])
    }

    /// Before blocking: false if there was a notification, which is taken.
    #[inline]
    pub(super) fn prepare_park(&self) -> bool {
        self.task.token.prepare()
    }

    /// After blocking: takes the notification that ended it.
    #[inline]
    pub(super) fn finish_park(&self) {
        self.task.token.finish();
    }

    /// The thread's deadline has passed: wakes it like a notification.
    pub(super) fn timed_out(&self) {
        self.task.timed_out.store(true, Ordering::Relaxed);
        self.unpark();
    }

    /// Whether a deadline has passed since this was last asked.
    pub(super) fn take_timed_out(&self) -> bool {
        let timed_out = self.task.timed_out.load(Ordering::Relaxed);
        self.task.timed_out.store(false, Ordering::Relaxed);
        timed_out
    }

    pub(super) fn fiber(&self) -> &Fiber {
        &self.task.fiber
    }

    #[inline]
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.task, &other.task)
    }
}

impl fmt::Debug for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Thread")
            .field("id", &self.task.id.0)
            .field("name", &self.task.name)
            .field("core", &self.task.core)
            .finish()
    }
}

/// Makes [`park`](crate::thread::park) of all these threads return, as
/// [`Thread::unpark`] does. Cores that halt are woken last and together: by one
/// command where the machine has a way.
pub fn unpark_all(threads: impl IntoIterator<Item = Thread>) {
    let mut halted = CpuSet::new();
    for thread in threads {
        if thread.unpark_quietly() == Left::Halted {
            halted.insert(thread.core());
        }
    }
    if halted.is_empty() {
        return;
    }
    let commands = u64::from(ipi::wake_all(halted));
    let own = &INBOXES[cpu::index()];
    own.ipis_sent.add(commands);
    own.ipis_shared.add(u64::from(halted.len()) - commands);
}
