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

/// A machine's diagnosis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// Where the CPU time went.
    pub breakdown: Breakdown,
    /// Causes, the largest first.
    pub findings: Vec<Finding>,
}
