//! How long to spin before a halt, chosen at run time from recent waits.
//!
//! A core with nothing to do may look for work a little longer before it halts:
//! a wake-up caught so saves the halt's exit, the waker's interrupt, the host's
//! scheduling and the way back (10-15 us a round trip in KVM Message Passing 2015). A
//! wake-up missed costs the spin. TORO spins 50 us, always; here the length
//! comes from the distribution of the waits themselves, within a budget, as the
//! host chooses its own polling.
//!
//! [`Spin`] keeps a histogram of waits by powers of two. Every [`WINDOW`] waits
//! it asks, for each length T up to the limit, what T would have cost: each wait
//! `w < T` costs `w` and gives back what a way back from a halt takes, each other
//! one costs `T`. Of the lengths that give back what they cost, or exceed it by
//! no more than [`Limits::budget_pct`] of the time that passed, the one that
//! catches most wake-ups is taken; 0 if none catches any. Then the histogram is
//! halved, so that the past fades. A wait of `LONG_NS` or more ends the window
//! at once: an idle machine stops spinning after a few.
//!
//! What a way back takes is measured where it can be ([`Spin::note_way_back`]):
//! it differs by a factor of ten between a host that polls and one that does not.
//!
//! Cost: [`Spin::record`] is a shift, a bit scan, an increment and a countdown;
//! the choice (about 200 instructions, no division) is made once a window. The
//! state is one core's own and needs no lock.

/// Waits between two choices.
pub const WINDOW: u8 = 64;

/// A wait of this length ends the window early (16.8 ms).
pub(crate) const LONG_NS: u64 = 1 << 24;

/// The default limit, that of Linux's guests (`guest_halt_poll_ns`). TORO spins
/// 50 us, whatever it brings.
pub const DEFAULT_MAX_NS: u32 = 200_000;

/// What spinning may cost by default, in percent of a core.
pub const DEFAULT_BUDGET_PCT: u8 = 1;

/// What a caught wake-up is worth until a way back was measured: the round trip
/// that halting adds in KVM Message Passing 2015, 10 to 15 us, and the host's work for it.
pub(crate) const DEFAULT_WAKE_WORTH_NS: u32 = 20_000;

/// Longest way back that is believed (1 ms).
const WORTH_CAP_NS: u64 = 1 << 20;

/// Bucket `b` holds waits below `1024 << b` ns that no earlier bucket holds;
/// the last one holds everything longer.
const BUCKETS: usize = 12;
const UNIT_SHIFT: u32 = 10;

/// What bounds the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest spin. 0 switches spinning off. Lengths are powers of two times
    /// 1,024 ns, up to 1 ms.
    pub max_ns: u32,
    /// Percent of a core that spinning may cost beyond what it gives back, up to
    /// 100. 0: only lengths that give back what they cost.
    pub budget_pct: u8,
    /// Nanoseconds of spinning that one halt avoided is worth, until a way back
    /// has been measured.
    pub wake_worth_ns: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_ns: DEFAULT_MAX_NS,
            budget_pct: DEFAULT_BUDGET_PCT,
            wake_worth_ns: DEFAULT_WAKE_WORTH_NS,
        }
    }
}

/// How a wait ended, with its length from the first look to the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Work was found while spinning.
    Caught(u64),
    /// The core halted. The length includes the way back from the halt, which
    /// is taken off.
    Halted(u64),
}

/// One core's choice of spin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spin {
    limits: Limits,
    length_ns: u32,
    worth_ns: u32,
    left: u8,
    counts: [u16; BUCKETS],
    /// When the window began, once that is known.
    since_ns: Option<u64>,
    /// Time in which `counts` came about.
    elapsed_ns: u64,
}

impl Spin {
    /// No spin until a window of waits has shown that it pays.
    pub const fn new(limits: Limits) -> Self {
        Self {
            limits,
            length_ns: 0,
            worth_ns: limits.wake_worth_ns,
            left: WINDOW,
            counts: [0; BUCKETS],
            since_ns: None,
            elapsed_ns: 0,
        }
    }

    /// How long to spin before the next halt, in nanoseconds; 0: halt at once.
    #[inline]
    pub const fn length_ns(&self) -> u32 {
        self.length_ns
    }

    /// The limits that this was made with.
    pub const fn limits(&self) -> Limits {
        self.limits
    }

    /// Takes note of how long a wake-up took from the waker's interrupt to the
    /// work. Believed by an eighth, up to 1 ms.
    #[inline]
    pub fn note_way_back(&mut self, ns: u64) {
        let ns = ns.min(WORTH_CAP_NS) as u32;
        self.worth_ns = self.worth_ns - (self.worth_ns >> 3) + (ns >> 3);
    }

    /// Takes note of a wait that ended at `now_ns`.
    #[inline]
    pub fn record(&mut self, wait: Wait, now_ns: u64) {
        let wait_ns = match wait {
            Wait::Caught(ns) => ns,
            Wait::Halted(ns) => ns.saturating_sub(u64::from(self.worth_ns)),
        };
        let bucket = (u64::BITS - (wait_ns >> UNIT_SHIFT).leading_zeros()) as usize;
        self.counts[bucket.min(BUCKETS - 1)] += 1;
        self.left -= 1;
        if self.left == 0 || wait_ns >= LONG_NS {
            self.choose(wait_ns, now_ns);
        }
    }

    /// Picks the best length for the window's histogram and lets it fade.
    #[cold]
    fn choose(&mut self, wait_ns: u64, now_ns: u64) {
        // The first window began before its time was known.
        let since_ns = self.since_ns.unwrap_or(now_ns.saturating_sub(wait_ns));
        self.elapsed_ns = (self.elapsed_ns >> 1).saturating_add(now_ns.saturating_sub(since_ns));
        self.since_ns = Some(now_ns);
        self.length_ns = best_length(&self.counts, self.worth_ns, self.limits, self.elapsed_ns);
        for count in &mut self.counts {
            *count >>= 1;
        }
        self.left = WINDOW;
    }
}

impl Default for Spin {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

/// The shortest of the lengths that catch most wake-ups within the budget; 0 if
/// none catches any.
fn best_length(counts: &[u16; BUCKETS], worth_ns: u32, limits: Limits, elapsed_ns: u64) -> u32 {
    let allowance = allowance_ns(elapsed_ns, limits.budget_pct);
    let mut missed: i64 = counts.iter().map(|&count| i64::from(count)).sum();
    let (mut caught_cost, mut best) = (0i64, 0u32);
    for (bucket, &count) in counts[..BUCKETS - 1].iter().enumerate() {
        let length = 1i64 << (UNIT_SHIFT + bucket as u32);
        if length > i64::from(limits.max_ns) {
            break;
        }
        // A wait in this bucket costs three quarters of its upper bound.
        let cost = length - (length >> 2);
        caught_cost += i64::from(count) * (cost - i64::from(worth_ns));
        missed -= i64::from(count);
        let cost = caught_cost + (missed << (UNIT_SHIFT + bucket as u32));
        if count != 0 && cost <= allowance {
            best = length as u32;
        }
    }
    best
}

/// `percent` of a time, without a division: 41/4096 are 1.001 %.
fn allowance_ns(elapsed_ns: u64, percent: u8) -> i64 {
    let elapsed_ns = elapsed_ns.min(1 << 48);
    ((elapsed_ns * u64::from(percent.min(100)) * 41) >> 12) as i64
}

#[cfg(test)]
mod tests;
