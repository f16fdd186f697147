//! Where two threads may answer each other.

/// An arm of a dialogue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arm {
    /// What its figures of time end in.
    pub(crate) name: &'static str,
    /// What its counters' figures end in.
    pub(crate) suffix: &'static str,
    /// For people.
    pub(crate) about: &'static str,
    /// Who runs it.
    pub(crate) place: Where,
}

/// Who runs an arm.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Where {
    /// The library OS in Tare's own monitor.
    Tare {
        /// vCPUs.
        cpus: u8,
        /// Further words for the image.
        words: &'static str,
    },
    /// The library OS in QEMU on the same KVM.
    Qemu {
        /// vCPUs.
        cpus: u8,
        /// Further words for the image.
        words: &'static str,
    },
    /// A Linux guest in QEMU: on KVM where that is hardware's, else translated.
    Linux {
        /// vCPUs.
        cpus: u8,
    },
    /// Two threads of the host.
    Host {
        /// CPUs that they are pinned to.
        cpus: usize,
    },
}

impl Arm {
    /// How many of `turns` turns it has.
    pub(crate) fn turns(&self, turns: usize) -> usize {
        match self.place {
            Where::Tare { .. } | Where::Host { .. } => turns,
            Where::Qemu { .. } | Where::Linux { .. } => turns.min(1),
        }
    }
}
