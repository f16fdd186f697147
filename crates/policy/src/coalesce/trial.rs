//! How long completions may be held: by comparison with what there is without holds.
//!
//! A hold of a 128th of a request's latency costs its thread 0.8 %, whatever else is
//! in flight: so much is always allowed ([`Phase::Careful`]). Longer holds can be free:
//! requests of equal length that once complete together do so again, and a disk with a
//! backlog loses nothing. Where latencies are regular, they are tried ([`Phase::Bold`])
//! and kept as long as mean, 99th percentile and IOPS stay what they are without holds
//! ([`Phase::Plain`]). The first trial delivers one completion of two, each that succeeds is
//! followed by one of half the ratio, down to the table's; one that fails goes back to the last
//! that succeeded. So a trial costs little where holds cost anything, and a guest or a disk that bears
//! some coalescing gets it. Holds that end by their deadline save nothing, nor do any where
//! completions arrive in batches that share an interrupt and are as large as the ratio would
//! make them: then there are no holds for a while ([`Phase::Paused`]).

use super::Ratio;
use super::epoch::Load;

/// A careful hold may cost this share of a latency: 2 to the power of minus so much.
const SHARE: u32 = 7;
/// The highest latency of this many completions stands for the 99th percentile.
const BLOCK: u32 = 128;
/// Bold holds may cost this share of the mean latency, and of IOPS: one of so much.
const MEAN_SHARE: u64 = 80;
/// Of this many completions, fewer than one may end a hold by its deadline.
const PER_DEADLINE: u64 = 32;
/// Completions of a window for each command in flight: without holds, and with them,
/// before they are judged and when.
const PLAIN_ROUNDS: u64 = 2;
const SETTLING_ROUNDS: u64 = 4;
const ROUNDS: u64 = 16;
/// Epochs until a load that is new is measured: it has begun in the first.
const NEW_LOAD_EPOCHS: u32 = 2;
/// Epochs of bold holds before the comparison is made anew.
const BOLD_EPOCHS: u32 = 256;
/// Epochs before bold holds are tried again, at first and at most.
const CAREFUL_EPOCHS: (u32, u32) = (128, 1024);
/// A few commands more or less in flight do not begin careful holds anew: where few are in flight an
/// eighth is none.
const CAREFUL_DEPTHS: u32 = 2;
/// Most epochs without holds after a window whose holds ended by deadlines.
const LONGEST_PAUSE: u32 = 64;

/// What is tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// No holds: what follows is compared with this.
    #[default]
    Plain,
    /// Holds as long as the ratio says; not judged yet: completions are being drawn
    /// together.
    Settling,
    /// Holds as long as the ratio says.
    Bold,
    /// Holds that cost a 128th.
    Careful,
    /// No holds.
    Paused,
}

/// What is measured in a window of one or several epochs.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    completions: u64,
    /// Batches of completions that the driver caught up with: interrupts at most.
    batches: u64,
    elapsed_ns: u64,
    /// Sum of latencies, holds included.
    total_ns: u64,
    /// Completions that took longer than nearly all without holds.
    late: u64,
    deadlines: u64,
    /// The highest latencies of each [`BLOCK`] completions: of the running one, and
    /// the sum.
    block_len: u32,
    blocks: u32,
    block_max_ns: u64,
    block_sum_ns: u64,
}

/// Latencies and rate without holds.
#[derive(Clone, Copy, Debug, Default)]
struct Base {
    mean_ns: u64,
    /// About the 99th percentile, and 1.9 % more.
    high_ns: u64,
    iops: u64,
    cif: u32,
}

/// The trials of one queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trial {
    phase: Phase,
    /// Bold holds deliver one completion of 2 to the power of this at least; 0 while none were
    /// found to be free.
    level: u8,
    /// Whether the level may still rise.
    grows: bool,
    /// Epochs until bold holds may be tried, and how long it was the last time.
    bold_after: u32,
    last_bold_after: u32,
    /// Epochs left of the phase, and length of the last pause.
    left: u32,
    last_pause: u32,
    /// The latency of the completion that is held longest.
    first_held_ns: u64,
    window: Window,
    base: Base,
}

