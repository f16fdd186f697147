//! The load generator: sends what is due, takes what comes, in one thread.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tare_host::tap_namespace::TapNamespace;

use super::connection::{Connection, Turn};
use super::exchange::Exchange;
use super::request::{Failure, Request, Target};
use super::response::Reuse;
use super::schedule::{Connections, Schedule};
use crate::interrupt::{Interrupt, Interrupted, SLICE};

/// Why a load could not go on.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A signal came.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// The operating system refused.
    #[error("the load generator cannot wait for its connections")]
    Poll(#[source] io::Error),
}

/// Sends requests to a target; kept connections survive from run to run.
#[derive(Debug)]
pub struct Generator {
    address: SocketAddr,
    /// Where the server is reached from, if not from this process's network namespace.
    network: Option<TapNamespace>,
    /// Request `i` is exchange `i` of them, around and snapshots.
    exchanges: Vec<Exchange>,
    mode: Connections,
    timeout: Duration,
    connections: Vec<Connection>,
}

impl Generator {
    /// A generator of GET requests that fail after `timeout` from their
    /// scheduled time.
    pub fn new(target: &Target, mode: Connections, timeout: Duration) -> Self {
        Self::of(target.address, vec![Exchange::get(target)], mode, timeout)
    }

    /// A generator of these exchanges in turn, of which there must be one.
    pub fn of(
        address: SocketAddr,
        exchanges: Vec<Exchange>,
        mode: Connections,
        timeout: Duration,
    ) -> Self {
        assert!(!exchanges.is_empty(), "nothing to send");
        Self {
            address,
            network: None,
            exchanges,
            mode,
            timeout,
            connections: Vec::new(),
        }
    }

    /// The same with connections that are opened in this namespace, if there is one.
    pub fn through(mut self, network: Option<TapNamespace>) -> Self {
        self.network = network;
        self
    }

    fn connect(&self) -> io::Result<Connection> {
        let open = || Connection::open(self.address);
        let Some(network) = &self.network else {
            return open();
        };
        network.within(open)?
    }

    /// Sends what `schedule` says and waits until every request has its fate.
    pub fn run(
        &mut self,
        schedule: Schedule,
        interrupt: &Interrupt,
    ) -> Result<Vec<Request>, LoadError> {
        let mut run = Run::new(schedule, self.timeout);
        loop {
            interrupt.check()?;
            run.admit();
            run.expire(&mut self.connections);
            self.assign(&mut run);
            run.admit();
            if run.waiting.is_empty() && run.is_over() {
                self.connections.retain(|c| c.request.is_none());
                return Ok(run.requests);
            }
            // Answers that arrived while requests were sent have made room for the next ones: no
            // event would come for those.
            if !self.can_send(&run) {
                self.wait(&mut run)?;
            }
        }
    }

    /// Whether a request waits that a connection can carry now.
    fn can_send(&self, run: &Run) -> bool {
        let has_room = self.connections.len() < self.mode.limit()
            || self.connections.iter().any(|c| c.request.is_none());
        !run.waiting.is_empty() && has_room
    }

    /// Gives waiting requests to connections, as many as there may be.
    fn assign(&mut self, run: &mut Run) {
        while let Some(&index) = run.waiting.front() {
            let idle = self.connections.iter().position(|c| c.request.is_none());
            let place = match idle {
                Some(place) => place,
                None if self.connections.len() >= self.mode.limit() => return,
                None => match self.connect() {
                    Ok(connection) => {
                        self.connections.push(connection);
                        self.connections.len() - 1
                    }
                    Err(_) => {
                        run.waiting.pop_front();
                        run.finish(index, Some(Failure::Connect));
                        continue;
                    }
                },
            };
            run.waiting.pop_front();
            self.connections[place].carry(index);
            run.requests[index]
                .sent_ns
                .get_or_insert(run.begin.elapsed_ns());
            run.requests[index].connected |= self.connections[place].is_new();
            self.advance(place, run);
        }
    }

    /// Waits for a connection, the next request, a timeout or a signal.
    fn wait(&mut self, run: &mut Run) -> Result<(), LoadError> {
        let timeout = run.next_event(SLICE);
        let exchanges = &self.exchanges;
        let mut polled: Vec<PollFd<'_>> = self
            .connections
            .iter()
            .map(|c| {
                let exchange = c.request.map(|index| &exchanges[index % exchanges.len()]);
                PollFd::new(c, c.interest(exchange))
            })
            .collect();
        let timeout = Timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        match poll(&mut polled, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(LoadError::Poll(errno.into())),
        }
        let ready: Vec<bool> = polled
            .iter()
            .map(|p| p.revents() != PollFlags::empty())
            .collect();
        // From the end, since a connection that is done with is taken out.
        for place in (0..ready.len()).rev().filter(|place| ready[*place]) {
            if self.connections[place].request.is_some() {
                self.advance(place, run);
            } else {
                // No answer is due: the server closed the connection, or sent garbage.
                self.connections.swap_remove(place);
            }
        }
        Ok(())
    }

