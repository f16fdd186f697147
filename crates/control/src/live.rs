//! What happened between two samples of a machine's statistics: the live view
//! of `tare stats --watch`, and the data of the charts of R.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::stats::{DeviceStats, Stats};

/// A disk between two samples. Ratios are 0 when nothing was completed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DiskInterval {
    /// `disk0` and so on, as `tare set` names it.
    pub disk: String,
    /// Begin, s since the machine's start.
    pub from_s: f64,
    /// End, s since the machine's start.
    pub to_s: f64,
    /// Requests completed.
    pub completions: u64,
    /// The same per second.
    pub iops: f64,
    /// Requests in flight on the queue of each as it was completed, itself
    /// included: the mean.
    pub in_flight: f64,
    /// R: deliveries that the rule asked for, per completion.
    pub r: f64,
    /// Interrupts sent, per completion: R, less what the driver did not want or
    /// one interrupt told of several.
    pub interrupts_per_io: f64,
}

/// Completions by the R of their epoch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RatioShare {
    /// The ratio chosen.
    pub r: f64,
    /// Completions in epochs that had it, of those that have ended.
    pub completions: u64,
}

/// The disks of a machine, by name.
pub fn disks(stats: &Stats) -> impl Iterator<Item = (String, &DeviceStats)> {
    let disks = stats.devices.iter().filter(|device| device.kind == "blk");
    (0..)
        .zip(disks)
        .map(|(n, disk): (usize, _)| (format!("disk{n}"), disk))
}

/// By how much each counter grew between two samples; what did not is left out.
pub fn grown(
    before: &BTreeMap<String, u64>,
    after: &BTreeMap<String, u64>,
) -> BTreeMap<String, u64> {
    let since = |(name, count): (&String, &u64)| {
        let grown = count.saturating_sub(before.get(name).copied().unwrap_or(0));
        (grown > 0).then(|| (name.clone(), grown))
    };
    after.iter().filter_map(since).collect()
}

/// What each disk did between two samples.
pub fn intervals(before: &Stats, after: &Stats) -> Vec<DiskInterval> {
    let pairs = disks(before).zip(disks(after));
    pairs
        .map(|((disk, old), (_, new))| {
            let counts = grown(&old.counters, &new.counters);
            let count = |name: &str| counts.get(name).copied().unwrap_or(0);
            let completions = count("coalesce_completions");
            let per_io = |amount: u64| amount as f64 / completions.max(1) as f64;
            let (from_s, to_s) = (seconds(before.uptime_ns), seconds(after.uptime_ns));
            DiskInterval {
                disk,
                from_s,
                to_s,
                completions,
                iops: completions as f64 / (to_s - from_s).max(1e-9),
                in_flight: per_io(count("in_flight_sum")),
                r: per_io(count("coalesce_delivered") + count("coalesce_expiries")),
                interrupts_per_io: per_io(count("interrupts")),
            }
        })
        .collect()
}

/// R's distribution over the completions of a disk, greatest R first; since
/// `before`, or since the machine began.
pub fn distribution(before: Option<&DeviceStats>, after: &DeviceStats) -> Vec<RatioShare> {
    let old = before.map(slots).unwrap_or_default();
    let shares = slots(after)
        .into_iter()
        .rev()
        .map(|(permille, completions)| {
            let before = old.get(&permille).copied().unwrap_or(0);
            RatioShare {
                r: f64::from(permille) / 1000.0,
                completions: completions.saturating_sub(before),
            }
        });
    shares.filter(|share| share.completions > 0).collect()
}

/// Completions by R in thousandths, from counters such as
/// `coalesce_r0250_completions`.
fn slots(disk: &DeviceStats) -> BTreeMap<u16, u64> {
    let slot = |(name, completions): (&String, &u64)| {
        let name = name.strip_prefix("coalesce_r")?;
        let permille = name.strip_suffix("_completions")?.parse().ok()?;
        Some((permille, *completions))
    };
    disk.counters.iter().filter_map(slot).collect()
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::MemoryStats;

    fn sample(uptime_ns: u64, counters: &[(&str, u64)]) -> Stats {
        let device = |kind: &str, counters: &[(&str, u64)]| DeviceStats {
            kind: kind.to_owned(),
            address: String::new(),
            counters: counters
                .iter()
                .map(|(n, v)| ((*n).to_owned(), *v))
                .collect(),
        };
        let stats = serde_json::json!({
            "name": "db",
            "pid": 1,
            "kvm": "emulated",
            "uptime_ns": uptime_ns,
            "vcpus": [],
            "devices": [device("net", &[]), device("blk", counters)],
            "threads": [],
            "memory": MemoryStats::default(),
        });
        serde_json::from_value(stats).expect("statistics")
    }

    #[test]
    fn an_interval_is_what_grew_between_two_samples() {
        let before = sample(
            1_000_000_000,
            &[("coalesce_completions", 100), ("interrupts", 100)],
        );
        let after = sample(
            3_000_000_000,
            &[
                ("coalesce_completions", 4_100),
                ("coalesce_delivered", 990),
                ("coalesce_expiries", 10),
                ("in_flight_sum", 128_000),
                ("interrupts", 900),
            ],
        );
        let expected = DiskInterval {
            disk: "disk0".to_owned(),
            from_s: 1.0,
            to_s: 3.0,
            completions: 4_000,
            iops: 2_000.0,
            in_flight: 32.0,
            r: 0.25,
            interrupts_per_io: 0.2,
        };
        assert_eq!(intervals(&before, &after), [expected]);
    }

    #[test]
    fn an_idle_disk_has_no_ratio_and_divides_by_nothing() {
        let same = sample(5, &[("coalesce_completions", 7)]);
        let idle = intervals(&same, &same);
        assert_eq!(
            (idle[0].iops, idle[0].r, idle[0].in_flight),
            (0.0, 0.0, 0.0)
        );
    }

    #[test]
    fn the_distribution_is_since_the_first_sample() {
        let slots = |quarter, one| {
            let names = [
                ("coalesce_r0250_completions", quarter),
                ("coalesce_r1000_completions", one),
                ("coalesce_completions", 9),
            ];
            sample(0, &names)
        };
        let (before, after) = (slots(10, 5), slots(25, 5));
        let (before, after) = (&before.devices[1], &after.devices[1]);
        let share = |r, completions| RatioShare { r, completions };
        assert_eq!(distribution(Some(before), after), [share(0.25, 15)]);
        let all = [share(1.0, 5), share(0.25, 25)];
        assert_eq!(distribution(None, after), all);
    }
}