impl Trial {
    /// The longest hold of a completion whose request took `latency_ns`.
    pub(super) fn longest_hold(&self, latency_ns: u64) -> u64 {
        let quick_ns = self.base.mean_ns - (self.base.mean_ns >> 2);
        let bold = matches!(self.phase, Phase::Settling | Phase::Bold);
        if bold && latency_ns >= quick_ns {
            u64::MAX
        } else {
            latency_ns >> SHARE
        }
    }

    /// A request has taken `latency_ns`.
    pub(super) fn completed(&mut self, latency_ns: u64) {
        let window = &mut self.window;
        window.total_ns += latency_ns;
        window.late += u64::from(latency_ns > self.base.high_ns);
        window.block_max_ns = window.block_max_ns.max(latency_ns);
        window.block_len += 1;
        if window.block_len == BLOCK {
            window.end_block();
        }
    }

    /// The driver learns of all completions so far by one interrupt, or sees them without.
    pub(super) const fn caught_up(&mut self) {
        self.window.batches += 1;
    }

    /// The first completion of a run of held ones.
    pub(super) fn first_held(&mut self, latency_ns: u64) {
        self.first_held_ns = latency_ns;
    }

    /// A run of `held` completions is delivered, the first after `hold_ns`.
    pub(super) fn released(&mut self, held: u64, hold_ns: u64, by_deadline: bool) {
        // The others were held for less: on average, for about half as long.
        self.window.total_ns += (held + 1) * hold_ns / 2;
        if self.first_held_ns + hold_ns > self.base.high_ns {
            self.window.late += held;
        }
        self.window.deadlines += u64::from(by_deadline);
    }

    /// How long the next epoch is to be, of at most `epoch_ns`: a trial that fails
    /// costs something, so the first judgement comes early.
    pub(super) fn epoch_ns(&self, epoch_ns: u64) -> u64 {
        let rounds = match self.phase {
            Phase::Settling => SETTLING_ROUNDS,
            Phase::Bold if self.left == BOLD_EPOCHS => ROUNDS,
            Phase::Careful if self.last_pause > 0 => ROUNDS,
            _ => return epoch_ns,
        };
        (self.base.mean_ns * rounds).clamp(epoch_ns / 64, epoch_ns)
    }

    /// An epoch ends: the next one's ratio, the table's or 1.
    pub(super) fn turn(&mut self, table: Ratio, load: &Load) -> Ratio {
        self.window.completions += load.completions;
        self.window.elapsed_ns += load.elapsed_ns;
        self.left = self.left.saturating_sub(1);
        self.bold_after = self.bold_after.saturating_sub(1);
        if table == Ratio::ONE {
            self.begin_anew();
        } else {
            self.choose(table, load.cif);
        }
        match self.phase {
            Phase::Settling | Phase::Bold => table.with_cycle_of_at_most(1 << self.level),
            Phase::Careful => table,
            Phase::Plain | Phase::Paused => Ratio::ONE,
        }
    }

    fn choose(&mut self, table: Ratio, cif: u32) {
        let rounds = self.window.completions / u64::from(cif.max(1));
        match self.phase {
            Phase::Plain if self.left > 0 => self.window = Window::default(),
            Phase::Plain if rounds >= PLAIN_ROUNDS && self.window.has_batches_of(table) => {
                self.pause();
            }
            Phase::Plain if rounds >= PLAIN_ROUNDS => {
                self.base = self.window.measured(cif);
                if self.base.is_regular() && self.bold_after == 0 {
                    (self.level, self.grows) = (self.level.max(1), true);
                    self.enter(Phase::Settling, BOLD_EPOCHS);
                } else {
                    self.enter(Phase::Careful, self.bold_after);
                }
            }
            Phase::Settling | Phase::Bold if self.has_another_depth(cif, 0) => self.begin_anew(),
            // Latencies of another depth are not a cost of holds; holds that expire save nothing
            // at any depth.
            Phase::Careful
                if self.base.is_regular() && self.has_another_depth(cif, CAREFUL_DEPTHS) =>
            {
                if self.window.ends_by_deadlines() {
                    self.pause();
                } else {
                    self.begin_anew();
                }
            }
            Phase::Settling if rounds >= SETTLING_ROUNDS => self.enter(Phase::Bold, BOLD_EPOCHS),
            Phase::Bold if rounds >= ROUNDS => self.judge_bold(table),
            Phase::Careful if rounds >= ROUNDS => self.judge_careful(),
            Phase::Paused if self.left == 0 => self.enter(Phase::Plain, 0),
            _ => {}
        }
    }

