//! How much may pass in a second: token buckets, for disks and networks.
//!
//! A bucket fills at the limit's rate and holds a tenth of a second's worth. Work begins
//! while there is something in it, and takes its whole size out at once: what is larger
//! than the bucket makes a debt, and the next piece waits until that is paid. So one piece
//! of any size passes, and the rate holds over time. The size need not be known before
//! work begins.
//!
//! ```
//! use tare_policy::limit::TokenBucket;
//!
//! let mut bucket = TokenBucket::new(1_000); // a second
//! let now_ns = 5_000_000_000;
//! assert!(bucket.is_ready(now_ns));
//! bucket.take(now_ns, 150); // 100 were in it
//! assert!(!bucket.is_ready(now_ns));
//! assert_eq!(bucket.ready_at_ns(), now_ns + 50_000_000);
//! ```
//!
//! The state is one time, when the bucket will be full (the generic cell rate algorithm,
//! ITU-T I.371): a look is a comparison, and a take a division. No timer: the caller looks
//! again at [`TokenBucket::ready_at_ns`].

#[cfg(test)]
mod tests;

/// The bucket holds what passes in this time.
const BURST_NS: u64 = 100_000_000;
const SECOND_NS: u128 = 1_000_000_000;

/// A limit on one quantity, such as requests or bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenBucket {
    /// Units a second; 0: no limit.
    per_second: u64,
    /// When the bucket is full again.
    full_at_ns: u64,
}

impl TokenBucket {
    /// A full bucket for `per_second` units; 0: no limit.
    pub const fn new(per_second: u64) -> Self {
        Self {
            per_second,
            full_at_ns: 0,
        }
    }

    /// Units a second; 0: no limit.
    pub const fn per_second(&self) -> u64 {
        self.per_second
    }

    /// Changes the limit. A debt stays the same number of units.
    pub(crate) fn set_per_second(&mut self, now_ns: u64, per_second: u64) {
        let missing_ns = self.full_at_ns.saturating_sub(now_ns);
        let missing = u128::from(missing_ns) * u128::from(self.per_second) / SECOND_NS;
        *self = Self::new(per_second);
        self.take(now_ns, u64::try_from(missing).unwrap_or(u64::MAX));
    }

    /// Whether work may begin now.
    pub const fn is_ready(&self, now_ns: u64) -> bool {
        self.ready_at_ns() <= now_ns
    }

    /// From when on work may begin; 0: at once.
    pub const fn ready_at_ns(&self) -> u64 {
        self.full_at_ns.saturating_sub(BURST_NS)
    }

    /// Takes out what `units` begin now, more than there are if need be.
    pub fn take(&mut self, now_ns: u64, units: u64) {
        if self.per_second == 0 {
            return;
        }
        // Rounded up: the rate is never exceeded.
        let cost_ns = (u128::from(units) * SECOND_NS).div_ceil(u128::from(self.per_second));
        let cost_ns = u64::try_from(cost_ns).unwrap_or(u64::MAX);
        self.full_at_ns = self.full_at_ns.max(now_ns).saturating_add(cost_ns);
    }
}

/// Limits of a disk; 0: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskLimits {
    /// Requests a second, of any kind.
    pub iops: u64,
    /// Bytes read and written a second.
    pub bytes_per_s: u64,
}

impl DiskLimits {
    /// Full buckets.
    pub const fn buckets(self) -> Buckets {
        Buckets::new(self.iops, self.bytes_per_s)
    }
}

/// Limits of a network, for each direction; 0: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetLimits {
    /// Frames a second.
    pub frames_per_s: u64,
    /// Bytes of frames a second, with their Ethernet headers.
    pub bytes_per_s: u64,
}

impl NetLimits {
    /// Whether anything is limited.
    pub const fn any(self) -> bool {
        self.frames_per_s > 0 || self.bytes_per_s > 0
    }

    /// Full buckets for one direction.
    pub const fn buckets(self) -> Buckets {
        Buckets::new(self.frames_per_s, self.bytes_per_s)
    }
}

/// The buckets of a disk, or of one direction of a network: pieces (requests, frames) and
/// their bytes. A piece begins when both have something in them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Buckets {
    pieces: TokenBucket,
    bytes: TokenBucket,
}

impl Buckets {
    /// Full buckets for pieces and bytes a second; 0: no limit.
    pub const fn new(pieces: u64, bytes: u64) -> Self {
        Self {
            pieces: TokenBucket::new(pieces),
            bytes: TokenBucket::new(bytes),
        }
    }

    /// Changes the limits. Debts stay.
    pub fn set(&mut self, now_ns: u64, pieces: u64, bytes: u64) {
        self.pieces.set_per_second(now_ns, pieces);
        self.bytes.set_per_second(now_ns, bytes);
    }

    /// Whether a piece may begin now.
    pub const fn is_ready(&self, now_ns: u64) -> bool {
        self.pieces.is_ready(now_ns) && self.bytes.is_ready(now_ns)
    }

    /// From when on a piece may begin; 0: at once.
    pub fn ready_at_ns(&self) -> u64 {
        self.pieces.ready_at_ns().max(self.bytes.ready_at_ns())
    }

    /// A piece of `bytes` bytes begins.
    pub fn take(&mut self, now_ns: u64, bytes: u64) {
        self.pieces.take(now_ns, 1);
        self.bytes.take(now_ns, bytes);
    }
}
