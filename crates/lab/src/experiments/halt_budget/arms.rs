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
}

impl Policy {
    pub(super) const ALL: [Self; 5] = [
        Self::Never,
        Self::Kernel,
        Self::Poll,
        Self::Budget,
        Self::Dedicated,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Kernel => "kernel",
            Self::Poll => "poll",
            Self::Budget => "budget",
            Self::Dedicated => "dedicated",
        }
    }

    /// As `tare run --halt` takes it.
    pub(super) const fn halt(self) -> &'static str {
        match self {
            Self::Poll => "poll=200000",
            Self::Budget => "budget=1",
            other => other.name(),
        }
    }

    pub(super) const fn about(self) -> &'static str {
        match self {
            Self::Never => "never: scheduled out at once",
            Self::Kernel => "kernel: as the host's parameters say",
            Self::Poll => "poll: KVM polls for up to 200 µs",
            Self::Budget => "budget: polling for at most 1 % of a CPU",
            Self::Dedicated => "dedicated: a CPU alone, halts that KVM takes no part in",
        }
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

impl Load {
    pub(super) const ALL: [Self; 5] = [
        Self::Idle,
        Self::Every100us,
        Self::Every1ms,
        Self::Bursts,
        Self::Sleep10us,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Every100us => "every100us",
            Self::Every1ms => "every1ms",
            Self::Bursts => "bursts",
            Self::Sleep10us => "sleep10us",
        }
    }

    pub(super) const fn about(self) -> &'static str {
        match self {
            Self::Idle => "idle: nothing happens",
            Self::Every100us => "an interrupt every 100 µs",
            Self::Every1ms => "an interrupt every ms",
            Self::Bursts => "8 interrupts 100 µs apart, then 100 ms of nothing",
            Self::Sleep10us => "a loop of sleeps of 10 µs by the timer",
        }
    }

    /// Words for the image.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Idle => "load=idle",
            Self::Every100us => "load=every gap_us=100",
            Self::Every1ms => "load=every gap_us=1000",
            Self::Bursts => "load=bursts gap_us=100 burst=8 pause_us=100000",
            Self::Sleep10us => "load=sleep gap_us=10",
        }
    }

    /// Those with a sender have a vCPU for it.
    pub(super) const fn cpus(self) -> u8 {
        match self {
            Self::Idle | Self::Sleep10us => 1,
            _ => 2,
        }
    }
}
