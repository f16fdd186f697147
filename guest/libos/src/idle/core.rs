//! A core's idle turn; see the module above.

use core::cell::{Cell, RefCell};
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use tare_abi::cmdline;
use tare_hal::timer::{self, Armed};
use tare_hal::{clock, cpu};
use tare_policy::early_timer::Pace;
use tare_policy::spin::{DEFAULT_BUDGET_PCT, DEFAULT_MAX_NS, Limits, Spin, Wait};

use super::mode;
use crate::env;
use crate::sched::CoreStats;
use crate::sched::stats::Counter;

static SPIN_MAX_NS: AtomicU32 = AtomicU32::new(DEFAULT_MAX_NS);
static SPIN_BUDGET_PCT: AtomicU8 = AtomicU8::new(DEFAULT_BUDGET_PCT);
static COUNTERS: [Counters; cpu::MAX] = [const { Counters::new() }; cpu::MAX];

struct Counters {
    halts: Counter,
    halted_ns: Counter,
    spins: Counter,
    spins_caught: Counter,
    spun_ns: Counter,
    idle_turns: Counter,
    timers_armed: Counter,
    timers_renewed: Counter,
}

impl Counters {
    const fn new() -> Self {
        Self {
            halts: Counter::new(),
            halted_ns: Counter::new(),
            spins: Counter::new(),
            spins_caught: Counter::new(),
            spun_ns: Counter::new(),
            idle_turns: Counter::new(),
            timers_armed: Counter::new(),
            timers_renewed: Counter::new(),
        }
    }
}

/// Reads the command line.
pub(crate) fn init() {
    super::mode::init();
    let limit = env::var(cmdline::HALT_SPIN_NS).and_then(|ns| ns.parse().ok());
    SPIN_MAX_NS.store(limit.unwrap_or(DEFAULT_MAX_NS), Ordering::Relaxed);
    let budget = env::var(cmdline::HALT_SPIN_BUDGET).and_then(|pct| pct.parse().ok());
    SPIN_BUDGET_PCT.store(budget.unwrap_or(DEFAULT_BUDGET_PCT), Ordering::Relaxed);
}

/// The idle part of a core's statistics.
pub(crate) fn stats(core: usize) -> CoreStats {
    let counters = &COUNTERS[core];
    CoreStats {
        halts: counters.halts.get(),
        halted_ns: counters.halted_ns.get(),
        spins: counters.spins.get(),
        spins_caught: counters.spins_caught.get(),
        spun_ns: counters.spun_ns.get(),
        idle_turns: counters.idle_turns.get(),
        timers_armed: counters.timers_armed.get(),
        timers_renewed: counters.timers_renewed.get(),
        ..CoreStats::default()
    }
}

pub(crate) fn count_idle_turn() {
    counters().idle_turns.add(1);
}

fn counters() -> &'static Counters {
    &COUNTERS[cpu::index()]
}

/// What a core without work has to know of its scheduler.
pub(crate) trait Work {
    /// Whether there is something to run, now or by time.
    fn has_work(&self) -> bool;
    /// The nearest deadline of a thread of this core.
    fn next_deadline_ns(&self) -> Option<u64>;
    /// Announces a halt, with interrupts off; what arrives from now on comes with an interrupt.
    fn announce_halt(&self);
    /// The halt is over, or was not begun; how long ago another core undertook
    /// to end it, if one did.
    fn end_halt(&self) -> Option<u64>;
}

/// One core's idle state.
pub(crate) struct Idle {
    spin: RefCell<Option<Spin>>,
    pace: Cell<Pace>,
}

impl Idle {
    pub(crate) const fn new() -> Self {
        Self {
            spin: RefCell::new(None),
            pace: Cell::new(Pace::new()),
        }
    }

    /// Whether pollers that agree to a halt get one.
    pub(crate) fn may_halt_pollers(&self) -> bool {
        mode() != cmdline::Idle::Spin
    }

