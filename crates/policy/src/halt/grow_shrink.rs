//! KVM's own rule: each vCPU's window grows after a halt that a longer one would
//! have caught, and shrinks after one that no window would
//! (`kvm_vcpu_halt`, `grow_halt_poll_ns`, `shrink_halt_poll_ns` in Linux's
//! `virt/kvm/kvm_main.c`, 6.12).

/// One vCPU's window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrowShrink {
    /// `halt_poll_ns`, or what `KVM_CAP_HALT_POLL` says.
    longest_ns: u64,
    /// `halt_poll_ns_grow_start`.
    start_ns: u64,
    /// `halt_poll_ns_grow`.
    grow: u64,
    /// `halt_poll_ns_shrink`; 0 goes to nothing at once.
    shrink: u64,
    window_ns: u64,
}

impl GrowShrink {
    /// As Linux is built, with another longest window.
    pub const fn new(longest_ns: u64) -> Self {
        Self {
            longest_ns,
            start_ns: 10_000,
            grow: 2,
            shrink: 2,
            window_ns: 0,
        }
    }

    /// Linux's default: 200 us at most.
    pub const fn linux() -> Self {
        Self::new(200_000)
    }

    /// The longest window.
    pub(crate) const fn longest_ns(&self) -> u64 {
        self.longest_ns
    }

    /// Changes the longest window for halts that begin, as `KVM_CAP_HALT_POLL` does.
    pub(crate) const fn set_longest_ns(&mut self, longest_ns: u64) {
        self.longest_ns = longest_ns;
    }

    /// How long the next halt is polled for.
    pub fn window_ns(&self) -> u64 {
        self.window_ns.min(self.longest_ns)
    }

    /// A halt has ended after so long, polled or not.
    pub fn halted(&mut self, halt_ns: u64) {
        self.halted_with(halt_ns, self.longest_ns);
    }

    /// The same, with a longest window that was changed while it lasted: KVM reads it again.
    pub(crate) fn halted_with(&mut self, halt_ns: u64, longest_ns: u64) {
        self.window_ns = self.window_ns();
        self.longest_ns = longest_ns;
        if self.longest_ns == 0 {
            self.window_ns = 0;
        } else if halt_ns <= self.window_ns {
        } else if self.window_ns > 0 && halt_ns > self.longest_ns {
            self.shrink();
        } else if self.window_ns < self.longest_ns && halt_ns < self.longest_ns {
            self.grow();
        }
    }

    fn grow(&mut self) {
        // The next halt begins with no more than the longest.
        self.window_ns = self.window_ns.saturating_mul(self.grow).max(self.start_ns);
    }

    fn shrink(&mut self) {
        let shrunk = self.window_ns.checked_div(self.shrink).unwrap_or(0);
        self.window_ns = if shrunk < self.start_ns { 0 } else { shrunk };
    }
}
