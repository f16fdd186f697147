//! `Waiters`: who waits for one condition of a socket.

use alloc::vec::Vec;

/// What can be woken: a parked thread, or an observer of many sockets.
pub trait Wake {
    /// Makes it look again.
    fn wake(self);
    /// Whether both are the same.
    fn is(&self, other: &Self) -> bool;
    /// Whether the sockets may be those of programs, which share ports of TCP. Where that is known
    /// when an image is linked, others have no code for it.
    #[inline(always)]
    fn of_programs() -> bool {
        true
    }
}

/// Of a thread that drives a whole stack and looks at everything in turn.
#[derive(Clone, Copy, Debug)]
pub struct NoWake;

impl Wake for NoWake {
    fn wake(self) {}

    fn is(&self, _other: &Self) -> bool {
        true
    }
}

/// Usually empty or one.
#[derive(Debug)]
pub(crate) struct Waiters<W> {
    first: Option<W>,
    more: Vec<W>,
}

impl<W> Default for Waiters<W> {
    fn default() -> Self {
        Self {
            first: None,
            more: Vec::new(),
        }
    }
}

impl<W: Wake> Waiters<W> {
    /// Adds one, unless it is there.
    pub(crate) fn add(&mut self, waiter: W) {
        match &self.first {
            None => self.first = Some(waiter),
            Some(first) if first.is(&waiter) => {}
            Some(_) if self.more.iter().any(|other| other.is(&waiter)) => {}
            Some(_) => self.more.push(waiter),
        }
    }

    /// Takes one back that has waited long enough.
    pub(crate) fn remove(&mut self, waiter: &W) {
        if self.first.as_ref().is_some_and(|first| first.is(waiter)) {
            self.first = self.more.pop();
        } else {
            self.more.retain(|other| !other.is(waiter));
        }
    }

    /// Wakes all; each looks for itself.
    #[inline]
    pub(crate) fn wake_all(&mut self) {
        if self.first.is_some() {
            self.wake_some();
        }
    }

    fn wake_some(&mut self) {
        if let Some(first) = self.first.take() {
            first.wake();
            self.more.drain(..).for_each(W::wake);
        }
    }
}
