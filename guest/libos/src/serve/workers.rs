//! The threads that accept and serve.

use core::time::Duration;

use super::Stream;
use crate::heap;
use crate::net::TcpListener;
use crate::sync::{Arc, Condvar, Mutex};
use crate::thread::{self, SpawnError};

/// What a worker takes of the heap beside its stack: its record, and a first buffer.
const RECORD_BYTES: usize = 4 * 1024;
/// Threads that stay without a connection, for the next ones.
const RESTING: usize = 16;
/// Pause after a failed `accept`, which means that memory is short.
const RETRY: Duration = Duration::from_millis(100);

/// What is done with connections.
pub trait Service: Send + Sync + 'static {
    /// Name of the threads.
    const NAME: &'static str;
    /// Stack of a thread in bytes. The deepest paths of this project's servers, a write
    /// into the network and the text of figures, take less than half; interrupt handlers
    /// run on it too.
    const STACK_BYTES: usize = 16 * 1024;

    /// Whether one more connection may be served.
    fn has_room(&self) -> bool;

    /// Serves a connection until it ends.
    fn serve(&self, stream: Stream);

    /// Answers a connection beyond the limit; no other one is accepted meanwhile.
    fn refuse(&self, stream: Stream);
}

/// Starts the first thread that accepts; more come with the connections.
pub fn start<S: Service>(listener: TcpListener, service: S) -> Result<(), SpawnError> {
    let workers = Workers {
        listener,
        service,
        rest: Mutex::new(Rest::default()),
        called: Condvar::new(),
    };
    Workers::start(&Arc::new(workers))
}

/// Holds the calling thread forever: threads come and go, the server stays.
pub fn stay() -> ! {
    loop {
        thread::park();
    }
}

struct Workers<S> {
    listener: TcpListener,
    service: S,
    rest: Mutex<Rest>,
    called: Condvar,
}

#[derive(Default)]
struct Rest {
    /// Threads that wait to be called.
    resting: usize,
    /// Calls that no thread has followed yet.
    calls: usize,
}

impl<S: Service> Workers<S> {
    /// Starts a thread that accepts.
    fn start(workers: &Arc<Self>) -> Result<(), SpawnError> {
        let theirs = Arc::clone(workers);
        let builder = thread::Builder::new()
            .name(S::NAME)
            .stack_size(S::STACK_BYTES);
        builder.spawn(move || Self::work(&theirs)).map(drop)
    }

    fn work(workers: &Arc<Self>) {
        loop {
            Self::accept(workers);
            if !workers.rest() {
                return;
            }
        }
    }

    /// Accepts, and serves the first connection for which another thread takes
    /// over here. The rest is refused.
    fn accept(workers: &Arc<Self>) {
        loop {
            let Ok((tcp, _)) = workers.listener.accept() else {
                thread::sleep(RETRY);
                continue;
            };
            let stream = Stream::new(tcp);
            let has_room =
                workers.service.has_room() && heap::has_room(S::STACK_BYTES + RECORD_BYTES);
            if has_room && (workers.call() || Self::start(workers).is_ok()) {
                return workers.service.serve(stream);
            }
            workers.service.refuse(stream);
        }
    }

    /// Sends a resting thread to accept.
    fn call(&self) -> bool {
        let mut rest = self.rest.lock();
        if rest.resting == 0 {
            return false;
        }
        rest.resting -= 1;
        rest.calls += 1;
        drop(rest);
        self.called.notify_one();
        true
    }

    /// Waits to be called; `false` if there are enough who wait.
    fn rest(&self) -> bool {
        let mut rest = self.rest.lock();
        if rest.resting == RESTING {
            return false;
        }
        rest.resting += 1;
        let mut rest = self.called.wait_while(rest, |rest| rest.calls == 0);
        rest.calls -= 1;
        true
    }
}