    /// Waits until there may be something to run.
    pub(crate) fn wait(&self, core: &impl Work) {
        if mode() == cmdline::Idle::Spin {
            cpu::pause();
            return;
        }
        let start_ns = clock::now_ns();
        match self.spin(core, start_ns) {
            Spun::Caught(ns) => self.with_spin(|spin| {
                spin.record(Wait::Caught(ns), start_ns + ns);
            }),
            Spun::Missed(ns) => {
                let mut pace = self.pace.get();
                let halt = halt(core, start_ns + ns, pace);
                pace.record(halt.length_ns);
                self.pace.set(pace);
                let wait_ns = ns + halt.length_ns;
                self.with_spin(|spin| {
                    if let Some(ns) = halt.way_back_ns {
                        spin.note_way_back(ns);
                    }
                    spin.record(Wait::Halted(wait_ns), start_ns + wait_ns);
                });
            }
        }
    }

    /// Spins as long as the policy says.
    fn spin(&self, core: &impl Work, start_ns: u64) -> Spun {
        let length_ns = u64::from(self.with_spin(|spin| spin.length_ns()));
        if length_ns == 0 {
            return Spun::Missed(0);
        }
        let mut now_ns = start_ns;
        while now_ns - start_ns < length_ns {
            if core.has_work() {
                break;
            }
            cpu::pause();
            now_ns = clock::now_ns();
        }
        let caught = core.has_work();
        let counters = counters();
        counters.spins.add(1);
        counters.spins_caught.add(u64::from(caught));
        counters.spun_ns.add(now_ns - start_ns);
        if caught {
            Spun::Caught(now_ns - start_ns)
        } else {
            Spun::Missed(now_ns - start_ns)
        }
    }

    fn with_spin<R>(&self, act: impl FnOnce(&mut Spin) -> R) -> R {
        let mut spin = self.spin.borrow_mut();
        act(spin.get_or_insert_with(|| {
            Spin::new(Limits {
                max_ns: SPIN_MAX_NS.load(Ordering::Relaxed),
                budget_pct: SPIN_BUDGET_PCT.load(Ordering::Relaxed),
                ..Limits::default()
            })
        }))
    }
}

/// How a spin ended, and how long it was.
enum Spun {
    Caught(u64),
    Missed(u64),
}

/// What a halt was.
struct Halt {
    length_ns: u64,
    /// From the moment in which another core decided to end it.
    way_back_ns: Option<u64>,
}

/// Halts the core until an interrupt, unless there is work; `begin_ns` is now.
fn halt(core: &impl Work, begin_ns: u64, pace: Pace) -> Halt {
    let halted = cpu::halt_if(|| {
        // With interrupts off: one that takes the announcement back ends the halt.
        core.announce_halt();
        if core.has_work() {
            return false;
        }
        arm(core.next_deadline_ns(), begin_ns, pace);
        true
    });
    let way_back_ns = core.end_halt();
    let length_ns = clock::now_ns() - begin_ns;
    if halted {
        let counters = counters();
        counters.halts.add(1);
        counters.halted_ns.add(length_ns);
    }
    Halt {
        length_ns,
        way_back_ns,
    }
}

/// Interrupts a halt at a deadline, if there is one.
fn arm(deadline_ns: Option<u64>, now_ns: u64, pace: Pace) {
    let until = |at_ns: u64| at_ns.saturating_sub(now_ns);
    if let Some(armed_ns) = timer::armed_at()
        && armed_ns > now_ns
        && pace.puts_off(until(armed_ns), deadline_ns.map(until))
    {
        timer::put_off(deadline_ns);
        return counters().timers_renewed.add(1);
    }
    let Some(deadline_ns) = deadline_ns else {
        return timer::rest();
    };
    match timer::arm(deadline_ns) {
        Armed::Already => {}
        Armed::Nearer => counters().timers_armed.add(1),
        Armed::Again => counters().timers_renewed.add(1),
    }
}
