//! A driver, a backend and a timer around a coalescer, in simulated time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;

use tare_policy::coalesce::{Cause, Coalescer, Counters, Decision, Mode, RequestKind, Settings};

/// A request at the backend: when it completes, its number, its kind, when it was
/// submitted.
type Pending = Reverse<(u64, u64, u8, u64)>;

const KINDS: [RequestKind; 5] = [
    RequestKind::Read,
    RequestKind::Write,
    RequestKind::WriteThrough,
    RequestKind::Flush,
    RequestKind::Control,
];

/// What a run amounted to, counted by the simulation and by the coalescer.
pub(crate) struct DeliveryStats {
    pub lost: u64,
    pub longest_hold_ns: u64,
    pub interrupts: u64,
    pub counters: Counters,
}

impl fmt::Display for DeliveryStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counters = &self.counters;
        writeln!(f, "completions {}", counters.completions)?;
        writeln!(f, "lost {}", self.lost)?;
        writeln!(f, "longest hold {} ns", self.longest_hold_ns)?;
        writeln!(f, "interrupts {}", self.interrupts)?;
        writeln!(f, "held {}, expiries {}", counters.held, counters.expiries)?;
        for cause in Cause::ALL {
            let released = counters.released[cause as usize];
            writeln!(f, "released by {} {released}", cause.name())?;
        }
        Ok(())
    }
}

/// How the driver and the backend behave for a while.
struct Phase {
    completions_left: u32,
    depth: usize,
    latency_ns: u64,
    /// The driver thinks for up to this long before it submits again.
    think_ns: u64,
    /// Completions within this time are reaped together.
    batch_ns: u64,
    /// One of this many requests is something other than a read; of a write.
    write_every: u64,
    sync_every: u64,
}

pub(crate) struct Simulation {
    coalescer: Coalescer,
    settings: Settings,
    random: u64,
    now_ns: u64,
    phase: Phase,
    backend: BinaryHeap<Pending>,
    /// When each completion came that the driver does not know of.
    untold_ns: Vec<u64>,
    /// Requests that the driver waits for.
    waited_for: usize,
    submits_at_ns: Option<u64>,
    submitted: u64,
    told: u64,
    interrupts: u64,
    longest_hold_ns: u64,
}

impl Simulation {
    pub(crate) fn new(settings: Settings, seed: u64) -> Self {
        let mut simulation = Self {
            coalescer: Coalescer::new(settings),
            settings,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            now_ns: 1_000_000_000,
            phase: Phase {
                completions_left: 0,
                depth: 1,
                latency_ns: 1,
                think_ns: 0,
                batch_ns: 0,
                write_every: 1,
                sync_every: 1,
            },
            backend: BinaryHeap::new(),
            untold_ns: Vec::new(),
            waited_for: 0,
            submits_at_ns: Some(1_000_000_000),
            submitted: 0,
            told: 0,
            interrupts: 0,
            longest_hold_ns: 0,
        };
        simulation.next_phase();
        simulation
    }

    /// This many completions, and then until everything has been delivered.
    pub(crate) fn run(mut self, completions: u64) -> DeliveryStats {
        while self.coalescer.counters().completions < completions {
            self.event();
        }
        self.phase.depth = 0;
        while self.event() {}
        DeliveryStats {
            lost: self.submitted - self.told,
            longest_hold_ns: self.longest_hold_ns,
            interrupts: self.interrupts,
            counters: *self.coalescer.counters(),
        }
    }

    /// Whatever comes next; `false` when nothing ever will.
    fn event(&mut self) -> bool {
        let completes = self.backend.peek().map(|Reverse((at_ns, ..))| *at_ns);
        let nearest = [self.coalescer.deadline(), completes, self.submits_at_ns];
        let Some(at_ns) = nearest.into_iter().flatten().min() else {
            return false;
        };
        self.now_ns = self.now_ns.max(at_ns);
        if self.coalescer.deadline() == Some(at_ns) {
            assert_eq!(self.coalescer.expired(at_ns), Decision::Deliver);
            self.tell();
        } else if completes == Some(at_ns) {
            self.reap();
        } else {
            self.submit();
        }
        self.check();
        true
    }

