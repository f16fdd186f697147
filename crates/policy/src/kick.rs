//! When a vCPU is worth an IPI (kick) to make it look for completions.
//!
//! The second talk's rule (`SYSTEMS.md` part 1): a completion that is handled on
//! another CPU than the vCPU's needs a kick to be seen; it is sent only if more
//! than 100 us have passed since the last one, and otherwise left pending, for
//! the vCPU to find at its next exit.
//!
//! Added to the talk's rule: a vCPU that makes no exit would leave it pending
//! forever, so the end of the window is a [deadline](Coalescer::deadline) at
//! which the kick is sent; and a halted vCPU, which looks at nothing, is woken
//! at once. One [`Coalescer`] belongs to one vCPU and is used from one thread,
//! or under the lock that guards what is pending.

/// The talk's window.
pub const WINDOW_NS: u64 = 100_000;

/// What the vCPU does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// It runs guest code, and will look when it exits.
    Running,
    /// It is halted, and will look when it is woken.
    Halted,
}

/// What to do about a vCPU.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kick {
    /// Kick it now.
    Send,
    /// Leave it alone.
    Wait,
}

/// What was decided so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Times that something was to be seen.
    pub requests: u64,
    /// Kicks that were sent at once.
    pub sent: u64,
    /// Kicks that were sent at the end of the window.
    pub expired: u64,
    /// Requests that were left pending.
    pub deferred: u64,
    /// Times that the vCPU looked by itself before the window's end.
    pub saved: u64,
}

/// Decides about the kicks of one vCPU.
#[derive(Clone, Debug)]
pub struct Coalescer {
    window_ns: u64,
    /// Before this time no kick is sent to a running vCPU.
    window_end_ns: u64,
    pending: Pending,
    counters: Counters,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pending {
    Nothing,
    Something,
}

impl Coalescer {
    /// A vCPU that was never kicked; 0 sends every kick at once.
    pub const fn new(window_ns: u64) -> Self {
        Self {
            window_ns,
            window_end_ns: 0,
            pending: Pending::Nothing,
            counters: Counters {
                requests: 0,
                sent: 0,
                expired: 0,
                deferred: 0,
                saved: 0,
            },
        }
    }

    /// The vCPU has something to look at.
    pub fn request(&mut self, now_ns: u64, target: Target) -> Kick {
        self.counters.requests += 1;
        if target == Target::Running && now_ns < self.window_end_ns {
            self.pending = Pending::Something;
            self.counters.deferred += 1;
            return Kick::Wait;
        }
        self.counters.sent += 1;
        self.send(now_ns)
    }

    /// When a pending kick must be sent, if there is one.
    pub const fn deadline(&self) -> Option<u64> {
        match self.pending {
            Pending::Nothing => None,
            Pending::Something => Some(self.window_end_ns),
        }
    }

    /// The caller's timer fired, or it looks in passing: `Send` when a kick is
    /// pending and the window is over.
    pub fn expired(&mut self, now_ns: u64) -> Kick {
        if self.pending == Pending::Nothing || now_ns < self.window_end_ns {
            return Kick::Wait;
        }
        self.counters.expired += 1;
        self.send(now_ns)
    }

    /// The vCPU looked (it exited for some reason): nothing is pending.
    pub fn looked(&mut self) {
        if self.pending == Pending::Something {
            self.counters.saved += 1;
        }
        self.pending = Pending::Nothing;
    }

    /// The window in force.
    pub const fn window_ns(&self) -> u64 {
        self.window_ns
    }

    /// Changes the window, from the next kick on; a pending one keeps its
    /// deadline.
    pub const fn set_window_ns(&mut self, window_ns: u64) {
        self.window_ns = window_ns;
    }

    /// What was decided so far.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    fn send(&mut self, now_ns: u64) -> Kick {
        self.pending = Pending::Nothing;
        self.window_end_ns = now_ns.saturating_add(self.window_ns);
        Kick::Send
    }
}

#[cfg(test)]
mod tests;
