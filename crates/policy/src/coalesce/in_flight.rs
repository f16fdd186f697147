//! Requests that the backend has, by class.

use super::Kind;

/// Requests submitted and not completed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InFlight {
    reads: u32,
    writes: u32,
    others: u32,
}

impl InFlight {
    pub(super) fn add(&mut self, kind: Kind) {
        let class = self.class(kind);
        *class = class.saturating_add(1);
    }

    /// Takes one out; `false` if there was none of its class.
    pub(super) fn remove(&mut self, kind: Kind) -> bool {
        let class = self.class(kind);
        let some = *class > 0;
        *class -= u32::from(some);
        some
    }

    pub(super) const fn reads(&self) -> u32 {
        self.reads
    }

    pub(super) const fn writes(&self) -> u32 {
        self.writes
    }

    pub(super) const fn total(&self) -> u32 {
        self.reads
            .saturating_add(self.writes)
            .saturating_add(self.others)
    }

    const fn class(&mut self, kind: Kind) -> &mut u32 {
        match kind {
            Kind::Read => &mut self.reads,
            Kind::Write | Kind::WriteThrough => &mut self.writes,
            Kind::Flush | Kind::Control => &mut self.others,
        }
    }
}