    /// One turn of the device: everything that has completed by its end.
    fn reap(&mut self) {
        let due_ns = self.coalescer.deadline().unwrap_or(u64::MAX);
        // The timer would wake the device earlier than the batch's end.
        self.now_ns = (self.now_ns + self.phase.batch_ns).min(due_ns.max(self.now_ns));
        let mut wanted = Decision::Hold;
        while let Some(Reverse((at_ns, _, kind, submitted_ns))) = self.backend.peek().copied() {
            if at_ns > self.now_ns {
                break;
            }
            let in_flight = self.backend.len();
            self.backend.pop();
            self.untold_ns.push(self.now_ns);
            wanted = wanted.or(self.complete(KINDS[usize::from(kind)], in_flight, submitted_ns));
        }
        if wanted == Decision::Deliver {
            self.coalescer.caught_up(self.now_ns);
            self.tell();
        }
    }

    fn complete(&mut self, kind: RequestKind, in_flight: usize, submitted_ns: u64) -> Decision {
        let latency_ns = self.now_ns - submitted_ns;
        let decision = self.coalescer.completed(self.now_ns, kind, latency_ns);
        let parameters = self.settings.parameters();
        let urgent = matches!(
            kind,
            RequestKind::Flush | RequestKind::WriteThrough | RequestKind::Control
        );
        let shallow = in_flight < parameters.cif_threshold as usize;
        if parameters.mode == Mode::Auto && (urgent || shallow) {
            assert_eq!(decision, Decision::Deliver, "{kind:?} of {in_flight}");
        }
        self.phase.completions_left = self.phase.completions_left.saturating_sub(1);
        decision
    }

    /// The interrupt: the driver learns of everything, thinks, and goes on.
    fn tell(&mut self) {
        for came_ns in self.untold_ns.drain(..) {
            self.longest_hold_ns = self.longest_hold_ns.max(self.now_ns - came_ns);
            self.told += 1;
            self.waited_for -= 1;
        }
        self.interrupts += 1;
        if self.phase.completions_left == 0 && self.phase.depth > 0 {
            self.next_phase();
        }
        let think_ns = self.below(self.phase.think_ns + 1);
        self.submits_at_ns.get_or_insert(self.now_ns + think_ns);
    }

    fn submit(&mut self) {
        self.submits_at_ns = None;
        while self.waited_for < self.phase.depth {
            let kind = self.pick_kind();
            let latency_ns = self.pick_latency();
            self.submitted += 1;
            self.waited_for += 1;
            let request = (self.now_ns + latency_ns, self.submitted, kind, self.now_ns);
            self.backend.push(Reverse(request));
            self.coalescer.submitted(KINDS[usize::from(kind)]);
        }
    }

    fn pick_kind(&mut self) -> u8 {
        if self.below(self.phase.write_every) != 0 {
            return 0;
        }
        if self.below(self.phase.sync_every) != 0 {
            return 1;
        }
        [2, 3, 4][self.below(3) as usize]
    }

    /// About the phase's latency; one of 500 stalls for a hundred times that.
    fn pick_latency(&mut self) -> u64 {
        let usual_ns = self.phase.latency_ns / 2 + self.below(self.phase.latency_ns + 1);
        if self.below(500) == 0 {
            return usual_ns * 100;
        }
        usual_ns
    }

    fn next_phase(&mut self) {
        self.phase = Phase {
            completions_left: 1 + self.below(20_000) as u32,
            depth: 1 << self.below(9),
            latency_ns: 1_000 << self.below(14),
            think_ns: self.of(&[0, 0, 1_000, 100_000, 5_000_000]),
            batch_ns: self.of(&[0, 0, 1_000, 20_000]),
            write_every: self.of(&[1, 2, 4, 1_000_000]),
            sync_every: self.of(&[5, 100, 1_000_000]),
        };
        if self.phase.think_ns > 100_000 {
            self.phase.completions_left /= 50;
        }
    }

    fn of(&mut self, choices: &[u64]) -> u64 {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// xorshift64*: the same numbers for the same seed, everywhere.
    fn below(&mut self, bound: u64) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }

    fn check(&self) {
        assert_eq!(self.coalescer.in_flight(), self.backend.len() as u64);
        assert_eq!(self.coalescer.held(), self.untold_ns.len() as u64);
        assert_eq!(
            self.coalescer.held() == 0,
            self.coalescer.deadline().is_none()
        );
    }
}
