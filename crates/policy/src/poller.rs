//! When a core full of polling threads may halt: the rule of Toro.
//!
//! A thread that polls a variable reports each fruitless look (an *idle turn*) and
//! each find (*active*) to the scheduler. A thread whose turns have all
//! been idle for `IDLE_AFTER_NS` counts as idle; when every polling thread of
//! a core is idle and no other thread is ready, the core may halt.
//!
//! Source: `docs/background.md`; TORO's `SysThreadSwitch(IdleFlag)` and
//! `SysThreadActive` with its constant of 200 ms. Added to the source's rule:
//! after a halt ends, every poller gets a turn before the next halt, since any
//! of them may be what the interrupt was for (the source could lose a wake-up
//! there).
//!
//! [`Pollers`] is one core's account, [`Poller`] one thread's. Each step is a
//! few instructions, whatever the number of threads. The final decision still
//! belongs with interrupts off (`guest/libos`): this rule only says that the
//! threads would agree to a halt.

/// Idle turns for this long make a thread idle.
pub(crate) const IDLE_AFTER_NS: u64 = 200_000_000;

/// One polling thread, as its core's [`Pollers`] know it.
#[derive(Debug, PartialEq, Eq)]
pub struct Poller {
    /// First of the present run of idle turns.
    idle_since_ns: Option<u64>,
    /// The wake-up after which this thread was counted as quiet.
    quiet_after: Option<u64>,
}

/// The polling threads of one core.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Pollers {
    count: u32,
    quiet: u32,
    /// Halts that have ended so far.
    wakes: u64,
}

impl Pollers {
    /// A core without polling threads.
    pub const fn new() -> Self {
        Self {
            count: 0,
            quiet: 0,
            wakes: 0,
        }
    }

    /// A thread starts to poll; it is active at first. Call it at the thread's
    /// first idle turn, or when it comes back from blocking.
    pub fn join(&mut self) -> Poller {
        self.count += 1;
        Poller {
            idle_since_ns: None,
            quiet_after: None,
        }
    }

    /// A thread ends, moves to another core, or blocks: it no longer polls here.
    pub fn leave(&mut self, mut poller: Poller) {
        self.active(&mut poller);
        self.count -= 1;
    }

    /// The thread looked at `now_ns` and found nothing to do.
    pub fn idle_turn(&mut self, poller: &mut Poller, now_ns: u64) {
        let since_ns = *poller.idle_since_ns.get_or_insert(now_ns);
        let idle = now_ns.saturating_sub(since_ns) >= IDLE_AFTER_NS;
        if idle && poller.quiet_after != Some(self.wakes) {
            poller.quiet_after = Some(self.wakes);
            self.quiet += 1;
        }
    }

    /// The thread found work: its idle time starts anew.
    pub fn active(&mut self, poller: &mut Poller) {
        poller.idle_since_ns = None;
        if poller.quiet_after.take() == Some(self.wakes) {
            self.quiet -= 1;
        }
    }

    /// Whether the core may halt when `ready` threads other than pollers are
    /// ready to run: all pollers are idle, and have looked since the last halt.
    pub const fn may_halt(&self, ready: usize) -> bool {
        ready == 0 && self.quiet == self.count
    }

    /// A halt has ended: each poller looks once more before the next one.
    pub fn woken(&mut self) {
        self.wakes += 1;
        self.quiet = 0;
    }

    /// Threads that poll on this core.
    pub const fn count(&self) -> u32 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::vec::Vec;

    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_core_without_pollers_halts_unless_a_thread_is_ready() {
        let core = Pollers::new();
        assert!(core.may_halt(0));
        assert!(!core.may_halt(1));
    }

    #[test]
    fn a_thread_is_idle_after_200_ms_of_idle_turns() {
        let mut core = Pollers::new();
        let mut poller = core.join();
        core.idle_turn(&mut poller, 5 * MS);
        core.idle_turn(&mut poller, 205 * MS - 1);
        assert!(!core.may_halt(0));
        core.idle_turn(&mut poller, 205 * MS);
        assert!(core.may_halt(0));
        assert!(!core.may_halt(1));
    }