    /// Lets a connection do what it can.
    fn advance(&mut self, place: usize, run: &mut Run) {
        let Some(index) = self.connections[place].request else {
            return;
        };
        let exchange = &self.exchanges[index % self.exchanges.len()];
        let turn = self.connections[place].advance(exchange);
        let keep = matches!(self.mode, Connections::KeepAlive(_));
        match turn {
            Turn::Waiting => return,
            Turn::Answered(reuse) => {
                run.finish(index, None);
                if keep && reuse == Reuse::Keep {
                    return;
                }
            }
            Turn::Failed(failure) => run.finish(index, Some(failure)),
            Turn::Stale => run.waiting.push_front(index),
        }
        self.connections.swap_remove(place);
    }
}

/// The clock of a run.
#[derive(Clone, Copy, Debug)]
struct Begin(Instant);

impl Begin {
    fn elapsed_ns(self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// One run of a schedule.
struct Run {
    schedule: Schedule,
    timeout: Duration,
    begin: Begin,
    requests: Vec<Request>,
    /// Requests that are due and have no connection.
    waiting: VecDeque<usize>,
    /// Requests without a fate.
    pending: usize,
}

impl Run {
    fn new(schedule: Schedule, timeout: Duration) -> Self {
        Self {
            schedule,
            timeout,
            begin: Begin(Instant::now()),
            requests: Vec::new(),
            waiting: VecDeque::new(),
            pending: 0,
        }
    }

    fn due(&self) -> Option<Duration> {
        let now = self.begin.0.elapsed();
        self.schedule.due(self.requests.len(), self.pending, now)
    }

    /// Takes in the requests that are due.
    fn admit(&mut self) {
        while let Some(due) = self.due().filter(|due| *due <= self.begin.0.elapsed()) {
            self.waiting.push_back(self.requests.len());
            self.pending += 1;
            self.requests.push(Request {
                scheduled_ns: u64::try_from(due.as_nanos()).unwrap_or(u64::MAX),
                sent_ns: None,
                done_ns: 0,
                connected: false,
                failure: None,
            });
        }
    }

    /// Fails the requests whose time is over, and drops their connections.
    fn expire(&mut self, connections: &mut Vec<Connection>) {
        let timeout = u64::try_from(self.timeout.as_nanos()).unwrap_or(u64::MAX);
        let now = self.begin.elapsed_ns();
        let late = |request: &Request| now.saturating_sub(request.scheduled_ns) >= timeout;
        let mut expired = Vec::new();
        connections.retain(|c| match c.request {
            Some(index) if late(&self.requests[index]) => {
                expired.push(index);
                false
            }
            _ => true,
        });
        self.waiting.retain(|index| {
            let late = late(&self.requests[*index]);
            expired.extend(late.then_some(*index));
            !late
        });
        for index in expired {
            self.finish(index, Some(Failure::Timeout));
        }
    }

    fn finish(&mut self, index: usize, failure: Option<Failure>) {
        self.requests[index].done_ns = self.begin.elapsed_ns();
        self.requests[index].failure = failure;
        self.pending -= 1;
    }

    fn is_over(&self) -> bool {
        self.pending == 0 && self.due().is_none()
    }

    /// Time until something must be done, at most `longest`.
    fn next_event(&self, longest: Duration) -> Duration {
        let now = self.begin.0.elapsed();
        let due = self.due().map_or(longest, |due| due.saturating_sub(now));
        // Timeouts are long against `longest`, so they need no separate event.
        due.min(longest)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    /// A server on an idle host answers before the generator has sent its last request. It waited
    /// for an event then, with requests to send and nothing under way, until its time to look for
    /// signals came: 50 times in 2 s, so that memcached seemed to carry a tenth.
    #[test]
    fn a_request_that_a_connection_can_carry_is_not_waited_with() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let exchanges = vec![Exchange::exactly(
            "get a\r\n".to_owned(),
            "END\r\n".to_owned(),
        )];
        let second = Duration::from_secs(1);
        let mode = Connections::KeepAlive(1);
        let mut generator = Generator::of(address, exchanges, mode, second);
        let mut run = Run::new(Schedule::one_by_one(2), second);
        assert!(!generator.can_send(&run), "nothing is due");
        run.admit();
        assert!(generator.can_send(&run), "a connection can be opened");
        generator
            .connections
            .push(Connection::open(address).unwrap());
        assert!(generator.can_send(&run), "it is idle");
        generator.connections[0].carry(0);
        assert!(!generator.can_send(&run), "it is busy");
    }
}
