//! A small epoll: level-triggered except for events that only count; tokens instead of callbacks;
//! and an interest that may be empty (epoll itself reports hang-ups even for an empty interest,
//! which would spin).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;

pub use tare_devices::virtio::Interest;

fn flags(interest: Interest) -> epoll::EventFlags {
    let mut flags = epoll::EventFlags::empty();
    flags.set(epoll::EventFlags::IN, interest.readable);
    flags.set(epoll::EventFlags::OUT, interest.writable);
    flags
}

/// Whether to wait for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Until there is one.
    Forever,
    /// Do not wait.
    No,
    /// For this many nanoseconds at most.
    Nanoseconds(u64),
}

impl Wait {
    /// The same, but at most `most`.
    #[must_use]
    pub(crate) fn or_after(self, most: Option<Duration>) -> Self {
        let Some(most) = most else {
            return self;
        };
        let most_ns = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        match self {
            Self::No => Self::No,
            Self::Forever => Self::Nanoseconds(most_ns),
            Self::Nanoseconds(ns) => Self::Nanoseconds(ns.min(most_ns)),
        }
    }
}

const BATCH: usize = 16;

/// A set of descriptors with tokens.
#[derive(Debug)]
pub struct Poll {
    epoll: OwnedFd,
}

impl Poll {
    /// An empty set.
    pub fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { epoll })
    }

    /// A descriptor of the set itself: readable when a member is ready, as a member of another set.
    pub fn try_clone(&self) -> io::Result<OwnedFd> {
        self.epoll.try_clone()
    }

    /// Watches `source` to read.
    pub fn add(&self, source: impl AsFd, token: u64) -> io::Result<()> {
        self.change(source, token, Interest::default(), Interest::READ)
    }

    /// Watches an eventfd that is never read: each write to it is reported once, which saves the
    /// read that would clear it.
    pub fn add_event(&self, event: impl AsFd, token: u64) -> io::Result<()> {
        let data = epoll::EventData::new_u64(token);
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        Ok(epoll::add(&self.epoll, event, data, flags)?)
    }

    /// Changes what `source` is watched for, from `old` (empty: not in the set).
    pub fn change(
        &self,
        source: impl AsFd,
        token: u64,
        old: Interest,
        new: Interest,
    ) -> io::Result<()> {
        let data = epoll::EventData::new_u64(token);
        let nothing = Interest::default();
        match (old == nothing, new == nothing) {
            _ if old == new => {}
            (true, _) => epoll::add(&self.epoll, source, data, flags(new))?,
            (_, true) => epoll::delete(&self.epoll, source)?,
            _ => epoll::modify(&self.epoll, source, data, flags(new))?,
        }
        Ok(())
    }

    /// Waits and collects the tokens of ready descriptors into `ready`.
    pub fn wait(&self, ready: &mut Vec<u64>, wait: Wait) -> io::Result<()> {
        ready.clear();
        if let Wait::Nanoseconds(ns) = wait
            && !self.becomes_ready(ns)?
        {
            return Ok(());
        }
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let timeout = (wait != Wait::Forever).then_some(&now);
        let mut events = [MaybeUninit::uninit(); BATCH];
        match epoll::wait(&self.epoll, &mut events, timeout) {
            Ok((events, _)) => ready.extend(events.iter().map(|event| event.data.u64())),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        Ok(())
    }

    /// epoll's own timeout is in milliseconds on kernels before 5.11; polling the epoll descriptor
    /// itself has a timeout in nanoseconds.
    fn becomes_ready(&self, within_ns: u64) -> io::Result<bool> {
        let timeout = Timespec {
            tv_sec: (within_ns / 1_000_000_000) as i64,
            tv_nsec: (within_ns % 1_000_000_000) as i64,
        };
        let mut epoll = [PollFd::new(&self.epoll, PollFlags::IN)];
        match poll(&mut epoll, Some(&timeout)) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_wait_with_a_limit_ends_there_or_with_an_event() {
        let poll = Poll::new().unwrap();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        poll.add(&ours, 7).unwrap();
        let mut ready = Vec::new();
        let began = std::time::Instant::now();
        poll.wait(&mut ready, Wait::Nanoseconds(2_000_000)).unwrap();
        assert!(ready.is_empty());
        assert!(began.elapsed() >= std::time::Duration::from_millis(2));
        theirs.write_all(b"x").unwrap();
        poll.wait(&mut ready, Wait::Nanoseconds(u64::MAX / 2))
            .unwrap();
        assert_eq!(ready, [7]);
    }

    #[test]
    fn an_event_that_is_never_read_is_reported_once_for_each_write() {
        let poll = Poll::new().unwrap();
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap();
        poll.add_event(&event, 7).unwrap();
        let mut ready = Vec::new();
        for _ in 0..3 {
            rustix::io::write(&event, &1_u64.to_ne_bytes()).unwrap();
            poll.wait(&mut ready, Wait::No).unwrap();
            assert_eq!(ready, [7]);
            poll.wait(&mut ready, Wait::No).unwrap();
            assert!(ready.is_empty());
        }
        // Near its largest value an eventfd still reports.
        rustix::io::write(&event, &(u64::MAX - 5).to_ne_bytes()).unwrap();
        poll.wait(&mut ready, Wait::No).unwrap();
        assert_eq!(ready, [7]);
    }

    #[test]
    fn a_hung_up_source_without_interest_is_silent() {
        let poll = Poll::new().unwrap();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        poll.add(&ours, 7).unwrap();
        theirs.write_all(b"x").unwrap();
        drop(theirs);
        let mut ready = Vec::new();
        poll.wait(&mut ready, Wait::No).unwrap();
        assert_eq!(ready, [7]);
        poll.change(&ours, 7, Interest::READ, Interest::default())
            .unwrap();
        poll.wait(&mut ready, Wait::No).unwrap();
        assert!(ready.is_empty());
    }
}
