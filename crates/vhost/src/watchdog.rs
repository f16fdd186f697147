//! A supervisor that wants to hear at intervals that the daemon is alive.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::activation::Supervisor;

/// Says so while the main thread and each I/O thread take turns; one that is in the middle of
/// something has until the next look.
///
/// After a report the next is due when half of the supervisor's time is over. One that cannot be
/// made then is tried again after a sixteenth, and again: a thread that is late by less than 7
/// sixteenths of the time, or a supervisor that has no room for the message, costs nothing.
pub(crate) struct Watchdog {
    supervisor: Supervisor,
    next: Instant,
}

/// How many retries the supervisor's time has room for.
const RETRIES: u32 = 16;

/// An I/O thread, as the watchdog sees it.
#[derive(Clone, Copy)]
pub(crate) struct Turns<'a> {
    /// It has taken a turn since this was cleared and `wake` written.
    pub(crate) answered: &'a AtomicBool,
    pub(crate) wake: &'a OwnedFd,
}

impl Watchdog {
    /// For that supervisor; the first look is due at once.
    pub(crate) fn new(supervisor: Supervisor) -> Self {
        Self {
            supervisor,
            next: Instant::now(),
        }
    }

    pub(crate) fn supervisor(&self) -> &Supervisor {
        &self.supervisor
    }

    /// Time from `now` until the next look; `None`: the supervisor does not want to hear it.
    pub(crate) fn left(&self, now: Instant) -> Option<Duration> {
        self.supervisor.watchdog()?;
        Some(self.next.saturating_duration_since(now))
    }

    /// Reports to the supervisor, if it is time and all threads have answered, and wakes them.
    pub(crate) fn look<'a>(
        &mut self,
        now: Instant,
        threads: impl Iterator<Item = Turns<'a>> + Clone,
    ) {
        let Some(given) = self.supervisor.watchdog() else {
            return;
        };
        if self.next > now {
            return;
        }
        let answered = |it: Turns<'_>| it.answered.load(Ordering::Relaxed);
        if !threads.clone().all(answered) || self.supervisor.alive().is_err() {
            self.next = now + given / RETRIES;
            return;
        }
        self.next = now + given / 2;
        for thread in threads {
            thread.answered.store(false, Ordering::Relaxed);
            let _ = rustix::io::write(thread.wake, &1u64.to_ne_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    const GIVEN: Duration = Duration::from_secs(8);

    #[test]
    fn what_is_missing_is_looked_for_again_before_the_time_is_over() {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let mut text = [0; 16];
        let mut heard = || theirs.recv(&mut text).is_ok_and(|count| count == 10);
        let (answered, wake) = (
            AtomicBool::new(true),
            eventfd(0, EventfdFlags::CLOEXEC).unwrap(),
        );
        let thread = || {
            std::iter::once(Turns {
                answered: &answered,
                wake: &wake,
            })
        };
        let mut watchdog = Watchdog::new(Supervisor::of_socket(ours.try_clone().unwrap(), GIVEN));
        let begin = watchdog.next;
        let at = |seconds| begin + Duration::from_secs(seconds);
        watchdog.look(at(0), thread());
        assert!(heard());
        assert!(
            !answered.load(Ordering::Relaxed),
            "the thread has to answer"
        );
        assert_eq!(watchdog.left(at(0)), Some(GIVEN / 2));
        // The thread is in the middle of something for 7 of the 8 seconds.
        let mut now = at(4);
        while now < at(7) {
            watchdog.look(now, thread());
            assert!(!heard());
            let left = watchdog.left(now).unwrap();
            assert_eq!(left, GIVEN / 16);
            now += left;
        }
        answered.store(true, Ordering::Relaxed);
        watchdog.look(now, thread());
        assert!(now < at(8) && heard());
        // The supervisor has no room when it is time.
        answered.store(true, Ordering::Relaxed);
        ours.set_nonblocking(true).unwrap();
        while ours.send(b"x").is_ok() {}
        let due = now + GIVEN / 2;
        watchdog.look(due, thread());
        let retry = due + GIVEN / 16;
        assert_eq!(watchdog.left(due), Some(retry - due));
        assert!(answered.load(Ordering::Relaxed));
        while theirs.recv(&mut [0; 16]).is_ok() {}
        watchdog.look(retry, thread());
        let mut text = [0; 16];
        assert_eq!(theirs.recv(&mut text).unwrap(), b"WATCHDOG=1".len());
        assert_eq!(watchdog.left(retry), Some(GIVEN / 2));
    }
}
