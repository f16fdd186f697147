//! `std::thread` behind the interface of the guest's scheduler, so that what
//! is built on threads can be tested on the host.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};
use std::cell::RefCell;

use super::{SpawnError, ThreadId};
use crate::time::Instant;

/// A handle to a thread.
#[derive(Clone, Debug)]
pub struct Thread {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    id: ThreadId,
    name: Option<String>,
    core: usize,
    std: std::thread::Thread,
}

thread_local! {
    static CURRENT: RefCell<Option<Thread>> = const { RefCell::new(None) };
}

impl Thread {
    fn adopt(name: Option<String>, core: usize, std: std::thread::Thread) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = ThreadId(NEXT.fetch_add(1, Ordering::Relaxed));
        Self {
            inner: Arc::new(Inner {
                id,
                name,
                core,
                std,
            }),
        }
    }

    /// The thread's identity.
    pub fn id(&self) -> ThreadId {
        self.inner.id
    }

    /// The thread's name, if it has one.
    pub fn name(&self) -> Option<&str> {
        self.inner.name.as_deref()
    }

    /// The core on which the thread runs.
    pub fn core(&self) -> usize {
        self.inner.core
    }

    /// Makes [`park`] of that thread return, now or when it is next called.
    pub fn unpark(&self) {
        self.inner.std.unpark();
    }
}

/// Makes [`park`] of all these threads return.
pub fn unpark_all(threads: impl IntoIterator<Item = Thread>) {
    threads.into_iter().for_each(|thread| thread.unpark());
}

/// The thread that calls.
pub fn current() -> Thread {
    CURRENT.with(|current| {
        current
            .borrow_mut()
            .get_or_insert_with(|| Thread::adopt(None, 0, std::thread::current()))
            .clone()
    })
}

/// The core that runs this thread.
pub fn current_core() -> usize {
    current().core()
}

/// How many cores there are.
pub fn cores() -> usize {
    2
}

/// Blocks until this thread is unparked; may return earlier.
pub fn park() {
    std::thread::park();
}

/// Blocks until this thread is unparked or `deadline` has passed.
pub fn park_until(deadline: Instant) {
    std::thread::park_timeout(deadline.duration_since(Instant::now()));
}

/// Lets other threads run.
pub fn yield_now() {
    std::thread::yield_now();
}

/// Lets other threads run and says that this was an idle turn.
pub fn yield_idle() {
    std::thread::yield_now();
}

/// Says that this thread, a poller, has work.
pub fn active() {}

/// Starts a thread.
pub(super) fn start(
    name: Option<String>,
    stack_size: usize,
    core: usize,
    body: Box<dyn FnOnce() + Send>,
) -> Result<Thread, SpawnError> {
    let (sender, receiver) = std::sync::mpsc::channel::<Thread>();
    let spawned = std::thread::Builder::new()
        .stack_size(stack_size.max(256 * 1024))
        .spawn(move || {
            let own = receiver.recv().ok();
            CURRENT.with(|current| *current.borrow_mut() = own);
            body();
        })
        .map_err(|_| SpawnError::NoMemory { bytes: stack_size })?;
    let thread = Thread::adopt(name, core, spawned.thread().clone());
    sender.send(thread.clone()).ok();
    Ok(thread)
}
