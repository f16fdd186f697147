//! Written bytes that wait for more: what a program writes between two looks at what came goes
//! out together, in as few segments as it takes (ADR 58).
//!
//! A deadline guards the wait, and arming a timer for it costs an exit. So only programs whose
//! turns had several writes of late pay for it: others' bytes go at once.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;

use tare_net::stack::Sending;

use super::system::{self, SystemStack};
use crate::time::Instant;

/// How long written bytes wait at most.
const LONGEST: Duration = Duration::from_millis(1);
/// Turns with one write after which bytes go at once.
const WAITING_TURNS: u32 = 64;
const NOTHING: u64 = u64::MAX;

/// What programs have written for later.
struct Written {
    /// Writes since the last turn ended.
    writes: AtomicU32,
    /// Turns for which it still pays to wait.
    waiting_turns: AtomicU32,
    /// When bytes that wait are to be sent, in nanoseconds of the clock; changes under the stack's
    /// lock.
    due_ns: AtomicU64,
}

static WRITTEN: Written = Written::new();

impl Written {
    const fn new() -> Self {
        Self {
            writes: AtomicU32::new(0),
            waiting_turns: AtomicU32::new(WAITING_TURNS),
            due_ns: AtomicU64::new(NOTHING),
        }
    }

    /// Counts a write; when its bytes go.
    #[inline]
    fn begin_write(&self, sending: Sending) -> Sending {
        if sending != Sending::Now {
            self.writes.fetch_add(1, Ordering::Relaxed);
        }
        match sending {
            Sending::Later if self.waiting_turns.load(Ordering::Relaxed) == 0 => Sending::Now,
            sending => sending,
        }
    }

    /// Bytes wait from now on.
    #[inline]
    fn begin_wait(&self, now: Instant) {
        if self.due().is_none() {
            let due = now + LONGEST;
            self.due_ns.store(due.as_nanos(), Ordering::Relaxed);
        }
    }

    #[inline]
    fn due(&self) -> Option<Instant> {
        let due_ns = self.due_ns.load(Ordering::Relaxed);
        (due_ns != NOTHING).then(|| Instant::from_nanos(due_ns))
    }

    /// Whether there is a turn to end. Bytes that wait make one without a write too: a turn that
    /// another core ended has counted their write before they were queued.
    #[inline]
    fn has_turn(&self) -> bool {
        self.writes.load(Ordering::Relaxed) != 0 || self.due().is_some()
    }

    /// Ends a turn; whether bytes wait.
    fn end_turn(&self) -> bool {
        let writes = self.writes.swap(0, Ordering::Relaxed);
        let turns = self.waiting_turns.load(Ordering::Relaxed);
        let turns = after_turn(turns, writes);
        self.waiting_turns.store(turns, Ordering::Relaxed);
        self.due().is_some()
    }

    /// Nothing waits: what did is sent before the stack's lock is released.
    fn end_wait(&self) {
        self.due_ns.store(NOTHING, Ordering::Relaxed);
    }
}

/// Whether something was written for later since the last [`send_written`].
#[inline]
pub fn has_written() -> bool {
    WRITTEN.has_turn()
}

/// By when [`send_written`] is to be called; `None`: nothing waits.
#[inline]
pub fn written_due() -> Option<Instant> {
    WRITTEN.due()
}

/// Ends a turn of writes with [`Sending::Later`]: sends what waits.
#[inline]
pub fn send_written() {
    if WRITTEN.has_turn() && WRITTEN.end_turn() {
        let mut stack = system::lock();
        WRITTEN.end_wait();
        stack.send_written(system::now());
    }
}

/// For how many turns it pays to wait, after one with that many writes.
const fn after_turn(turns: u32, writes: u32) -> u32 {
    match writes {
        0 | 1 => turns.saturating_sub(1),
        _ => WAITING_TURNS,
    }
}

/// Before a write: when its bytes go.
#[inline]
pub(super) fn begin_write(sending: Sending) -> Sending {
    WRITTEN.begin_write(sending)
}

/// After it, with the stack still locked.
#[inline]
pub(super) fn end_write(stack: &SystemStack) {
    if stack.has_written() {
        WRITTEN.begin_wait(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_pays_as_long_as_some_turns_have_several_writes() {
        let mut turns = WAITING_TURNS;
        for _ in 1..WAITING_TURNS {
            turns = after_turn(turns, 1);
        }
        assert_eq!(turns, 1);
        turns = after_turn(turns, 2);
        assert_eq!(turns, WAITING_TURNS);
        for _ in 0..=WAITING_TURNS {
            turns = after_turn(turns, 1);
        }
        assert_eq!(turns, 0);
        assert_eq!(after_turn(turns, 3), WAITING_TURNS);
    }

    /// Two cores: one ends its turn between the other's begin of a write and its bytes.
    #[test]
    fn bytes_that_wait_are_not_forgotten_with_another_cores_turn() {
        let written = Written::new();
        assert_eq!(written.begin_write(Sending::Later), Sending::Later);
        assert!(written.has_turn());
        assert!(!written.end_turn(), "nothing is queued yet");
        written.begin_wait(Instant::from_nanos(5));
        assert!(written.has_turn(), "the writer's next call sends them");
        assert!(written.end_turn());
        written.end_wait();
        assert!(!written.has_turn() && written.due().is_none());
    }
}
