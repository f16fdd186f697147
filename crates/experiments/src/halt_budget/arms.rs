//! The arms: how a halted vCPU waits, and when it is woken.

/// The budget under test, in 0.01 % of a CPU.
pub(super) const BUDGET: u64 = 100;

/// How a halted vCPU waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Policy {
    Never,
    Kernel,
    Poll,
    Budget,
    Dedicated,
    /// As [`Policy::Kernel`], with the image in ring 3.
    Ring3,
}

use Policy::{Budget, Dedicated, Kernel, Never, Poll, Ring3};

impl Policy {
    pub(super) const ALL: [Self; 6] = [Never, Kernel, Poll, Budget, Dedicated, Ring3];

    /// Its name, what `tare run --halt` takes, and what it is.
    const fn facts(self) -> [&'static str; 3] {
        match self {
            Never => ["never", "never", "never: scheduled out at once"],
            Kernel => ["kernel", "kernel", "kernel: as the host's parameters say"],
            Poll => ["poll", "poll=200000", "poll: KVM polls for up to 200 µs"],
            Budget => [
                "budget",
                "budget=1",
                "budget: polling for at most 1 % of a CPU",
            ],
            Dedicated => [
                "dedicated",
                "dedicated",
                "dedicated: a CPU alone, halts that KVM takes no part in",
            ],
            Ring3 => ["ring3", "kernel", "ring3: as kernel, the image in ring 3"],
        }
    }

    pub(super) const fn name(self) -> &'static str {
        self.facts()[0]
    }

    pub(super) const fn halt(self) -> &'static str {
        self.facts()[1]
    }

    /// Processor ring of the image, in which counts compare with those of earlier runs.
    pub(super) const fn ring(self) -> &'static str {
        match self {
            Ring3 => "3",
            _ => "0",
        }
    }

    pub(super) const fn about(self) -> &'static str {
        self.facts()[2]
    }
}

/// When the vCPU is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Load {
    Idle,
    Every100us,
    Every1ms,
    Bursts,
    Sleep10us,
}

use Load::{Bursts, Every1ms, Every100us, Idle, Sleep10us};

impl Load {
    pub(super) const ALL: [Self; 5] = [Idle, Every100us, Every1ms, Bursts, Sleep10us];

    /// Its name, words for the image, and what it is.
    const fn facts(self) -> [&'static str; 3] {
        match self {
            Idle => ["idle", "load=idle", "idle: nothing happens"],
            Every100us => [
                "every100us",
                "load=every gap_us=100",
                "an interrupt every 100 µs",
            ],
            Every1ms => [
                "every1ms",
                "load=every gap_us=1000",
                "an interrupt every ms",
            ],
            Bursts => [
                "bursts",
                "load=bursts gap_us=100 burst=8 pause_us=100000",
                "8 interrupts 100 µs apart, then 100 ms of nothing",
            ],
            Sleep10us => [
                "sleep10us",
                "load=sleep gap_us=10",
                "a loop of sleeps of 10 µs by the timer",
            ],
        }
    }

    pub(super) const fn name(self) -> &'static str {
        self.facts()[0]
    }

    pub(super) const fn text(self) -> &'static str {
        self.facts()[1]
    }

    pub(super) const fn about(self) -> &'static str {
        self.facts()[2]
    }

    /// Those with a sender have a vCPU for it.
    pub(super) const fn cpus(self) -> u8 {
        match self {
            Idle | Sleep10us => 1,
            _ => 2,
        }
    }

    /// The figures' part behind the metric.
    pub(super) fn of(self, policy: Policy) -> String {
        format!("{}.{}", policy.name(), self.name())
    }
}
