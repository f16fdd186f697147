//! What a simulated guest does and what its disk is like: plain data.

use tare_policy::coalesce::RequestKind;

/// One microsecond in nanoseconds.
pub const US: u64 = 1_000;
/// One millisecond in nanoseconds.
pub const MS: u64 = 1_000_000;

/// How long the disk works on a request.
#[derive(Clone, Copy, Debug)]
pub enum Service {
    /// The same for all.
    Constant(u64),
    /// Uniform between both.
    Uniform(u64, u64),
    /// Exponential with this mean.
    Exponential(u64),
    /// The first, and in this many of 1,000 requests the second.
    Bimodal(u64, u64, u64),
}

/// Whether requests wait for each other in the disk.
#[derive(Clone, Copy, Debug)]
pub enum Disk {
    /// Each request takes its own time, however many there are.
    Parallel,
    /// This many requests at a time; the others wait in order.
    Servers(usize),
}

/// When a thread submits its next request.
#[derive(Clone, Copy, Debug)]
pub enum Pace {
    /// As soon as the last one is delivered.
    Closed,
    /// That, after a pause of this mean (exponential).
    Think(u64),
    /// All threads of the stream wait for the last of them, and pause this long.
    Burst(u64),
    /// Closed, but only in the first half of each period.
    HalfOf(u64),
    /// Open: one request each this many nanoseconds (exponential), whatever is delivered.
    Arrivals(u64),
}

/// What the threads of a stream ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requests {
    /// Reads.
    Reads,
    /// Writes into a cache, never flushed.
    Writes,
    /// A write, then a flush, then the next write: a database's log.
    Commits,
}

impl Requests {
    /// The kind of a thread's request, by how many it has submitted before.
    pub(crate) const fn kind(self, number: u64) -> RequestKind {
        match self {
            Self::Reads => RequestKind::Read,
            Self::Commits if number % 2 == 1 => RequestKind::Flush,
            Self::Writes | Self::Commits => RequestKind::Write,
        }
    }
}

/// Threads that do the same.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// How many.
    pub threads: usize,
    /// What their requests take in the disk.
    pub service: Service,
    /// When each submits its next.
    pub pace: Pace,
    /// What they ask for.
    pub requests: Requests,
    /// The queue that they use.
    pub queue: usize,
}

/// What interrupts cost the guest, and what the host's I/O loop adds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Costs {
    /// The guest's CPU time for each interrupt.
    pub interrupt_ns: u64,
    /// The same for each completion.
    pub completion_ns: u64,
    /// Completions within this time are found together.
    pub turn_ns: u64,
}

/// A guest and its disk.
#[derive(Clone, Debug)]
pub struct Load {
    /// For people.
    pub name: String,
    /// Whether requests wait for each other.
    pub disk: Disk,
    /// What the guest does.
    pub streams: Vec<Stream>,
    /// What interrupts cost.
    pub costs: Costs,
}

impl Load {
    /// A guest whose interrupts cost nothing.
    pub fn new(name: impl Into<String>, disk: Disk, streams: Vec<Stream>) -> Self {
        Self {
            name: name.into(),
            disk,
            streams,
            costs: Costs::default(),
        }
    }

    /// With the CPU time of interrupts and completions, and a turn of the host's loop.
    pub(crate) fn with_costs(
        mut self,
        interrupt_ns: u64,
        completion_ns: u64,
        turn_ns: u64,
    ) -> Self {
        self.costs = Costs {
            interrupt_ns,
            completion_ns,
            turn_ns,
        };
        self
    }
}

/// Readers on queue 0 that submit again at once.
pub fn readers(threads: usize, service: Service) -> Stream {
    Stream {
        threads,
        service,
        pace: Pace::Closed,
        requests: Requests::Reads,
        queue: 0,
    }
}

/// One thread that writes and flushes, on queue 0.
pub fn committer(service: Service) -> Stream {
    Stream {
        requests: Requests::Commits,
        ..readers(1, service)
    }
}

/// Readers with another pace.
pub fn paced(threads: usize, service: Service, pace: Pace) -> Stream {
    Stream {
        pace,
        ..readers(threads, service)
    }
}

/// The same numbers for the same seed, everywhere (splitmix64).
pub(crate) fn hash(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Between 0 and 1, both excluded.
fn fraction(seed: u64) -> f64 {
    ((hash(seed) >> 12) as f64 + 0.5) / (1u64 << 52) as f64
}

/// Exponential with `mean_ns`.
pub(crate) fn exponential(mean_ns: u64, seed: u64) -> u64 {
    (-(fraction(seed).ln()) * mean_ns as f64) as u64
}

impl Service {
    /// The time of the request that `seed` stands for.
    pub fn time_ns(self, seed: u64) -> u64 {
        let time_ns = match self {
            Self::Constant(ns) => ns,
            Self::Uniform(least, most) => least + (fraction(seed) * (most - least) as f64) as u64,
            Self::Exponential(mean_ns) => exponential(mean_ns, seed),
            Self::Bimodal(usual, slow, permille) => {
                if hash(seed) % 1000 < permille {
                    slow
                } else {
                    usual
                }
            }
        };
        time_ns.max(1)
    }
}