    #[test]
    fn work_resets_the_idle_time() {
        let mut core = Pollers::new();
        let mut poller = core.join();
        core.idle_turn(&mut poller, 0);
        core.idle_turn(&mut poller, 300 * MS);
        core.active(&mut poller);
        assert!(!core.may_halt(0));
        core.idle_turn(&mut poller, 301 * MS);
        core.idle_turn(&mut poller, 500 * MS);
        assert!(!core.may_halt(0));
        core.idle_turn(&mut poller, 501 * MS);
        assert!(core.may_halt(0));
    }

    #[test]
    fn one_active_thread_keeps_the_core_up() {
        let mut core = Pollers::new();
        let (mut quiet, mut busy) = (core.join(), core.join());
        for ms in 0..1000 {
            core.idle_turn(&mut quiet, ms * MS);
            core.idle_turn(&mut busy, ms * MS);
            if ms % 100 == 0 {
                core.active(&mut busy);
            }
            assert!(!core.may_halt(0), "{ms} ms");
        }
        core.leave(busy);
        assert!(core.may_halt(0));
    }

    #[test]
    fn every_poller_looks_again_after_a_halt() {
        let mut core = Pollers::new();
        let (mut a, mut b) = (core.join(), core.join());
        for now in [0, 200 * MS] {
            core.idle_turn(&mut a, now);
            core.idle_turn(&mut b, now);
        }
        assert!(core.may_halt(0));
        core.woken();
        assert!(!core.may_halt(0));
        core.idle_turn(&mut a, 900 * MS);
        assert!(!core.may_halt(0), "b has not looked");
        core.idle_turn(&mut b, 900 * MS);
        assert!(core.may_halt(0), "still idle: no new 200 ms");
    }

    #[test]
    fn a_clock_that_steps_back_makes_no_core_idle() {
        let mut core = Pollers::new();
        let mut poller = core.join();
        core.idle_turn(&mut poller, 1000 * MS);
        core.idle_turn(&mut poller, 0);
        assert!(!core.may_halt(0));
    }

    /// The rule by its definition, with no counters to go wrong.
    #[derive(Clone, Copy)]
    struct Plain {
        since: Option<u64>,
        looked: bool,
        last: u64,
    }

    impl Plain {
        fn idle(&self) -> bool {
            self.looked && self.since.is_some_and(|s| self.last - s >= IDLE_AFTER_NS)
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Join,
        Leave(usize),
        Idle(usize),
        Active(usize),
        Woken,
        Pass(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            1 => Just(Step::Join),
            1 => (0..8usize).prop_map(Step::Leave),
            8 => (0..8usize).prop_map(Step::Idle),
            2 => (0..8usize).prop_map(Step::Active),
            2 => Just(Step::Woken),
            4 => (1..300u64).prop_map(Step::Pass),
        ]
    }

    proptest! {
        #[test]
        fn the_counters_agree_with_the_definition(steps in prop::collection::vec(step(), 1..200)) {
            let mut core = Pollers::new();
            let mut threads: Vec<(Poller, Plain)> = Vec::new();
            let mut now = 0;
            for step in steps {
                match step {
                    Step::Join => {
                        let plain = Plain { since: None, looked: false, last: now };
                        threads.push((core.join(), plain));
                    }
                    Step::Leave(i) if i < threads.len() => core.leave(threads.swap_remove(i).0),
                    Step::Idle(i) if i < threads.len() => {
                        let (poller, plain) = &mut threads[i];
                        core.idle_turn(poller, now);
                        plain.since.get_or_insert(now);
                        (plain.looked, plain.last) = (true, now);
                    }
                    Step::Active(i) if i < threads.len() => {
                        let (poller, plain) = &mut threads[i];
                        core.active(poller);
                        (plain.since, plain.looked) = (None, false);
                    }
                    Step::Woken => {
                        core.woken();
                        threads.iter_mut().for_each(|(_, plain)| plain.looked = false);
                    }
                    Step::Pass(ms) => now += ms * MS,
                    _ => {}
                }
                prop_assert_eq!(core.may_halt(0), threads.iter().all(|(_, plain)| plain.idle()));
                prop_assert!(!core.may_halt(1));
            }
        }
    }
}
