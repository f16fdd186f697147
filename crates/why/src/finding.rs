//! What a diagnosis says.

use serde::{Deserialize, Serialize};

/// What burns CPU time, or keeps a machine from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The guest computes: what the machine is for.
    Guest,
    /// The guest never halts and asks for nothing: it computes or spins.
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
    /// A device's interrupts.
    DeviceInterrupts,
    /// Exits of one kind.
    Exits,
    /// Threads of the monitor other than vCPUs.
    EmulatorThread,
    /// vCPUs wait for a CPU that others use.
    Steal,
    /// vCPUs of this machine share a CPU while others are not allowed to them.
    PinnedTogether,
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
    /// How the share is known.
    pub basis: Basis,
    /// What happens, with its rate.
    pub what: String,
    /// Counts, rates and names behind it.
    pub evidence: Vec<String>,
    /// What to do about it; empty where there is nothing to do.
    pub remedy: String,
}

impl Finding {
    /// The finding and what to do, as one sentence without a full stop.
    pub fn sentence(&self) -> String {
        let about = match self.basis {
            Basis::Measured => "",
            Basis::Estimated => "about ",
        };
        let lost = match self.cause {
            Cause::Steal | Cause::PinnedTogether => " lost waiting",
            _ => "",
        };
        let share = crate::words::percent(self.share);
        let mut text = format!("{}, {about}{share} of a core{lost}", self.what);
        if !self.remedy.is_empty() {
            text.push_str(": ");
            text.push_str(&self.remedy);
        }
        text
    }
}

impl Cause {
    /// In a word or two, for a column.
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
            Self::DeviceInterrupts => "device IRQs",
            Self::Exits => "exits",
            Self::EmulatorThread => "emulator",
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
}

/// What stands for a machine's name in a remedy.
const PLACEHOLDERS: [&str; 2] = ["NAME", "DOMAIN"];

/// A machine's diagnosis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// Where the CPU time went.
    pub breakdown: Breakdown,
    /// Causes, the largest first.
    pub findings: Vec<Finding>,
}

impl Diagnosis {
    /// The same with a machine's name, as a shell takes it, in the remedies' commands.
    #[must_use]
    pub fn of_machine(mut self, word: &str) -> Self {
        for finding in &mut self.findings {
            for placeholder in PLACEHOLDERS {
                finding.remedy = finding.remedy.replace(placeholder, word);
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_says_cause_rate_share_and_remedy() {
        let mut finding = Finding {
            cause: Cause::Hpet,
            share: 0.07,
            basis: Basis::Measured,
            what: "HPET interrupts, 1,000/s".to_owned(),
            evidence: Vec::new(),
            remedy: "start QEMU with -machine hpet=off".to_owned(),
        };
        assert_eq!(
            finding.sentence(),
            "HPET interrupts, 1,000/s, 7.0 % of a core: start QEMU with -machine hpet=off"
        );
        finding.basis = Basis::Estimated;
        assert!(finding.sentence().contains("about 7.0 % of a core"));
    }
}