    /// The load pauses or is another. A load that begins again and again has a trial each
    /// time: what the last one cost counts although it came to no judgement.
    fn begin_anew(&mut self) {
        let bold = matches!(self.phase, Phase::Settling | Phase::Bold);
        if bold && !self.latency_is_free() {
            self.back_off();
        }
        self.level = 0;
        self.enter(Phase::Plain, NEW_LOAD_EPOCHS);
    }

    /// Whether what is in flight is no longer what it was without holds: by more than `least` and
    /// an eighth.
    fn has_another_depth(&self, cif: u32, least: u32) -> bool {
        self.base.cif.abs_diff(cif) > (self.base.cif / 8).max(least)
    }

    /// Whether latencies in this window are what they are without holds.
    fn latency_is_free(&self) -> bool {
        let (window, base) = (&self.window, &self.base);
        let mean_ns = window.measured(base.cif).mean_ns;
        mean_ns <= base.mean_ns + base.mean_ns / MEAN_SHARE
            && window.late * u64::from(BLOCK) <= window.completions
    }

    /// The next trial waits for twice as long as the last.
    fn back_off(&mut self) {
        let (first, most) = CAREFUL_EPOCHS;
        self.last_bold_after = (self.last_bold_after * 2).clamp(first, most);
        self.bold_after = self.last_bold_after;
    }

    fn judge_bold(&mut self, table: Ratio) {
        let (window, base) = (&self.window, &self.base);
        let now = window.measured(base.cif);
        let free = self.latency_is_free()
            && now.iops + now.iops / MEAN_SHARE >= base.iops
            && !window.ends_by_deadlines();
        if !free {
            self.lower();
        } else if self.grows && table.skip_up() > 1 << self.level {
            self.level += 1;
            self.enter(Phase::Settling, BOLD_EPOCHS);
        } else if self.left == 0 {
            self.last_bold_after = 0;
            self.enter(Phase::Plain, 0);
        } else {
            self.window = Window::default();
        }
    }

    /// Holds of this level cost something: those of the level below, which did not, or careful ones.
    fn lower(&mut self) {
        (self.level, self.grows) = (self.level.saturating_sub(1), false);
        if self.level == 0 {
            self.back_off();
            self.enter(Phase::Careful, self.bold_after);
        } else {
            self.enter(Phase::Settling, BOLD_EPOCHS);
        }
    }

    fn judge_careful(&mut self) {
        // Of irregular latencies a window says too little.
        let costs = self.base.is_regular() && !self.latency_is_free();
        if costs || self.window.ends_by_deadlines() {
            self.pause();
        } else if self.left == 0 {
            self.enter(Phase::Plain, 0);
        } else {
            self.last_pause /= 2;
            self.window = Window::default();
        }
    }

    /// Each pause is twice as long as the last.
    fn pause(&mut self) {
        self.last_pause = (self.last_pause * 2).clamp(1, LONGEST_PAUSE);
        self.enter(Phase::Paused, self.last_pause);
    }

    fn enter(&mut self, phase: Phase, epochs: u32) {
        (self.phase, self.left) = (phase, epochs);
        self.window = Window::default();
    }
}

impl Window {
    /// Whether no more of the completions had an interrupt than `table` would give one. Without
    /// batches nothing is known of them.
    fn has_batches_of(&self, table: Ratio) -> bool {
        let (count_up, skip_up) = (u64::from(table.count_up()), u64::from(table.skip_up()));
        self.batches > 0 && self.batches * skip_up <= self.completions * count_up
    }

    #[cold]
    #[inline(never)]
    fn end_block(&mut self) {
        self.block_sum_ns += core::mem::take(&mut self.block_max_ns);
        (self.block_len, self.blocks) = (0, self.blocks + 1);
    }

