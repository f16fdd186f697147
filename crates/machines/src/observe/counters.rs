//! What two readings of a machine's statistics say about the time between.

use std::collections::BTreeMap;

use tare_control::live;
use tare_control::stats::{Kvm, Stats};

/// KVM's counter of instructions that it executed in the guest's place.
const INSTRUCTIONS: &str = "insn_emulation";

/// Guest instructions so far; `None` where KVM does not execute them all, as in ring 3.
pub fn instructions(stats: &Stats) -> Option<f64> {
    if stats.kvm != Kvm::Emulated || stats.ring == Some(3) {
        return None;
    }
    let counts = stats.vcpus.iter().map(|v| v.kvm.get(INSTRUCTIONS).copied());
    counts.sum::<Option<u64>>().map(|sum| sum as f64)
}

/// Guest instructions between two readings.
pub fn instructions_between(from: &Stats, to: &Stats) -> Option<f64> {
    Some(instructions(to)? - instructions(from)?)
}

/// Exits, halts and injected interrupts of all vCPUs between two readings.
pub fn activity_between(from: &Stats, to: &Stats) -> f64 {
    let activity = |stats: &Stats| stats.vcpus.iter().map(|v| v.activity()).sum::<u64>();
    activity(to).saturating_sub(activity(from)) as f64
}

/// What rose between two readings, by KVM's name or kind of exit, summed over vCPUs; times
/// and sums of bytes are left out.
pub fn risen_between(from: &Stats, to: &Stats) -> BTreeMap<String, u64> {
    let mut risen: BTreeMap<String, u64> = BTreeMap::new();
    for (before, after) in from.vcpus.iter().zip(&to.vcpus) {
        let kvm = live::grown(&before.kvm, &after.kvm);
        for (name, more) in kvm
            .into_iter()
            .chain(live::grown(&before.exits, &after.exits))
        {
            *risen.entry(name).or_default() += more;
        }
    }
    risen.retain(|name, _| !name.ends_with("_ns"));
    risen
}

/// Seconds between two readings, by the monitor's clock.
pub fn seconds_between(from: &Stats, to: &Stats) -> f64 {
    to.uptime_ns.saturating_sub(from.uptime_ns) as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::appliance::fake::stats;

    #[test]
    fn differences_are_summed_over_vcpus() {
        let (from, to) = (stats(Kvm::Emulated, 2, 10), stats(Kvm::Emulated, 2, 25));
        assert_eq!(instructions_between(&from, &to), Some(2.0 * 15.0 * 1000.0));
        assert_eq!(activity_between(&from, &to), 2.0 * 15.0);
        assert_eq!(risen_between(&from, &to)["halt_exits"], 2 * 15);
        assert!(risen_between(&to, &to).is_empty());
    }

    #[test]
    fn hardware_counts_no_instructions() {
        assert_eq!(instructions(&stats(Kvm::Hardware, 1, 10)), None);
    }
}
