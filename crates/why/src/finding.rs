//! What a diagnosis says.

use serde::{Deserialize, Serialize};

use crate::rate::Rate;
use crate::remedy::Remedy;
use crate::text::{interval, known_percent, percent};

/// What burns CPU time, or keeps a machine from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The guest's own code: what the machine is for.
    Guest,
    /// The guest never executes HLT, without interrupts or exits: it computes or spins.
    GuestSpins,
    /// KVM polls for wake-ups that come too late.
    PollingLoses,
    /// KVM polls, and sees most wake-ups.
    Polling,
    /// The HPET's interrupts.
    Hpet,
    /// The PIT's interrupts.
    Pit,
    /// The clock chip's interrupts.
    Rtc,
    /// The guest's own timer, at an even rate.
    PeriodicTick,
    /// vCPUs that interrupt each other.
    IpiStorm,
    /// vCPUs that interrupt themselves.
    SelfIpis,
    /// A device's interrupts.
    DeviceInterrupts,
    /// Exits of one kind.
    Exits,
    /// Threads of the VMM other than vCPUs.
    EmulatorThread,
    /// Threads of the kernel that work for the machine.
    KernelThreads,
    /// Processes that work for the machine: passt, vhost-user daemons.
    Helpers,
    /// Runnable vCPUs wait for a CPU that others use.
    Steal,
    /// A control group's CPU quota stops vCPUs.
    Throttled,
    /// vCPUs of this machine share a CPU while others are not allowed to them.
    PinnedTogether,
    /// Not visible without BPF.
    Unknown,
}

/// How a share is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// By the scheduler's clock.
    Measured,
    /// Counted, times a price; or divided among several causes.
    Estimated,
}

/// One cause in one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// What it is.
    pub cause: Cause,
    /// Share of one core.
    pub share: f64,
    /// Between which shares the counts behind it leave it; `None` if that is not known.
    #[serde(default)]
    pub share_interval: Option<[f64; 2]>,
    /// How the share is known.
    pub basis: Basis,
    /// What happens, with its rate.
    pub what: String,
    /// That rate, where it is of events that were counted.
    #[serde(default)]
    pub rate: Option<Rate>,
    /// Counts, rates and names behind it.
    pub evidence: Vec<String>,
    /// Which parts of the breakdown it explains.
    pub parts: Breakdown,
    /// What to do about it; empty where there is nothing to do.
    pub remedies: Vec<Remedy>,
    /// The remedies as text, once they are rendered.
    pub remedy: String,
}

impl Finding {
    /// Says so if its share may be below the least that is worth a sentence.
    pub(crate) fn doubt(&mut self, least: f64) {
        let low = self.share_interval.map(|[low, _]| low);
        if low.is_some_and(|low| low < least && self.share >= least) {
            self.evidence.push(format!(
                "it may be chance: its share may be below {}",
                percent(least)
            ));
        }
    }

    /// What happens and how much it takes, without a full stop.
    pub fn headline(&self) -> String {
        let about = match self.basis {
            Basis::Measured => "",
            Basis::Estimated => "about ",
        };
        let lost = match self.cause {
            Cause::Steal | Cause::PinnedTogether | Cause::Throttled => " lost waiting",
            _ => "",
        };
        let share = known_percent(self.share, self.share_interval);
        let interval = interval(self.share, self.share_interval);
        format!("{}, {about}{share} of a core{lost}{interval}", self.what)
    }

    /// The headline and what to do, without a full stop.
    pub fn sentence(&self) -> String {
        if self.remedy.is_empty() {
            return self.headline();
        }
        format!("{}: {}", self.headline(), self.remedy)
    }
}

impl Cause {
    /// Short name, for a column.
    pub const fn short(self) -> &'static str {
        match self {
            Self::Guest => "guest",
            Self::GuestSpins => "spins",
            Self::PollingLoses => "polling loses",
            Self::Polling => "polling",
            Self::Hpet => "HPET",
            Self::Pit => "PIT",
            Self::Rtc => "RTC",
            Self::PeriodicTick => "guest timer",
            Self::IpiStorm => "IPIs",
            Self::SelfIpis => "self-IPIs",
            Self::DeviceInterrupts => "device IRQs",
            Self::Exits => "exits",
            Self::EmulatorThread => "VMM threads",
            Self::KernelThreads => "kernel threads",
            Self::Helpers => "helpers",
            Self::Throttled => "throttled",
            Self::Unknown => "needs BPF",
            Self::Steal => "steal",
            Self::PinnedTogether => "pinned together",
        }
    }
}

