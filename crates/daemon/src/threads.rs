//! The threads of a daemon besides the main one. Each waits at a gate until the main thread has
//! opened files and confined itself, then confines itself for its role and works.

use std::io;
use std::sync::{Arc, Barrier, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::confine::{self, ConfineError, Files, Role};
use crate::observe::ThreadObserver;
use crate::set_up::{SetUpError, failed_to};

/// Stack of each thread, in bytes.
const STACK_BYTES: usize = 256 << 10;
/// Pauses between two checks of threads that must end.
const FIRST_PAUSE: Duration = Duration::from_micros(200);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// The threads, in the order of their start.
#[derive(Debug, Default)]
pub struct Threads(Vec<Thread>);

#[derive(Debug)]
struct Thread {
    name: String,
    observer: ThreadObserver,
    handle: JoinHandle<()>,
    gate: Arc<Barrier>,
}

/// Threads that still run.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("did not end in time: thread {}", .0.join(", "))]
pub struct NotEnded(Vec<String>);

impl Threads {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a thread. `prepare` runs before the gate, with the rights of the process; `work` runs
    /// behind it, with the result of `prepare` and whether the thread is confined for `role`.
    pub fn spawn<P>(
        &mut self,
        name: String,
        role: Role,
        prepare: impl FnOnce() -> P + Send + 'static,
        work: impl FnOnce(P, Result<(), ConfineError>) + Send + 'static,
    ) -> Result<(), SetUpError> {
        let files = Files::none()?;
        let (sender, observer) = mpsc::channel();
        let gate = Arc::new(Barrier::new(2));
        let (opens, own_name) = (Arc::clone(&gate), name.clone());
        let body = move || {
            let _ = sender.send(ThreadObserver::of_caller(&own_name));
            drop(sender);
            let prepared = prepare();
            opens.wait();
            work(prepared, confine::confine(role, files));
        };
        let builder = thread::Builder::new().name(name.clone());
        let handle = builder
            .stack_size(STACK_BYTES)
            .spawn(body)
            .map_err(failed_to("start a thread"))?;
        let gone = |_| failed_to("start a thread")(io::ErrorKind::BrokenPipe.into());
        let observer = observer.recv().map_err(gone)?;
        self.0.push(Thread {
            name,
            observer: observer.map_err(failed_to("open its threads' statistics"))?,
            handle,
            gate,
        });
        Ok(())
    }

    /// Observers of all threads, the calling one first, as `main`.
    pub fn observers(&self) -> Result<Vec<ThreadObserver>, SetUpError> {
        let main = ThreadObserver::of_caller("main");
        let others = self.0.iter().map(|thread| thread.observer.try_clone());
        let all: io::Result<Vec<_>> = [main].into_iter().chain(others).collect();
        all.map_err(failed_to("open its threads' statistics"))
    }

    /// Opens the gate.
    pub fn open_gate(&self) {
        for thread in &self.0 {
            thread.gate.wait();
        }
    }

    /// Waits until all have ended, at most for `limit`. At each check, the last one included,
    /// `remind` gets the time so far and the number of each running thread: a thread may have begun
    /// to wait after the last reminder. The end of the process ends the rest.
    pub fn join(
        &self,
        limit: Duration,
        mut remind: impl FnMut(Duration, usize),
    ) -> Result<(), NotEnded> {
        let begin = Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            let running = || {
                (0..)
                    .zip(&self.0)
                    .filter(|(_, it)| !it.handle.is_finished())
            };
            if running().next().is_none() {
                return Ok(());
            }
            let elapsed = begin.elapsed();
            running().for_each(|(number, _)| remind(elapsed, number));
            if elapsed > limit {
                return Err(NotEnded(running().map(|(_, it)| it.name.clone()).collect()));
            }
            thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    #[test]
    fn threads_work_behind_the_gate_confined() {
        let steps = Arc::new(AtomicU32::new(0));
        let mut threads = Threads::new();
        let (prepared, worked) = (Arc::clone(&steps), Arc::clone(&steps));
        threads
            .spawn(
                "io".to_owned(),
                Role::Io,
                move || prepared.fetch_add(1, Ordering::SeqCst),
                move |before, confined| {
                    confined.unwrap();
                    worked.fetch_add(10 + before, Ordering::SeqCst);
                },
            )
            .unwrap();
        let observers = threads.observers().unwrap();
        let names: Vec<String> = observers.iter().map(|it| it.stats().name).collect();
        assert_eq!(names, ["main", "io"]);
        assert!(steps.load(Ordering::SeqCst) < 10);
        threads.open_gate();
        threads.join(LIMIT, |_, _| {}).unwrap();
        assert_eq!(steps.load(Ordering::SeqCst), 11);
    }

    #[test]
    fn a_thread_that_does_not_end_is_reminded_and_named() {
        let mut threads = Threads::new();
        let hold = Arc::new(Barrier::new(2));
        let held = Arc::clone(&hold);
        let work = move |(), _| {
            held.wait();
        };
        let named = threads.spawn("slow".to_owned(), Role::Io, || (), work);
        named.unwrap();
        threads.open_gate();
        let mut reminded = Vec::new();
        let error = threads
            .join(Duration::ZERO, |_, number| reminded.push(number))
            .unwrap_err();
        assert_eq!(error.to_string(), "did not end in time: thread slow");
        assert_eq!(reminded.first(), Some(&0));
        hold.wait();
        threads.join(LIMIT, |_, _| {}).unwrap();
    }
}
