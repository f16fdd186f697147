//! The main thread of a daemon: handles signals, the control socket and the program's own events,
//! until there is a reason to end. It sleeps in epoll, with a timeout only while clients wait for a
//! place ([`crate::http::server`]), or where the program sets one.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use crate::http::Routes;
use crate::http::server::Server;
use crate::poll::Poll;
use crate::set_up::{SetUpError, failed_to};
use crate::signals;

const SIGNAL: u64 = 0;
const SERVER: u64 = 1;
/// Tokens of the program's own events begin here.
const OWN: u64 = 1 << 32;

/// What a program does on its main thread.
pub trait Service: Routes {
    /// Why it ends.
    type End;

    /// A signal came, of those that [`signals`] handles.
    fn signal(&mut self, signal: i32);

    /// The event watched with this number is ready.
    fn event(&mut self, number: u32);

    /// How long to sleep at most; `None`: until something happens.
    fn timeout(&self) -> Option<Duration> {
        None
    }

    /// Called after each sleep.
    fn look(&mut self) {}

    /// The reason to end, once there is one. Called after each batch of events.
    fn end(&mut self) -> Option<Self::End>;
}

/// The set of descriptors that the main thread waits for.
pub struct MainLoop {
    poll: Poll,
    server: Server,
}

impl MainLoop {
    /// Installs the signal handlers, and prepares to serve the control socket.
    pub fn new(control: UnixListener) -> Result<Self, SetUpError> {
        let signal = signals::install().map_err(failed_to("handle signals"))?;
        let poll = Poll::new().map_err(failed_to("make an epoll"))?;
        poll.add(signal, SIGNAL)
            .map_err(failed_to("watch its events"))?;
        let server =
            Server::new(control, &poll, SERVER).map_err(failed_to("serve its control socket"))?;
        Ok(Self { poll, server })
    }

    /// Watches `event` for reading, as the program's event `number`.
    pub fn watch(&self, event: impl AsFd, number: u32) -> Result<(), SetUpError> {
        let watched = self.poll.add(event, OWN + u64::from(number));
        watched.map_err(failed_to("watch its events"))
    }

    /// Serves until there is a reason to end. Fails only if this thread cannot wait.
    pub fn run<S: Service>(mut self, service: &mut S) -> io::Result<S::End> {
        let mut ready = Vec::with_capacity(16);
        loop {
            let most = service.timeout();
            self.poll
                .wait(&mut ready, self.server.wait().or_after(most))?;
            service.look();
            for token in ready.drain(..) {
                self.handle(token, service);
            }
            self.server.resume(&self.poll);
            if let Some(end) = service.end() {
                return Ok(end);
            }
        }
    }

    fn handle(&mut self, token: u64, service: &mut impl Service) {
        let own = token.checked_sub(OWN).map(u32::try_from);
        match own {
            Some(Ok(number)) => service.event(number),
            _ if token == SIGNAL => signals::take().for_each(|signal| service.signal(signal)),
            _ => self.server.ready(&self.poll, token, service),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;
    use std::thread;

    use rustix::event::{EventfdFlags, eventfd};

    use super::*;
    use crate::http::{Request, Response};

    /// Ends by its event or by a request.
    #[derive(Default)]
    struct Echo {
        end: Option<String>,
    }

    impl Routes for Echo {
        fn answer(&mut self, request: &Request<'_>) -> Response {
            self.end = Some(request.path.to_owned());
            Response::ok("text/plain", b"yes".to_vec())
        }
    }

    impl Service for Echo {
        type End = String;

        fn signal(&mut self, _: i32) {}

        fn event(&mut self, number: u32) {
            self.end = Some(number.to_string());
        }

        fn end(&mut self) -> Option<String> {
            self.end.take()
        }
    }

    #[test]
    fn an_event_ends_the_loop() {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("s")).unwrap();
        let main = MainLoop::new(listener).unwrap();
        let event = eventfd(1, EventfdFlags::CLOEXEC).unwrap();
        main.watch(&event, 7).unwrap();
        assert_eq!(main.run(&mut Echo::default()).unwrap(), "7");
    }

    #[test]
    fn a_request_that_ends_the_loop_is_answered_first() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let main = MainLoop::new(UnixListener::bind(&path).unwrap()).unwrap();
        let client = thread::spawn(move || {
            let mut stream = UnixStream::connect(path).unwrap();
            stream.write_all(b"GET /bye HTTP/1.1\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        });
        assert_eq!(main.run(&mut Echo::default()).unwrap(), "/bye");
        assert!(client.join().unwrap().ends_with("yes"));
    }
}