/// Where the CPU time of a machine went: shares of one core, which add up to
/// `total`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Breakdown {
    /// All threads of the machine.
    pub total: f64,
    /// The guest's own code.
    pub guest: f64,
    /// Polling while the guest was halted.
    pub polling: f64,
    /// Serving interrupts and the wake-ups that they cause; an estimate.
    pub interrupts: f64,
    /// Serving other exits; an estimate.
    pub exits: f64,
    /// The monitor's threads for I/O.
    pub io_threads: f64,
    /// The monitor's other threads.
    pub emulator_threads: f64,
    /// Threads of the kernel that work for the machine.
    pub kernel_threads: f64,
    /// Processes that work for the machine.
    #[serde(default)]
    pub helpers: f64,
    /// vCPUs' time that cannot be divided without BPF.
    #[serde(default)]
    pub unknown: f64,
}

/// A machine's diagnosis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// Where the CPU time went.
    pub breakdown: Breakdown,
    /// Its parts at their lowest and at their highest, each by itself; `None` if that is not known.
    #[serde(default)]
    pub breakdown_interval: Option<[Breakdown; 2]>,
    /// Causes, the largest first.
    pub findings: Vec<Finding>,
}

impl Breakdown {
    /// Its parts by name, without `total`.
    pub fn parts(&self) -> [(&'static str, f64); 9] {
        [
            ("guest", self.guest),
            ("interrupts", self.interrupts),
            ("exits", self.exits),
            ("halt polling", self.polling),
            ("VMM threads", self.emulator_threads),
            ("I/O threads", self.io_threads),
            ("kernel threads", self.kernel_threads),
            ("helper processes", self.helpers),
            ("unknown", self.unknown),
        ]
    }
}

impl Diagnosis {
    /// Whether the first cause is the largest one wherever in their intervals the shares are.
    pub fn first_is_largest(&self) -> bool {
        let Some((first, others)) = self.findings.split_first() else {
            return true;
        };
        let low = first.share_interval.map(|[low, _]| low);
        others.iter().all(|other| {
            let high = other.share_interval.map(|[_, high]| high);
            low.zip(high).is_some_and(|(low, high)| low >= high)
        })
    }

    /// The same with the remedies as text; `quote` makes one argument of a shell's line.
    #[must_use]
    pub fn rendered(mut self, quote: fn(&str) -> String) -> Self {
        for finding in &mut self.findings {
            let remedies = finding.remedies.iter();
            let lines: Vec<String> = remedies.map(|remedy| remedy.render(quote)).collect();
            finding.remedy = lines.join("; or ");
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_has_cause_rate_share_and_remedy() {
        let mut finding = Finding {
            cause: Cause::Hpet,
            share: 0.07,
            share_interval: Some([0.07, 0.07]),
            basis: Basis::Measured,
            what: "HPET interrupts, 1,000/s".to_owned(),
            rate: None,
            evidence: Vec::new(),
            parts: Breakdown::default(),
            remedies: vec![Remedy::qemu_with(&["-machine hpet=off"])],
            remedy: String::new(),
        };
        let headline = "HPET interrupts, 1,000/s, 7.0 % of a core";
        assert_eq!(finding.sentence(), headline);
        let diagnosis = Diagnosis {
            breakdown: Breakdown::default(),
            breakdown_interval: None,
            findings: vec![finding.clone()],
        };
        let rendered = diagnosis.rendered(str::to_owned).findings.remove(0);
        assert_eq!(
            rendered.sentence(),
            format!("{headline}: start QEMU with -machine hpet=off")
        );
        finding.basis = Basis::Estimated;
        assert!(finding.sentence().contains("about 7.0 % of a core"));
        finding.share_interval = Some([0.02, 0.12]);
        let headline = finding.headline();
        assert!(
            headline.ends_with("about 7 % of a core (2 to 12 %)"),
            "{headline}"
        );
    }

    #[test]
    fn the_first_cause_is_the_largest_if_no_interval_reaches_it() {
        let with = |share, interval| Finding {
            cause: Cause::Exits,
            share,
            share_interval: interval,
            basis: Basis::Estimated,
            what: String::new(),
            rate: None,
            evidence: Vec::new(),
            parts: Breakdown::default(),
            remedies: Vec::new(),
            remedy: String::new(),
        };
        let is_largest = |first, second| {
            let findings = vec![with(0.3, first), with(0.2, second)];
            Diagnosis {
                breakdown: Breakdown::default(),
                breakdown_interval: None,
                findings,
            }
            .first_is_largest()
        };
        assert!(is_largest(Some([0.25, 0.4]), Some([0.1, 0.25])));
        assert!(!is_largest(Some([0.2, 0.4]), Some([0.1, 0.25])));
        assert!(!is_largest(None, Some([0.1, 0.25])));
        assert!(!is_largest(Some([0.25, 0.4]), None));
    }
}
