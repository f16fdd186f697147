//! What a whole window costs, by scripted costs and without a clock: the gate, the pace of
//! measuring and the observer's looks as they are, the programs and the kernel a model.

use super::super::super::cost::{Book, Due, Look};
use super::*;

/// The promise, share of a core.
const PROMISE: f64 = 0.02;

/// What the observing thread takes, ns.
#[derive(Clone, Copy, Debug)]
struct Own {
    /// Waking up, and reading the number of runs.
    wake_ns: u64,
    /// Reading what the programs cost.
    look_ns: u64,
    /// A look at all threads.
    sweep_ns: u64,
    /// The account at the end of the window.
    account_ns: u64,
}

/// Attaching the programs, or detaching them.
const SWITCH_NS: u64 = 1_200_000;
/// Turning the measuring of runs on or off.
const METER_SWITCH_NS: u64 = 155_000;
/// By so much the observing thread comes late.
const LATE_NS: u64 = 1_000_000;

impl Own {
    fn of(machines: u64) -> Self {
        Self {
            wake_ns: 30_000,
            look_ns: 40_000,
            sweep_ns: 60_000 + machines * 6_000,
            account_ns: 1_500_000 + machines * 55_000,
        }
    }
}

/// Runs of programs that a load makes in a second, and what one takes that counts, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Load {
    hz: u64,
    each_ns: u64,
}

const fn load(hz: u64, each_ns: u64) -> Load {
    Load { hz, each_ns }
}

const QUIET: Load = load(200, 300);
/// 30 machines that tick at 150 Hz.
const TICKS: Load = load(27_000, 250);
/// What is narrowed, and counted in slices.
const BUSY: Load = load(90_000, 200);
/// A disk's.
const FLOOD: Load = load(400_000, 170);
/// vCPUs that interrupt themselves: more than twice what one of them does.
const STORM: Load = load(1_300_000, 150);

/// A window that is watched.
struct World {
    now_ns: u64,
    map: InMemory,
    gate: Gate,
    book: Book,
    measures: bool,
    runs: u64,
    own: Own,
    own_ns: u64,
    /// What programs really took, with all around them.
    programs_ns: f64,
    /// Are the programs of the storm attached.
    attached: bool,
    next_sweep_ns: u64,
    unread: RunTime,
    counted_ns: u64,
}

impl World {
    fn new(own: Own) -> Self {
        let mut world = Self {
            now_ns: SECOND,
            map: InMemory::default(),
            gate: gate(),
            book: Book::new(SECOND),
            measures: true,
            runs: 0,
            own,
            own_ns: 0,
            programs_ns: 0.0,
            attached: true,
            next_sweep_ns: SECOND + 250 * MS,
            unread: RunTime::default(),
            counted_ns: 0,
        };
        world.gate.open(&mut world.map, SECOND);
        world
    }

    /// A millisecond of a load.
    fn pass(&mut self, load: Load) {
        let runs = load.hz / 1_000;
        let runs = if self.attached { runs } else { runs / 50 };
        // Slices are spread evenly over the periods.
        let ticks = match self.map.words.open_ticks {
            ALL => PERIOD_TICKS,
            CLOSED => 0,
            ticks => ticks,
        };
        let open = runs * ticks / PERIOD_TICKS;
        self.counted_ns += MS * ticks / PERIOD_TICKS;
        let closed = runs - open;
        let measured_ns = open * load.each_ns + closed * CLOSED_MEASURED_NS as u64;
        let around = runs as f64 * DISPATCH_NS;
        self.runs += runs;
        if self.measures {
            self.unread += RunTime {
                ns: measured_ns,
                runs,
            };
            self.programs_ns += measured_ns as f64 + runs as f64 * METER_NS + around;
        } else {
            let open_ns = open as f64 * (load.each_ns as f64 - CLOSED_MEASURED_NS);
            let alone_ns = runs as f64 * CLOSED_ALONE_NS;
            self.programs_ns += open_ns.max(0.0) + alone_ns + around;
        }
        self.now_ns += MS;
    }

    fn spend(&mut self, ns: u64) {
        self.own_ns += ns;
    }

    fn look(&mut self, due: Due) -> Option<Measured> {
        self.spend(self.own.wake_ns);
        match self.book.look(self.now_ns, self.runs, due) {
            Look::Pass => None,
            Look::Guess => {
                self.book.guess(self.now_ns, self.runs);
                None
            }
            Look::Measure => {
                self.spend(self.own.look_ns);
                let spent = std::mem::take(&mut self.unread);
                Some(self.book.measure(self.now_ns, self.runs, spent, spent))
            }
        }
    }

