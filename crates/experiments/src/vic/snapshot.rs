//! What is read at the edges of a run, beside what the guest says.

use std::collections::BTreeMap;

use tare_control::live::{self, DiskInterval, RatioShare};
use tare_control::stats::Stats;
use tare_lab::kit::RunError;
use tare_machines::appliance::Guest;
use tare_machines::observe::CpuReading;

use super::sample::Outside;

/// What is read at an edge of a run.
pub(super) struct Reading {
    cpu: CpuReading,
    stats: Option<Stats>,
}

impl Reading {
    pub(super) fn of(guest: &mut dyn Guest) -> Result<Self, RunError> {
        let stats = guest.stats()?;
        Ok(Self {
            cpu: guest.cpu()?,
            stats,
        })
    }

    /// In ring 3 KVM executes next to none of them.
    fn instructions(&self) -> Option<u64> {
        let stats = self.stats.as_ref().filter(|stats| stats.ring != Some(3))?;
        let vcpus = stats.vcpus.iter();
        let counts = vcpus.filter_map(|vcpu| vcpu.kvm.get("insn_emulation"));
        Some(counts.sum())
    }
}

/// The edges of a run.
#[derive(Default)]
pub(super) struct Snapshots {
    pub(super) begin: Option<Reading>,
    pub(super) last: Option<Reading>,
}

impl Snapshots {
    pub(super) fn outside(&self) -> Outside {
        let (Some(begin), Some(end)) = (&self.begin, &self.last) else {
            return Outside::default();
        };
        let instructions = begin.instructions().zip(end.instructions());
        let instructions = instructions.map(|(then, now)| now.saturating_sub(then));
        Outside {
            cpu: Some(end.cpu.since(&begin.cpu)),
            instructions: instructions.filter(|count| *count > 0),
            disk: self.intervals().into_iter().next(),
            ..Outside::default()
        }
    }

    fn stats(&self) -> Option<(&Stats, &Stats)> {
        let (begin, end) = (self.begin.as_ref()?, self.last.as_ref()?);
        begin.stats.as_ref().zip(end.stats.as_ref())
    }

    pub(super) fn intervals(&self) -> Vec<DiskInterval> {
        let intervals = self.stats().map(|(begin, end)| live::intervals(begin, end));
        let busy = intervals.into_iter().flatten();
        busy.filter(|interval| interval.completions > 0).collect()
    }

    /// What the disk counted, of what grew: why completions were delivered, and
    /// what ended the wait of the others. Times are not counts.
    pub(super) fn counters(&self) -> BTreeMap<String, u64> {
        let Some((begin, end)) = self.stats() else {
            return BTreeMap::new();
        };
        let pairs = live::disks(begin).zip(live::disks(end)).take(1);
        let grown =
            pairs.flat_map(|((_, old), (_, new))| live::grown(&old.counters, &new.counters));
        grown.filter(|(name, _)| !name.ends_with("_ns")).collect()
    }

    /// R's distribution meanwhile, of epochs that have ended.
    pub(super) fn distribution(&self) -> Option<Vec<RatioShare>> {
        let (begin, end) = self.stats()?;
        let (_, before) = live::disks(begin).next()?;
        let (_, after) = live::disks(end).next()?;
        Some(live::distribution(Some(before), after))
    }
}
