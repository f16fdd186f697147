//! How long everything takes and how often it is done.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tare_lab::kit::Depth;

/// Requests per second of a burst, as in Toro.
pub(crate) const SOURCE_RATE: f64 = 100.0;
/// A machine carries a rate if it managed this much more in a closed loop.
const HEADROOM: f64 = 1.25;

/// The plan of one run. Times in ms.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// Name of the depth.
    pub(crate) depth: String,
    /// Image name or path.
    pub(crate) image: String,
    /// vCPUs of each machine.
    pub(crate) cpus: u8,
    /// Guest memory of each machine, MiB.
    pub(crate) memory_mib: u32,
    /// How often every arm has its turn.
    pub(crate) cycles: usize,
    /// Closed-loop load to find the rate, for each arm.
    pub(crate) calibrate_ms: u64,
    /// One burst.
    pub(crate) burst_ms: u64,
    /// Begin of a break that is drawn but not counted: connections end, the
    /// pollers' 200 ms run out.
    pub(crate) settle_ms: u64,
    /// The rest of a break.
    pub(crate) break_ms: u64,
    /// One request a second. One window of a second is as good as several: the machine is the
    /// unit, and there is one for each cycle.
    pub(crate) steady_ms: u64,
    /// One sample of CPU time.
    pub(crate) window_ms: u64,
    /// One sample of CPU time and exits in a break.
    pub(crate) idle_window_ms: u64,
    /// Starts for `first_byte_ms`.
    pub(crate) starts: usize,
    /// Batches in which instructions are counted, in each cycle.
    pub(crate) batches: usize,
    /// Requests, and connections, in a batch.
    pub(crate) batch: usize,
    /// Idle time of a machine with one vCPU, beside the breaks; zero leaves it out. 38 s
    /// without an exit bound the rate below 0.1 a second (Garwood: 3.69 / 38 s = 0.097).
    #[serde(default)]
    pub(crate) idle_ms: u64,
    /// Idle time of machines with two vCPUs at the same time; zero leaves them out.
    pub(crate) idle_2cpu_ms: u64,
    /// How many these are: one in earlier records.
    #[serde(default = "one")]
    pub(crate) idle_2cpu_machines: usize,
    /// Whether both run at the same time, which earlier records did not.
    #[serde(default)]
    pub(crate) idle_at_once: bool,
    /// Whether instructions are counted while these machines are idle, which earlier records
    /// did not.
    #[serde(default)]
    pub(crate) counted_meanwhile: bool,
    /// Whether servers are measured at full speed while these machines are idle, which earlier
    /// records did not.
    #[serde(default)]
    pub(crate) peers_meanwhile: bool,
    /// Idle windows begin when the machine has done nothing for this time; zero begins at
    /// once. What wakes a machine later than that counts against it.
    #[serde(default)]
    pub(crate) quiet_ms: u64,
    /// Time limit of a request.
    pub(crate) timeout_ms: u64,
    /// Connections at most.
    pub(crate) connections: usize,
    /// Requests that are counted in the translator for each arm of the comparison
    /// with Linux; zero leaves it out.
    pub(crate) compared: usize,
    /// Where the comparison's tailored kernel comes from.
    pub(crate) tailored: Tailored,
    /// Rounds in which Tare's image serves at full speed; earlier records have none.
    #[serde(default)]
    pub(crate) capacity_rounds: usize,
    /// In every this many of them the other servers do too.
    #[serde(default)]
    pub(crate) peers_every: usize,
    /// One window at full speed, or without requests.
    #[serde(default)]
    pub(crate) capacity_ms: u64,
    /// One burst of a server in such a round.
    #[serde(default)]
    pub(crate) peer_burst_ms: u64,
    /// Whether slow servers get 100 connections.
    #[serde(default)]
    pub(crate) with_slow: bool,
}

/// Where a tailored kernel comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Tailored {
    /// From the cache, if it is there.
    Kept,
    /// From the cache, or it is made, which takes minutes.
    Made,
}