    fn spent(&self) -> Spent {
        Spent {
            own_ns: self.own_ns,
            programs_ns: self.book.total().ns,
            account_ns: self.own.account_ns,
        }
    }

    fn refresh(&mut self) {
        let elapsed_ns = self.book.elapsed_ns(self.now_ns);
        let due = self.gate.is_due(elapsed_ns, self.now_ns);
        let look = self.look(Due::from(due));
        self.gate.settle(self.now_ns, self.spent());
        match self.gate.choose(&mut self.map, look, self.now_ns) {
            Programs::Stay => {}
            Programs::Attach => {
                self.switch();
                self.attached = true;
                self.look(Due::Yes);
                self.gate.open_burst(&mut self.map, self.now_ns);
            }
            Programs::Detach => {
                self.switch();
                self.attached = false;
            }
        }
        let measures = self.book.after_look(self.gate.narrowed());
        if measures != self.measures {
            self.spend(METER_SWITCH_NS);
        }
        self.measures = measures;
        if self.now_ns >= self.next_sweep_ns {
            self.spend(self.own.sweep_ns);
            let pause_ns = (self.own.sweep_ns as f64 / 0.003) as u64;
            self.next_sweep_ns = self.now_ns + pause_ns.max(250 * MS);
        }
    }

    fn switch(&mut self) {
        self.spend(SWITCH_NS);
        self.gate.switched(SWITCH_NS);
    }

    /// Watches loads one after the other, each for as long, and accounts; the share of a core
    /// that it took, and that it says.
    fn watch(mut self, loads: &[Load], window_ns: u64) -> (f64, f64) {
        let began_ns = self.now_ns;
        let end_ns = began_ns + window_ns;
        while self.now_ns < end_ns {
            let look = self.gate.next_look(self.now_ns);
            let pause_ns = u64::try_from(look.as_nanos()).unwrap() + LATE_NS;
            let until_ns = end_ns.min(self.now_ns + pause_ns);
            while self.now_ns < until_ns {
                let part = (self.now_ns - began_ns) * loads.len() as u64 / window_ns;
                self.pass(loads[part as usize]);
            }
            if self.now_ns < end_ns {
                self.refresh();
            }
        }
        self.gate.freeze(&mut self.map, self.now_ns);
        self.spend(self.own.account_ns);
        self.look(Due::Yes);
        let share = |ns: f64| ns / window_ns as f64;
        let counted = share(self.counted_ns as f64);
        assert!(counted > 0.002, "{loads:?}: {counted} of the time");
        let said_ns = self.own_ns + self.book.total().ns;
        (
            share(self.own_ns as f64 + self.programs_ns),
            share(said_ns as f64),
        )
    }
}

/// All orders of three of the loads, equal ones too.
fn orders() -> Vec<[Load; 3]> {
    let all = [QUIET, TICKS, BUSY, FLOOD, STORM];
    let mut orders = Vec::new();
    for first in all {
        for second in all {
            orders.extend(all.map(|third| [first, second, third]));
        }
    }
    orders
}

#[test]
fn a_window_costs_what_is_promised_whatever_comes_in_it() {
    for machines in [1, 30, 300] {
        for seconds in [2, 4, 10] {
            let costs = orders().into_iter().map(|loads| {
                let world = World::new(Own::of(machines));
                let (took, said) = world.watch(&loads, seconds * SECOND);
                (took, said, loads)
            });
            let (took, said, loads) = costs.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
            println!("{machines} machines, {seconds} s: {took:.4}, says {said:.4}: {loads:?}");
            assert!(took < PROMISE, "{machines}, {seconds} s: {took} {loads:?}");
        }
    }
}

#[test]
fn what_watching_says_of_its_cost_is_what_it_took() {
    let parts = orders().into_iter().map(|loads| {
        let (took, said) = World::new(Own::of(30)).watch(&loads, 4 * SECOND);
        (said / took, loads)
    });
    for (part, loads) in parts {
        assert!((0.85..1.15).contains(&part), "{part}: {loads:?}");
    }
}

#[test]
fn a_storm_of_ten_minutes_costs_the_budget_and_is_counted() {
    let (took, _) = World::new(Own::of(1)).watch(&[STORM], 600 * SECOND);
    assert!((0.008..0.015).contains(&took), "{took}");
}
