//! What an experiment has measured so far, in the form that most keep it in.

use std::collections::BTreeMap;

use tare_control::stats::{Kvm, Stats};

use crate::figure::Samples;
use crate::report::svg::{Distribution, percentiles};

/// Samples by metric and arm, plus KVM counters.
#[derive(Debug, Default)]
pub struct Data {
    /// What executes guests.
    pub kvm: Kvm,
    /// Figures that are medians.
    pub samples: Samples,
    /// Distributions by name and arm, a group for each machine that was booted.
    series: BTreeMap<(&'static str, &'static str), Vec<Vec<f64>>>,
    /// KVM's counters and the monitor's exits by arm, summed over vCPUs and turns.
    pub counted: BTreeMap<&'static str, Counted>,
    /// Arms that are unavailable here, with the reason.
    pub missing: Vec<String>,
    /// Samples and checks that failed, a sentence each.
    pub failures: Vec<String>,
}

/// Counters of one arm.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    /// By KVM's name, or by kind of exit to the monitor.
    pub(crate) counters: BTreeMap<String, u64>,
    /// KVM's histograms, log2 buckets of ns.
    pub histograms: BTreeMap<String, Vec<u64>>,
}

impl Data {
    /// Adds the samples of one machine to a distribution.
    pub fn extend(
        &mut self,
        name: &'static str,
        arm: &'static str,
        values: impl Iterator<Item = f64>,
    ) {
        let group = values.collect();
        self.series.entry((name, arm)).or_default().push(group);
    }

    /// All samples of a distribution; empty if there is none.
    pub fn of(&self, name: &'static str, arm: &'static str) -> Vec<f64> {
        self.groups(name, arm).concat()
    }

    /// The samples of each machine; empty if there is none.
    pub fn groups(&self, name: &'static str, arm: &'static str) -> &[Vec<f64>] {
        self.series.get(&(name, arm)).map_or(&[], Vec::as_slice)
    }

    /// The median of each machine's samples.
    pub fn medians(&self, name: &'static str, arm: &'static str) -> Vec<f64> {
        let groups = self.groups(name, arm).iter();
        let summaries = groups.filter_map(|group| tare_stats::summarize(group));
        summaries.map(|summary| summary.median).collect()
    }

    /// The distribution's chart, a series for each arm that has one, in us.
    pub fn percentiles(
        &self,
        name: &'static str,
        arms: &[&'static str],
        description: &str,
    ) -> String {
        percentiles(arms, &self.distributions(name, arms), description)
    }

    fn distributions(&self, name: &'static str, arms: &[&'static str]) -> Vec<Distribution> {
        let arms = arms.iter().enumerate();
        arms.filter_map(|(series, arm)| Distribution::of(series, &self.of(name, arm)))
            .collect()
    }

    /// Keeps once why an arm is unavailable.
    pub fn unavailable(&mut self, arm: &str, why: Option<String>) {
        if let Some(why) = why.filter(|_| !self.is_missing(arm)) {
            self.missing.push(format!("{arm}: {why}"));
        }
    }

    /// Whether an arm is known to be unavailable.
    pub(crate) fn is_missing(&self, arm: &str) -> bool {
        let of_arm = |why: &String| why.strip_prefix(arm).is_some_and(|it| it.starts_with(": "));
        self.missing.iter().any(of_arm)
    }

    /// Adds what was counted between two readings, or since the machine began.
    pub fn count(&mut self, arm: &'static str, from: Option<&Stats>, to: &Stats) {
        self.kvm = to.kvm;
        let counted = self.counted.entry(arm).or_default();
        for (index, vcpu) in to.vcpus.iter().enumerate() {
            let before = from.and_then(|stats| stats.vcpus.get(index));
            for (name, now) in vcpu.kvm.iter().chain(&vcpu.exits) {
                let then = before.and_then(|v| v.kvm.get(name).or_else(|| v.exits.get(name)));
                *counted.counters.entry(name.clone()).or_default() +=
                    now.saturating_sub(then.copied().unwrap_or(0));
            }
            for (name, now) in &vcpu.histograms {
                let then = before.and_then(|v| v.histograms.get(name));
                let sums = counted.histograms.entry(name.clone()).or_default();
                sums.resize(sums.len().max(now.len()), 0);
                for (bucket, count) in now.iter().enumerate() {
                    let then = then.and_then(|t| t.get(bucket)).copied().unwrap_or(0);
                    sums[bucket] += count.saturating_sub(then);
                }
            }
        }
    }

    /// What an arm counted under a name.
    pub fn counter(&self, arm: &str, name: &str) -> Option<f64> {
        let value = self.counted.get(arm)?.counters.get(name)?;
        Some(*value as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tare_machines::appliance::fake::stats;

    #[test]
    fn counters_are_differences_summed_over_vcpus_and_turns() {
        let mut data = Data::default();
        let (from, to) = (stats(Kvm::Emulated, 2, 10), stats(Kvm::Emulated, 2, 25));
        data.count("a", Some(&from), &to);
        data.count("a", None, &from);
        assert_eq!(data.counter("a", "halt_exits"), Some(2.0 * 25.0));
        assert_eq!(data.counter("b", "halt_exits"), None);
        assert_eq!(data.kvm, Kvm::Emulated);
    }

    #[test]
    fn distributions_keep_the_colours_of_their_arms() {
        let mut data = Data::default();
        data.extend("wake", "y", [3.0, 1.0].into_iter());
        let distributions = data.distributions("wake", &["x", "y"]);
        assert_eq!(distributions.len(), 1);
        assert_eq!(distributions[0].series, 1);
        assert_eq!(distributions[0].sorted_us, [1.0, 3.0]);
    }
}
