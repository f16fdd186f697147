//! How long to spin before a halt, chosen at run time from recent waits.
//!
//! A core with nothing to do may look for work a little longer before it halts:
//! a wake-up caught so saves the halt's exit, the host's scheduling and the way
//! back (the third talk's 10-15 us a round trip). A wake-up missed costs the
//! spin. TORO spins 50 us, always; here the length comes from the distribution
//! of the waits themselves, as the third talk asked for.
//!
//! [`Spin`] keeps a histogram of waits by powers of two. Every [`WINDOW`] waits
//! it asks, for each length T up to the limit, what T would have been worth:
//! each wait `w < T` saves [`Limits::wake_worth_ns`] and costs `w`, each other
//! one costs `T`. The best T wins, 0 if none is worth more than it costs. Then
//! the histogram is halved, so that the past fades. A wait of [`LONG_NS`] or
//! more ends the window at once: an idle machine stops spinning after a few.
//!
//! Cost: [`Spin::record`] is a shift, a bit scan, an increment and a countdown;
//! the choice (about 200 instructions, no division) is made once a window. The
//! state is one core's own and needs no lock.

/// Waits between two choices.
pub const WINDOW: u8 = 64;

/// A wait of this length ends the window early (16.8 ms).
pub const LONG_NS: u64 = 1 << 24;

/// TORO's spin before a halt, the default limit.
pub const DEFAULT_MAX_NS: u32 = 50_000;

/// What a caught wake-up is worth by default: the round trip that halting adds
/// in the third talk, 10 to 15 us, and the host's work for it.
pub const DEFAULT_WAKE_WORTH_NS: u32 = 20_000;

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
    /// Nanoseconds of spinning that one halt avoided is worth. No spin longer
    /// than the power of two above this is ever chosen.
    pub wake_worth_ns: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_ns: DEFAULT_MAX_NS,
            wake_worth_ns: DEFAULT_WAKE_WORTH_NS,
        }
    }
}

/// How a wait ended, with its length from the first look to the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Work was found while spinning.
    Caught(u64),
    /// The core halted. The length includes the way back from the halt, about
    /// [`Limits::wake_worth_ns`], which is taken off.
    Halted(u64),
}

/// One core's choice of spin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spin {
    limits: Limits,
    length_ns: u32,
    left: u8,
    counts: [u16; BUCKETS],
}

impl Spin {
    /// No spin until a window of waits has shown that it pays.
    pub const fn new(limits: Limits) -> Self {
        Self {
            limits,
            length_ns: 0,
            left: WINDOW,
            counts: [0; BUCKETS],
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

    /// Takes note of a wait.
    #[inline]
    pub fn record(&mut self, wait: Wait) {
        let wait_ns = match wait {
            Wait::Caught(ns) => ns,
            Wait::Halted(ns) => ns.saturating_sub(u64::from(self.limits.wake_worth_ns)),
        };
        let bucket = (u64::BITS - (wait_ns >> UNIT_SHIFT).leading_zeros()) as usize;
        self.counts[bucket.min(BUCKETS - 1)] += 1;
        self.left -= 1;
        if self.left == 0 || wait_ns >= LONG_NS {
            self.choose();
        }
    }

    /// Picks the best length for the window's histogram and lets it fade.
    #[cold]
    fn choose(&mut self) {
        self.length_ns = best_length(&self.counts, self.limits);
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

/// The length with the highest worth, 0 if none has any.
fn best_length(counts: &[u16; BUCKETS], limits: Limits) -> u32 {
    let mut missed: i64 = counts.iter().map(|&count| i64::from(count)).sum();
    let (mut caught_worth, mut best_worth, mut best) = (0i64, 0i64, 0u32);
    for (bucket, &count) in counts[..BUCKETS - 1].iter().enumerate() {
        let length = 1i64 << (UNIT_SHIFT + bucket as u32);
        if length > i64::from(limits.max_ns) {
            break;
        }
        // A wait in this bucket costs three quarters of its upper bound.
        let cost = length - (length >> 2);
        caught_worth += i64::from(count) * (i64::from(limits.wake_worth_ns) - cost);
        missed -= i64::from(count);
        let worth = caught_worth - (missed << (UNIT_SHIFT + bucket as u32));
        if worth > best_worth {
            (best_worth, best) = (worth, length as u32);
        }
    }
    best
}

#[cfg(test)]
mod tests;
