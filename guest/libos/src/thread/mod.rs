//! Threads: cooperative, each on the core where it was spawned.
//!
//! A thread runs until it blocks ([`park`], a lock, a channel, I/O, [`sleep`])
//! or yields; nothing preempts it but interrupt handlers. Each has its own
//! stack with a guard page below; running into it ends the image with a
//! message that names the thread.
//!
//! On the host this module is a shim over `std::thread`, for tests.

#[cfg(target_os = "none")]
use crate::sched as backend;
#[cfg(not(target_os = "none"))]
mod host;
#[cfg(not(target_os = "none"))]
use host as backend;

mod error;
mod id;
mod join;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use core::time::Duration;

pub use backend::{
    Thread, active, cores, current, current_core, park, park_until, unpark_all, yield_idle,
    yield_now,
};
#[cfg(target_os = "none")]
pub use backend::{after_program, before_program, may_run_program};
pub use error::SpawnError;
pub use id::ThreadId;
pub use join::JoinHandle;

use crate::time::Instant;

/// Stack size of a thread unless its [`Builder`] says otherwise, bytes.
pub(crate) const DEFAULT_STACK_SIZE: usize = 32 * 1024;

/// Starts a thread on this core.
///
/// # Panics
/// When there is no memory for its stack; [`Builder::spawn`] returns an error.
///
/// ```
/// use tare_libos::thread;
/// let answer = thread::spawn(|| 6 * 7);
/// assert_eq!(answer.join(), 42);
/// ```
pub fn spawn<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    or_panic(Builder::new().spawn(run))
}

/// Starts a thread on `core`.
///
/// # Panics
/// When there is no such core, or no memory for the stack.
pub fn spawn_on<T: Send + 'static>(
    core: usize,
    run: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    or_panic(Builder::new().core(core).spawn(run))
}

fn or_panic<T>(spawned: Result<JoinHandle<T>, SpawnError>) -> JoinHandle<T> {
    match spawned {
        Ok(handle) => handle,
        Err(error) => panic!("cannot spawn a thread: {error}"),
    }
}

/// How a thread is to be made.
///
/// ```
/// use tare_libos::thread;
/// let thread = thread::Builder::new()
///     .name("logger")
///     .stack_size(64 * 1024)
///     .spawn(|| thread::current().name().map(String::from))?;
/// assert_eq!(thread.join().as_deref(), Some("logger"));
/// # Ok::<(), thread::SpawnError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Builder {
    name: Option<String>,
    stack_size: usize,
    core: Option<usize>,
}

impl Builder {
    /// A nameless thread on this core with a stack of `DEFAULT_STACK_SIZE`.
    pub fn new() -> Self {
        Self {
            name: None,
            stack_size: DEFAULT_STACK_SIZE,
            core: None,
        }
    }

    /// Names the thread; panics and faults print the name.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Bytes of stack, rounded up to pages.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = bytes;
        self
    }

    /// The core on which the thread runs.
    pub fn core(mut self, core: usize) -> Self {
        self.core = Some(core);
        self
    }

    /// Starts the thread.
    pub fn spawn<T: Send + 'static>(
        self,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<T>, SpawnError> {
        let core = self.core.unwrap_or_else(current_core);
        if core >= cores() {
            let cores = cores();
            return Err(SpawnError::NoSuchCore { core, cores });
        }
        let packet = Arc::new(join::Packet::new());
        let theirs = Arc::clone(&packet);
        let body = Box::new(move || theirs.complete(run()));
        let thread = backend::start(self.name, self.stack_size, core, body)?;
        Ok(JoinHandle::new(thread, packet))
    }
}

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

/// Blocks this thread for at least `duration`.
pub fn sleep(duration: Duration) {
    sleep_until(Instant::now() + duration);
}

/// Blocks this thread until `deadline` has passed.
pub fn sleep_until(deadline: Instant) {
    while Instant::now() < deadline {
        park_until(deadline);
    }
}

/// Blocks this thread until it is unparked or `timeout` has passed.
pub fn park_timeout(timeout: Duration) {
    park_until(Instant::now() + timeout);
}
