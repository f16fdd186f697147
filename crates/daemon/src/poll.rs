//! A small epoll: level-triggered except for events that only count; tokens instead of callbacks;
//! and an interest that may be empty (epoll itself reports hang-ups even for an empty interest,
//! which would spin).

use std::collections::VecDeque;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
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
const MILLISECOND_NS: u64 = 1_000_000;
/// A wait this long may end up to a millisecond late, which epoll's own timeout costs: one system call
/// instead of two.
const LONG_NS: u64 = 10 * MILLISECOND_NS;
/// Longest timeout; whoever waits for longer waits again.
const LONGEST_NS: u64 = 3_600_000 * MILLISECOND_NS;

fn time(ns: u64) -> Timespec {
    Timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as i64,
    }
}

/// A descriptor that has become ready, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// Whose.
    pub token: u64,
    /// Data, or the end of the other side.
    pub readable: bool,
    /// The other side has ended.
    pub ended: bool,
    /// Room.
    pub writable: bool,
    /// It has failed.
    pub failed: bool,
}

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

    /// Watches `source` for `new` and its end: each change is reported once. It leaves the set when
    /// it is closed. `old` is empty if it is not in the set.
    pub fn change_edges(
        &self,
        source: impl AsFd,
        token: u64,
        old: Interest,
        new: Interest,
    ) -> io::Result<()> {
        let data = epoll::EventData::new_u64(token);
        let flags = flags(new) | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        if old == Interest::default() {
            epoll::add(&self.epoll, source, data, flags)?;
        } else {
            epoll::modify(&self.epoll, source, data, flags)?;
        }
        Ok(())
    }

    /// Appends what is ready now, at most a batch: a set in a set stays ready while there is more.
    pub fn collect(&self, ready: &mut VecDeque<Ready>) -> io::Result<()> {
        let mut events = [MaybeUninit::uninit(); 4 * BATCH];
        match epoll::wait(&self.epoll, &mut events, Some(&time(0))) {
            Ok((events, _)) => ready.extend(events.iter().map(|event| {
                let reported = event.flags;
                let has = |flags| reported.intersects(flags);
                let end = epoll::EventFlags::RDHUP | epoll::EventFlags::HUP;
                Ready {
                    token: event.data.u64(),
                    readable: has(epoll::EventFlags::IN | end),
                    ended: has(end),
                    writable: has(epoll::EventFlags::OUT),
                    failed: has(epoll::EventFlags::ERR),
                }
            })),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        Ok(())
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
        let timeout = match wait {
            Wait::Forever => None,
            Wait::No => Some(0),
            Wait::Nanoseconds(ns) if ns >= LONG_NS => {
                // Rounded up, so that the time has come when the wait ends.
                Some(ns.min(LONGEST_NS).div_ceil(MILLISECOND_NS) * MILLISECOND_NS)
            }
            Wait::Nanoseconds(ns) if self.becomes_ready(ns)? => Some(0),
            Wait::Nanoseconds(_) => return Ok(()),
        };
        let timeout = timeout.map(time);
        let mut events = [MaybeUninit::uninit(); BATCH];
        match epoll::wait(&self.epoll, &mut events, timeout.as_ref()) {
            Ok((events, _)) => ready.extend(events.iter().map(|event| event.data.u64())),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        Ok(())
    }

    /// epoll's own timeout is in milliseconds on kernels before 5.11; polling the epoll descriptor
    /// itself has a timeout in nanoseconds.
    fn becomes_ready(&self, within_ns: u64) -> io::Result<bool> {
        let timeout = time(within_ns);
        let mut epoll = [PollFd::new(&self.epoll, PollFlags::IN)];
        match poll(&mut epoll, Some(&timeout)) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl AsFd for Poll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

#[cfg(test)]
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
        let began = std::time::Instant::now();
        poll.wait(&mut ready, Wait::Nanoseconds(LONG_NS + 1))
            .unwrap();
        assert!(ready.is_empty());
        assert!(began.elapsed() >= std::time::Duration::from_nanos(LONG_NS + 1));
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
