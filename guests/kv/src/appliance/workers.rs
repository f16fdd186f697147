//! The threads that accept and serve.

use core::time::Duration;

use tare_libos::net::TcpListener;
use tare_libos::sync::{Arc, Condvar, Mutex};
use tare_libos::thread::{self, JoinHandle, SpawnError};

use super::WallClock;
use super::stream::Stream;
use crate::connection;
use crate::server::Server;

/// Stack of a worker in bytes. The deepest path, a write into the network, takes less
/// than half; interrupt handlers run on it too.
const STACK_BYTES: usize = 16 * 1024;
/// Threads that stay without a connection, for the next ones.
const RESTING: usize = 16;
/// Pause after a failed `accept`, which means that memory is short.
const RETRY: Duration = Duration::from_millis(100);

pub(super) struct Workers {
    listener: TcpListener,
    server: Server<WallClock>,
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

impl Workers {
    pub(super) fn new(listener: TcpListener, server: Server<WallClock>) -> Self {
        Self {
            listener,
            server,
            rest: Mutex::new(Rest::default()),
            called: Condvar::new(),
        }
    }

    /// Starts a thread that accepts.
    pub(super) fn start(workers: &Arc<Self>) -> Result<JoinHandle<()>, SpawnError> {
        let theirs = Arc::clone(workers);
        thread::Builder::new()
            .name("kv")
            .stack_size(STACK_BYTES)
            .spawn(move || Self::work(&theirs))
    }

    /// Holds the calling thread for ever: threads come and go, the server stays.
    pub(super) fn stay(&self) -> ! {
        loop {
            thread::park();
        }
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
            let has_room = workers.server.traffic.open() < workers.server.settings.connections;
            if has_room && (workers.call() || Self::start(workers).is_ok()) {
                return connection::serve(stream, &workers.server);
            }
            connection::refuse(stream, &workers.server);
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