impl Plan {
    /// The plan for a depth.
    pub(crate) fn new(depth: Depth, image: Option<String>) -> Self {
        let standard = Self {
            depth: depth.name().to_owned(),
            image: image.unwrap_or_else(|| "http".to_owned()),
            cpus: 1,
            memory_mib: 512,
            cycles: 6,
            calibrate_ms: 400,
            burst_ms: 1000,
            settle_ms: 300,
            break_ms: 800,
            steady_ms: 1000,
            window_ms: 200,
            idle_window_ms: 400,
            starts: 6,
            batches: 6,
            batch: 6,
            idle_ms: 38_000,
            idle_2cpu_ms: 38_000,
            idle_2cpu_machines: 6,
            idle_at_once: true,
            counted_meanwhile: true,
            peers_meanwhile: true,
            quiet_ms: 500,
            timeout_ms: 4000,
            connections: 16,
            compared: 40,
            tailored: Tailored::Kept,
            capacity_rounds: 6,
            peers_every: 3,
            capacity_ms: 200,
            peer_burst_ms: 400,
            with_slow: false,
        };
        match depth {
            Depth::Standard => standard,
            Depth::Quick => Self {
                cycles: 1,
                calibrate_ms: 250,
                burst_ms: 600,
                starts: 1,
                batches: 2,
                batch: 3,
                compared: 20,
                idle_ms: 0,
                idle_2cpu_ms: 0,
                capacity_rounds: 1,
                peers_every: 1,
                ..standard
            },
            Depth::Full => Self {
                cycles: 7,
                calibrate_ms: 3000,
                burst_ms: 60_000,
                settle_ms: 1000,
                break_ms: 59_000,
                steady_ms: 30_000,
                window_ms: 1000,
                idle_window_ms: 1000,
                starts: 15,
                batches: 6,
                batch: 20,
                compared: 200,
                tailored: Tailored::Made,
                idle_ms: 60_000,
                idle_2cpu_ms: 60_000,
                capacity_rounds: 7,
                peers_every: 1,
                capacity_ms: 3000,
                peer_burst_ms: 10_000,
                with_slow: true,
                ..standard
            },
        }
    }

    /// Time of one arm's turn without starting and counting.
    pub(crate) fn turn(&self) -> Duration {
        ms(self.burst_ms + self.settle_ms + self.break_ms + self.steady_ms)
    }

    /// The burst rate for machines of which the slowest carried `carried`
    /// requests per second: Toro's where that is carried, else half.
    pub(crate) fn rate(carried: f64) -> f64 {
        if carried >= SOURCE_RATE * HEADROOM {
            SOURCE_RATE
        } else {
            carried / 2.0
        }
    }
}

const fn one() -> usize {
    1
}

/// Milliseconds.
pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_source_or_half_of_what_is_carried() {
        for (carried, rate) in [(1000.0, 100.0), (125.0, 100.0), (110.0, 55.0), (40.0, 20.0)] {
            assert!((Plan::rate(carried) - rate).abs() < 1e-9, "{carried}");
        }
    }

    #[test]
    fn an_idle_time_without_exits_decides_against_the_goal() {
        let plan = Plan::new(Depth::Standard, None);
        for ms in [plan.idle_ms, plan.idle_2cpu_ms] {
            let window = [(0.0, ms as f64 / 1e3)];
            let figure = tare_lab::kit::rate("idle_exits_per_s.tare", "1/s", &window).unwrap();
            assert!(
                figure.ends().is_some_and(|(_, high)| high < 0.1),
                "{figure:?}"
            );
        }
        // And each machine gives a sample of everything: six are the fewest with an interval.
        assert_eq!((plan.cycles, plan.steady_ms), (6, 1000));
        assert_eq!(plan.idle_2cpu_machines, 6);
    }

    #[test]
    fn full_is_the_sequence_of_the_source() {
        let plan = Plan::new(Depth::Full, None);
        assert_eq!((plan.cycles, plan.burst_ms), (7, 60_000));
        assert_eq!(plan.settle_ms + plan.break_ms, 60_000);
    }
}
