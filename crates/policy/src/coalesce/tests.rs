mod additions;
mod slow;
mod table;

use super::*;
use slow::Slow;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const LONG_NS: u64 = 10_000 * MS;

/// A driver that keeps `cif` reads in flight: it submits anew whatever was
/// delivered to it, and completions come `gap_ns` apart.
struct Loop {
    coalescer: Coalescer,
    now_ns: u64,
    gap_ns: u64,
    kind: RequestKind,
    /// What each request took. The default is so long that its share allows every
    /// hold: what is tested then is the ratio.
    latency_ns: u64,
}

impl Loop {
    fn new(settings: Settings, cif: u32, gap_ns: u64) -> Self {
        let mut steady = Self {
            coalescer: Coalescer::new(settings),
            now_ns: 77 * MS,
            gap_ns,
            kind: RequestKind::Read,
            latency_ns: LONG_NS,
        };
        steady.submit(u64::from(cif));
        steady
    }

    /// One whose ratio has settled: six epochs have passed, and eight more for each trial of
    /// half the ratio.
    fn settled(settings: Settings, cif: u32, gap_ns: u64) -> Self {
        let mut steady = Self::new(settings, cif, gap_ns);
        let trials = 1 + u64::from((cif / 8).max(1).ilog2());
        let epochs = 6 + 8 * trials;
        let until_ns = steady.now_ns + epochs * settings.parameters().epoch_ns + gap_ns;
        while steady.now_ns <= until_ns {
            let _ = steady.turn();
        }
        steady
    }

    fn submit(&mut self, count: u64) {
        for _ in 0..count {
            self.coalescer.submitted(self.kind);
        }
    }

    /// One completion, and what the driver does after an interrupt.
    fn turn(&mut self) -> Decision {
        self.now_ns += self.gap_ns;
        let held = self.coalescer.held();
        let decision = self
            .coalescer
            .completed(self.now_ns, self.kind, self.latency_ns);
        if decision == Decision::Deliver {
            self.submit(held + 1);
        }
        decision
    }

    /// How many of `count` completions are delivered.
    fn delivered(&mut self, completions: u32) -> u32 {
        let turns = (0..completions).map(|_| self.turn());
        turns.map(|d| u32::from(d == Decision::Deliver)).sum()
    }
}

fn settings(change: impl FnOnce(&mut Parameters)) -> Settings {
    let mut parameters = Parameters::default();
    change(&mut parameters);
    Settings::new(parameters).unwrap()
}

/// The defaults but for epochs of 1,000 completions, to test many depths.
fn short_epochs() -> Settings {
    settings(|p| p.epoch_ns = 5 * MS)
}
