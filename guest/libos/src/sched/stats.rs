//! How a core spends its time.

/// Counters of one core since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreStats {
    /// Times that the core halted.
    pub halts: u64,
    /// Time in halts, ns.
    pub halted_ns: u64,
    /// Times that the core spun before a halt.
    pub spins: u64,
    /// Spins that found work, so that no halt was needed.
    pub spins_caught: u64,
    /// Time spent spinning, ns.
    pub spun_ns: u64,
    /// Turns of polling threads that found nothing.
    pub idle_turns: u64,
    /// Switches from one thread to another.
    pub switches: u64,
    /// Threads put into this core's inbox by other cores and interrupts.
    pub inbox: u64,
    /// Wake-up interrupts that this core sent to others.
    pub ipis_sent: u64,
    /// Wake-ups of threads on other cores that needed no interrupt, since the
    /// core was awake.
    pub ipis_skipped: u64,
    /// Halted cores that were woken by an interrupt command of this core that
    /// woke another one too.
    pub ipis_shared: u64,
    /// Deadlines given to the timer since they were the first, or nearer than
    /// the armed one.
    pub timers_armed: u64,
    /// Deadlines given to it after its own interrupt, since what had come was no
    /// longer the last one: one for each interrupt, whatever happens meanwhile. And
    /// interrupts that were put off or taken back since the core is rarely woken.
    pub timers_renewed: u64,
}

/// A counter that one core writes and all may read.
#[cfg(target_os = "none")]
#[derive(Default)]
pub(crate) struct Counter(::core::sync::atomic::AtomicU64);

#[cfg(target_os = "none")]
impl Counter {
    pub(crate) const fn new() -> Self {
        Self(::core::sync::atomic::AtomicU64::new(0))
    }

    /// Adds without locking the bus: only the owner writes.
    #[inline]
    pub(crate) fn add(&self, amount: u64) {
        use ::core::sync::atomic::Ordering::Relaxed;
        self.0.store(self.0.load(Relaxed) + amount, Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(::core::sync::atomic::Ordering::Relaxed)
    }
}