    fn ends_by_deadlines(&self) -> bool {
        self.deadlines * PER_DEADLINE > self.completions
    }

    fn measured(&self, cif: u32) -> Base {
        let high_ns = match self.blocks {
            0 => self.block_max_ns,
            blocks => self.block_sum_ns / u64::from(blocks),
        };
        Base {
            mean_ns: self.total_ns / self.completions.max(1),
            high_ns: high_ns + high_ns / 52,
            iops: self.completions.saturating_mul(1_000_000_000) / self.elapsed_ns.max(1),
            cif,
        }
    }
}

impl Base {
    /// Whether nearly all requests took about the same time.
    fn is_regular(&self) -> bool {
        self.high_ns - self.mean_ns.min(self.high_ns) <= self.mean_ns / 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Epochs of 10 ms in which `cif` requests are in flight, each of `latency_ns`.
    fn play(trial: &mut Trial, epochs: u32, cif: u32, latency_ns: u64) -> u32 {
        const EPOCH_NS: u64 = 10_000_000;
        let completions = EPOCH_NS * u64::from(cif) / latency_ns;
        let load = Load {
            completions,
            iops: completions * 100,
            elapsed_ns: EPOCH_NS,
            cif,
        };
        let mut plain = 0;
        for _ in 0..epochs {
            for _ in 0..completions {
                trial.completed(latency_ns);
            }
            if trial.turn(Ratio::of_slot(4).unwrap_or(Ratio::ONE), &load) == Ratio::ONE {
                plain += 1;
            }
        }
        plain
    }

    /// A disk that serves one request at a time: twice the depth is twice the latency.
    #[test]
    fn a_deeper_load_is_compared_with_itself() {
        let mut trial = careful(8);
        assert_eq!(play(&mut trial, 8, 8, 100_000), 0, "holds cost nothing");
        let plain = play(&mut trial, 40, 16, 200_000);
        assert!((1..=NEW_LOAD_EPOCHS + 2).contains(&plain), "{plain} epochs");
        assert_eq!(trial.last_pause, 0, "the depth was taken for a cost");
        assert_eq!((trial.base.cif, trial.base.mean_ns), (16, 200_000));
    }
    /// Careful holds at `cif` requests in flight, since bold ones were tried and failed.
    fn careful(cif: u32) -> Trial {
        let mut trial = Trial::default();
        play(&mut trial, 10, cif, 100_000);
        trial.back_off();
        trial.enter(Phase::Careful, trial.bold_after);
        trial
    }

    /// Of a trial in which holds at 1 of 4 cost something, and none at 1 of 2.
    #[test]
    fn holds_that_cost_go_back_to_those_that_did_not() {
        let table = Ratio::of_slot(10).unwrap_or(Ratio::ONE);
        let mut trial = Trial::default();
        let (mut cycles, mut changes, mut cycle) = ([0; 8], 0, 1);
        for _ in 0..100 {
            let held = if cycle > 2 { 3_000 } else { 0 };
            let load = Load {
                completions: 3_200,
                iops: 320_000,
                elapsed_ns: 10_000_000,
                cif: 32,
            };
            (0..load.completions).for_each(|_| trial.completed(100_000 + held));
            let next = trial.turn(table, &load).skip_up();
            if next != cycle {
                (cycle, cycles[changes], changes) = (next, next, changes + 1);
            }
        }
        assert_eq!(cycles[..changes], [2, 4, 2]);
    }

    #[test]
    fn one_request_more_or_less_does_not_end_careful_holds() {
        let mut trial = careful(5);
        let plain: u32 = (0..50)
            .map(|_| play(&mut trial, 1, 6, 100_000) + play(&mut trial, 1, 5, 100_000))
            .sum();
        assert_eq!(plain, 0, "epochs without holds");
    }

    #[test]
    fn holds_that_expire_pause_where_the_depth_alternates() {
        let mut trial = careful(8);
        for epoch in 0..40 {
            let cif = if epoch % 2 == 0 { 16 } else { 8 };
            for _ in 0..100 {
                trial.released(1, 1_000, true);
            }
            play(&mut trial, 1, cif, 100_000);
        }
        assert!(trial.last_pause > 1, "{trial:?}");
    }
}
