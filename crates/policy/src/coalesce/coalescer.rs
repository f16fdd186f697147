//! The state machine of one queue.

use super::epoch::Epoch;
use super::in_flight::InFlight;
use super::ratio::Cycle;
use super::trial::Trial;
use super::{Cause, Counters, Decision, Mode, Ratio, RequestKind, Settings, slot_of_hold};

/// Decides which completions of one queue are delivered. See the module.
// What each completion touches comes first, within the reach of short addresses:
// the counters have a kilobyte.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Coalescer {
    cycle: Cycle,
    in_flight: InFlight,
    /// The driver flushed in this epoch, in the last one.
    flushes: bool,
    flushed: bool,
    /// Completions held now, when the first of them was, and until when.
    held: u64,
    held_since_ns: u64,
    hold_deadline_ns: u64,
    /// Completions that were delivered and that the driver has not answered by a
    /// submission; held ones, without those that it has answered: it must have
    /// seen them.
    unanswered: u64,
    unseen: u64,
    trial: Trial,
    epoch: Epoch,
    settings: Settings,
    counters: Counters,
}

impl Coalescer {
    /// A queue without requests; until the first epoch has ended, `Auto`
    /// delivers everything.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            cycle: Cycle::new(first_ratio(&settings)),
            in_flight: InFlight::default(),
            held: 0,
            held_since_ns: 0,
            hold_deadline_ns: 0,
            unanswered: 0,
            unseen: 0,
            trial: Trial::default(),
            epoch: Epoch::default(),
            flushes: false,
            flushed: false,
            counters: Counters::default(),
        }
    }

    /// A request went to the backend. Each must be followed by one
    /// [`completed`](Self::completed) of the same kind, in any order.
    pub fn submitted(&mut self, kind: RequestKind) {
        self.in_flight.add(kind);
        if self.unanswered > 0 {
            self.unanswered -= 1;
        } else {
            self.unseen = self.unseen.saturating_sub(1);
        }
        self.epoch.submitted();
        self.flushes |= matches!(kind, RequestKind::Flush | RequestKind::WriteThrough);
    }

    /// The driver flushes on another queue of the device: writes here may be
    /// what that flush waits for. Call it as often as you like.
    pub const fn flushed_elsewhere(&mut self) {
        self.flushes = true;
    }

    /// A request was completed and its used entry is visible: does the driver get
    /// an interrupt now? `latency_ns` is the time since its submission. No division
    /// and no clock here, except once an epoch.
    pub fn completed(&mut self, now_ns: u64, kind: RequestKind, latency_ns: u64) -> Decision {
        if self.epoch.has_lapsed(now_ns) {
            self.turn_epoch(now_ns);
        }
        let in_flight = self.in_flight.total().max(1);
        let urgent = self.is_urgent(kind);
        self.epoch.completed(in_flight + self.unseen);
        self.counters.completions += 1;
        if !self.in_flight.remove(kind) {
            self.counters.unmatched += 1;
        }
        self.trial.completed(latency_ns);
        let hold_ns = self.hold_limit_ns(latency_ns);
        match self.judge(now_ns, in_flight, urgent, hold_ns) {
            Some(cause) => self.deliver(now_ns, cause),
            None => self.hold(now_ns, latency_ns, hold_ns),
        }
    }

    /// When held completions must be delivered, if there are any. While they are
    /// held it only moves forward: a quick request among them waits for less.
    pub const fn deadline(&self) -> Option<u64> {
        if self.held == 0 {
            None
        } else {
            Some(self.hold_deadline_ns)
        }
    }

    /// The caller's timer fired, or it looks in passing: `Deliver` when
    /// completions are held and their time is over.
    pub fn expired(&mut self, now_ns: u64) -> Decision {
        if self.held == 0 || now_ns < self.hold_deadline_ns {
            return Decision::Hold;
        }
        self.cycle.restart();
        self.release(now_ns, Cause::Deadline);
        self.counters.expiries += 1;
        Decision::Deliver
    }

    /// The driver got an interrupt for all completions so far, or wants none, or has
    /// seen them: nothing is held any more. Call it after the
    /// interrupt of a batch, in which completions may be held that came after
    /// the delivered one.
    pub fn caught_up(&mut self, now_ns: u64) {
        self.trial.caught_up();
        self.release(now_ns, Cause::CaughtUp);
    }

    /// Changes the settings of a live queue; `Deliver` when completions were
    /// held under the old ones.
    pub fn configure(&mut self, now_ns: u64, settings: Settings) -> Decision {
        let held = self.held > 0;
        self.release(now_ns, Cause::Changed);
        self.settings = settings;
        self.cycle = Cycle::new(first_ratio(&settings));
        self.epoch.turn(now_ns, settings.parameters().epoch_ns);
        self.trial = Trial::default();
        if held {
            Decision::Deliver
        } else {
            Decision::Hold
        }
    }

    /// The driver reset the queue: requests and held completions are forgotten,
    /// settings and counters stay.
    pub fn reset(&mut self, now_ns: u64) {
        let settings = self.settings;
        let _no_interrupt = self.configure(now_ns, settings);
        self.epoch.forget();
        self.unanswered = 0;
        self.in_flight = InFlight::default();
        (self.flushes, self.flushed) = (false, false);
    }

    /// The settings in force.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The ratio R in force.
    pub const fn ratio(&self) -> Ratio {
        self.cycle.ratio
    }

    /// Requests submitted and not completed.
    pub const fn in_flight(&self) -> u64 {
        self.in_flight.total()
    }

    /// Completions held now.
    pub const fn held(&self) -> u64 {
        self.held
    }

    /// What was counted so far.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Why the completion is delivered; `None`: it is held. `in_flight` counts
    /// the completion itself.
    fn judge(&mut self, now_ns: u64, in_flight: u64, urgent: bool, hold_ns: u64) -> Option<Cause> {
        let parameters = self.settings.parameters();
        let auto = parameters.mode == Mode::Auto;
        if auto && in_flight < u64::from(parameters.cif_threshold) {
            self.cycle.restart();
            return Some(Cause::Shallow);
        }
        // Whatever delivers a completion, it takes its turn in the cycle.
        let turn = self.cycle.step();
        let cause = if auto && urgent {
            Cause::Urgent
        } else if self.held > 0 && now_ns >= self.hold_deadline_ns {
            Cause::Deadline
        } else if turn == Decision::Deliver {
            return Some(Cause::Ratio);
        } else if hold_ns < SHORTEST_HOLD_NS {
            Cause::Quick
        } else if auto && self.is_stale(in_flight) {
            Cause::Stale
        } else {
            return None;
        };
        if turn == Decision::Hold {
            self.cycle.restart();
        }
        Some(cause)
    }

    /// Whether a thread of the guest is likely to wait for this request, still in flight.
    const fn is_urgent(&self, kind: RequestKind) -> bool {
        let parameters = self.settings.parameters();
        match kind {
            RequestKind::Flush | RequestKind::WriteThrough | RequestKind::Control => true,
            RequestKind::Read => self.in_flight.reads() < parameters.read_urgent_below,
            RequestKind::Write => {
                (self.flushes || self.flushed)
                    && self.in_flight.writes() < parameters.write_urgent_below
            }
        }
    }

    /// Whether one more held completion would be more than the table holds for
    /// what the driver has in flight now: the load has fallen since the epoch
    /// began.
    const fn is_stale(&self, in_flight: u64) -> bool {
        let row = self.settings.parameters().cif_threshold as u64;
        self.held > 0 && (self.held + 1) * row * 2 > in_flight + self.held
    }

    fn deliver(&mut self, now_ns: u64, cause: Cause) -> Decision {
        self.unanswered += 1;
        self.counters.delivered += 1;
        self.counters.delivered_by[cause as usize] += 1;
        self.release(now_ns, cause);
        Decision::Deliver
    }

    /// How long a completion may be held whose request took `latency_ns`.
    pub fn hold_limit_ns(&self, latency_ns: u64) -> u64 {
        let parameters = self.settings.parameters();
        if parameters.mode == Mode::Auto {
            parameters
                .longest_hold_ns
                .min(self.trial.longest_hold(latency_ns))
        } else {
            parameters.longest_hold_ns
        }
    }

    fn hold(&mut self, now_ns: u64, latency_ns: u64, hold_ns: u64) -> Decision {
        let deadline_ns = now_ns.saturating_add(hold_ns);
        if self.held == 0 {
            self.trial.first_held(latency_ns);
            self.held_since_ns = now_ns;
            self.hold_deadline_ns = deadline_ns;
        }
        self.hold_deadline_ns = self.hold_deadline_ns.min(deadline_ns);
        self.held += 1;
        self.unseen += 1;
        self.counters.held += 1;
        Decision::Hold
    }

    #[inline(never)]
    fn release(&mut self, now_ns: u64, cause: Cause) {
        self.epoch.delivered();
        if self.held == 0 {
            return;
        }
        let hold_ns = now_ns.saturating_sub(self.held_since_ns);
        let by_deadline = matches!(cause, Cause::Deadline);
        self.trial.released(self.held, hold_ns, by_deadline);
        self.counters.released[cause as usize] += self.held;
        self.counters.hold_time[slot_of_hold(hold_ns)] += 1;
        self.counters.longest_hold_ns = self.counters.longest_hold_ns.max(hold_ns);
        self.unanswered += self.unseen;
        (self.held, self.unseen) = (0, 0);
    }

    /// Ends the epoch, at whatever completion comes first after its time, and
    /// chooses the ratio of the next from what it was like.
    #[cold]
    fn turn_epoch(&mut self, now_ns: u64) {
        let parameters = self.settings.parameters();
        let load = self.epoch.turn(now_ns, parameters.epoch_ns);
        let ended = self.cycle.ratio;
        if parameters.mode == Mode::Auto {
            let table = Ratio::choose(load.cif, load.iops, parameters);
            let ratio = self.trial.turn(table, &load);
            self.epoch.shorten(self.trial.epoch_ns(parameters.epoch_ns));
            if ratio != ended {
                self.cycle = Cycle::new(ratio);
            }
        }
        self.flushed = core::mem::take(&mut self.flushes);
        // A driver that sends fewer commands than before never answers the rest.
        self.unanswered = 0;
        self.counters.epochs += 1;
        self.counters.ratio_completions[ended.slot()] += load.completions;
        self.counters.ratio_epochs[self.cycle.ratio.slot()] += 1;
    }
}

/// Without a hold as long as this a completion is delivered: the end of so short a
/// hold costs the host more than an interrupt.
const SHORTEST_HOLD_NS: u64 = 2_000;

const fn first_ratio(settings: &Settings) -> Ratio {
    match settings.parameters().mode {
        Mode::Fixed(ratio) => ratio,
        Mode::Auto | Mode::Off => Ratio::ONE,
    }
}
