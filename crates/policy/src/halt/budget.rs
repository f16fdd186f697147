//! The rule: polling is bought from an account.
//!
//! The budget's share of the time that passes is paid in, polling is drawn from
//! it as KVM counted it, and what is saved is bounded. Each look at KVM's
//! counters draws the curve of the waits anew and takes the best window within
//! the budget; if a better one costs more than the budget, it has turns: from
//! when enough is saved until the account is empty.

use super::curve::cost_ns;
use super::experience::Experience;
use super::gaps::{self, Gaps, Holding};
use super::lately::{KEPT_NS, Lately, SLOT_NS};
use super::reading::mul_div;
use super::{Curve, Reading, Waits};

/// Over this time waits are remembered.
const MEMORY_NS: u64 = 2_000_000_000;
/// It aims at 15 sixteenths of its budget at most: what was saved, and what is
/// polled until a look that comes late, are on top. At 1 % that is 6 ms in
/// 10 s. Many vCPUs poll for more between two looks: [`Lately`] bounds that.
const AIM: (u64, u64) = (15, 16);
/// Longest time whose share of the budget is saved.
const SAVED_NS: u64 = 400_000_000;
/// CPU time of the machine between two looks, while something changes.
const LOOK_NS: u64 = 10_000_000;
/// The least of it: looks come by the host's tick, which is not finer.
const LOOK_SOON_NS: u64 = 1_000_000;
/// The same while nothing does.
const LOOK_SELDOM_NS: u64 = 20_000_000;
/// A machine whose halts are closer together than this is looked at by the clock too.
const HALTS_SELDOM_NS: u64 = 250_000_000;
/// The longest time between two looks by the clock.
const LOOK_BY_CLOCK_NS: u64 = 1_000_000_000;
/// How long polling rests where others want the CPU. What they wanted is remembered for longer
/// ([`STEAL_MEMORY_NS`]): a rest of that length as well would follow the start of every machine.
const REST_NS: u64 = 250_000_000;
/// Less waiting for a CPU than this says nothing.
const STEAL_NOISE_NS: u64 = 1_000_000;
/// Over this time waiting for a CPU is held against running. A machine in bursts runs for less than
/// a millisecond between two looks: one delay of the host's would be more than all of that.
const STEAL_MEMORY_NS: u64 = 1_000_000_000;

/// What the rule may spend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Share of one CPU for all vCPUs of the machine together, in units of
    /// 0.01 %.
    pub per_myriad: u16,
}

/// Why the window is as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// Nothing is known yet, or no window is worth having.
    #[default]
    Idle,
    /// The best window costs no more than the budget.
    Within,
    /// The better window of two has its turn.
    Spending,
    /// The other one has, while budget is saved.
    Saving,
    /// Other tasks want this CPU: nothing is polled for a while.
    Contended,
}

/// What to do until the next look.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// How long waits are to be polled for.
    pub window_ns: u64,
    /// What is set by `KVM_CAP_HALT_POLL` for that: the window, or in turns twice the window and
    /// more than any gap between bursts.
    pub limit_ns: u64,
    /// Look again when the machine has used so much CPU time: a machine that
    /// uses none is not looked at.
    pub look_after_cpu_ns: u64,
    /// Look again when so much time has passed too, while bursts go on.
    pub look_after_ns: Option<u64>,
}

/// The rule for one machine.
#[derive(Clone, Debug)]
pub struct Budget {
    settings: Settings,
    last: Option<Reading>,
    waits: Waits,
    experience: Experience,
    /// What may still be spent; below zero, what was spent too much.
    account_ns: i64,
    lately: Lately,
    demand: Demand,
    gaps: Gaps,
    holds: bool,
    window_ns: u64,
    limit_ns: u64,
    standing: Standing,
    rest_until_ns: u64,
    look_after_cpu_ns: u64,
    look_after_ns: Option<u64>,
}

impl Budget {
    /// No polling until something is known.
    pub const fn new(settings: Settings) -> Self {
        Self {
            settings,
            last: None,
            waits: Waits::new(),
            experience: Experience::new(),
            account_ns: 0,
            lately: Lately::new(),
            demand: Demand::NONE,
            gaps: Gaps::new(),
            holds: false,
            window_ns: 0,
            limit_ns: 0,
            standing: Standing::Idle,
            rest_until_ns: 0,
            look_after_cpu_ns: LOOK_SOON_NS,
            look_after_ns: None,
        }
    }

    /// Looks at KVM's counters and decides.
    pub fn look(&mut self, reading: &Reading) -> Decision {
        let before = (self.window_ns, self.standing);
        let Some(last) = self.last.replace(*reading) else {
            return self.decision();
        };
        self.learn(&reading.since(&last), reading.now_ns);
        let changed = before != (self.window_ns, self.standing);
        self.look_after_cpu_ns = match (self.window_ns > 0, changed) {
            (true, _) => self.spent_after_ns(),
            (false, true) => LOOK_NS,
            (false, false) => (self.look_after_cpu_ns * 2).min(LOOK_SELDOM_NS),
        };
        self.decision()
    }

    const fn decision(&self) -> Decision {
        Decision {
            window_ns: self.window_ns,
            limit_ns: self.limit_ns,
            look_after_cpu_ns: self.look_after_cpu_ns,
            look_after_ns: self.look_after_ns,
        }
    }

    /// CPU time after which the account may be empty, should all of it be polling.
    /// While polling is on, looking is what bounds its cost. A window that costs less than the budget
    /// empties no account: there the rest of what ten seconds allow may be spent until the next look.
    /// A vCPU that never halts would have a look at each tick otherwise, which costs as much as the
    /// polling, and takes the CPU from a vCPU that is polled for.
    fn spent_after_ns(&self) -> u64 {
        let left_ns = u64::try_from(self.account_ns).unwrap_or(0);
        let left_ns = left_ns.clamp(LOOK_SOON_NS, LOOK_NS);
        if self.standing != Standing::Within {
            return left_ns;
        }
        let kept_ns = self.kept_ns();
        let unspent_ns = kept_ns.saturating_sub(self.lately.with_next_ns());
        left_ns.max(unspent_ns.min(LOOK_SELDOM_NS))
    }

    fn learn(&mut self, counted: &Reading, now_ns: u64) {
        self.waits.add(counted, MEMORY_NS);
        let mut waits = Waits::new();
        waits.add(counted, MEMORY_NS);
        let predicted_ns = cost_ns(&waits, self.window_ns);
        let experience = &mut self.experience;
        experience.add(self.window_ns, counted, predicted_ns, now_ns);
        self.book(counted, now_ns);
        self.demand.add(counted);
        if self.demand.is_contended() {
            self.rest_until_ns = now_ns.saturating_add(REST_NS);
        }
        let curve = Curve::corrected(&self.waits, &self.experience, now_ns);
        (self.window_ns, self.standing) = if now_ns < self.rest_until_ns {
            (0, Standing::Contended)
        } else {
            self.choose(&curve)
        };
        self.hold(counted, curve.cost_ppm(self.window_ns));
    }

    /// Holds the window open across gaps where that can be paid for, and says when to look by the
    /// clock.
    fn hold(&mut self, counted: &Reading, cost_ppm: u64) {
        let needed = if self.holds { 0 } else { self.enough_ns() };
        let holding = Holding::of(&self.waits, self.window_ns, self.budget_ppm()).filter(
            |holding| match self.standing {
                Standing::Within => {
                    self.account_ns > needed
                        && cost_ppm.saturating_add(holding.extra_ppm) <= self.budget_ppm()
                }
                Standing::Spending => holding.pays(cost_ppm),
                _ => false,
            },
        );
        self.holds = holding.is_some();
        if self.holds {
            self.limit_ns = self.gaps.limit_ns(counted, self.window_ns);
        } else {
            self.gaps.rest();
            self.limit_ns = self.window_ns * 2;
        }
        let halts_often = self
            .waits
            .mean_every_ns()
            .is_some_and(|ns| ns < HALTS_SELDOM_NS);
        let looks = [
            holding.map(|holding| holding.look_every_ns),
            self.turn_ns(cost_ppm).filter(|_| halts_often),
            halts_often.then_some(LOOK_BY_CLOCK_NS),
        ];
        self.look_after_ns = looks.into_iter().flatten().min();
    }

    /// The time after which a turn may end: the account is empty, enough is saved for the better
    /// window, or some of what was polled lately is forgotten. Ticks alone would not do: they
    /// hardly ever meet a machine that runs for little of the time.
    fn turn_ns(&self, cost_ppm: u64) -> Option<u64> {
        let soonest_ns = gaps::soonest_look_ns(self.budget_ppm());
        match self.standing {
            Standing::Spending => {
                let left_ns = u64::try_from(self.account_ns).unwrap_or(0);
                let over_ppm = cost_ppm.saturating_sub(self.budget_ppm());
                // Enough was saved for this look before the turn began.
                let turn_ns = mul_div(left_ns, 1_000_000, over_ppm);
                // Several vCPUs poll in bursts, so that their costs come in lumps.
                let most_ns = (4 * soonest_ns).min(SLOT_NS);
                Some(turn_ns.clamp(LOOK_SOON_NS, most_ns.max(LOOK_SOON_NS)))
            }
            Standing::Saving => {
                let lacking_ns = self.enough_ns().saturating_sub(self.account_ns);
                let turn_ns = match u64::try_from(lacking_ns) {
                    Ok(lacking_ns @ 1..) => {
                        mul_div(lacking_ns, 1_000_000 * AIM.1, self.budget_ppm() * AIM.0)
                    }
                    _ => SLOT_NS,
                };
                Some(turn_ns.clamp(soonest_ns.min(SLOT_NS), SLOT_NS))
            }
            Standing::Within => Some((8 * soonest_ns).min(SLOT_NS)),
            _ => None,
        }
    }

    /// Pays in for the time that passed and draws what was polled.
    fn book(&mut self, counted: &Reading, now_ns: u64) {
        let paid_in = signed(self.share_of(counted.now_ns));
        // Those by CPU time come with work that the machine does anyway.
        let by_clock = self
            .look_after_ns
            .is_some_and(|after_ns| counted.now_ns >= after_ns);
        let look_ns = if by_clock { gaps::LOOK_COST_NS } else { 0 };
        let drawn = signed(counted.polled_ns().saturating_add(look_ns));
        let balance = self.account_ns.saturating_add(paid_in);
        self.account_ns = balance
            .saturating_sub(drawn)
            .min(signed(self.most_saved_ns()));
        let lately = &mut self.lately;
        lately.add(counted.polled_ns(), counted.now_ns, now_ns);
    }

    fn choose(&self, curve: &Curve) -> (u64, Standing) {
        let (lower, upper) = curve.around(self.aim());
        let most = signed(self.most_saved_ns());
        let is_spent = self.lately.with_next_ns() > self.kept_ns();
        // The curve was wrong about what even the lower window costs.
        if self.account_ns < -most || is_spent {
            return (0, Standing::Saving);
        }
        if upper == lower {
            let standing = match upper {
                0 => Standing::Idle,
                _ => Standing::Within,
            };
            return (upper, standing);
        }
        let needed = match self.standing {
            Standing::Spending => 0,
            _ => self.enough_ns(),
        };
        if self.account_ns > needed {
            (upper, Standing::Spending)
        } else {
            (lower, Standing::Saving)
        }
    }

    /// The aimed share in units of 0.01 %.
    fn aim(&self) -> u16 {
        let aim = mul_div(self.share_of(KEPT_NS), 10_000, KEPT_NS);
        u16::try_from(aim).unwrap_or(u16::MAX)
    }

    fn share_of(&self, time_ns: u64) -> u64 {
        // Finer than `aim`, which rounds the smallest budgets to nothing.
        let share = u64::from(self.settings.per_myriad) * AIM.0;
        mul_div(time_ns, share, 10_000 * AIM.1)
    }

    fn most_saved_ns(&self) -> u64 {
        self.share_of(SAVED_NS)
    }

    /// What is to be saved before something more expensive begins.
    fn enough_ns(&self) -> i64 {
        signed(self.most_saved_ns()) / 2
    }

    fn budget_ppm(&self) -> u64 {
        u64::from(self.settings.per_myriad) * 100
    }

    /// The budget of [`KEPT_NS`], but for what a look adds that comes later than any so far.
    fn kept_ns(&self) -> u64 {
        let per_myriad = u64::from(self.settings.per_myriad);
        mul_div(KEPT_NS - KEPT_NS / 32, per_myriad, 10_000)
    }

    /// The window in force.
    pub const fn window_ns(&self) -> u64 {
        self.window_ns
    }

    /// Why it is so.
    pub const fn standing(&self) -> Standing {
        self.standing
    }

    /// The limits that this was made with.
    pub const fn settings(&self) -> Settings {
        self.settings
    }
}

/// How long the vCPUs wanted a CPU lately, and did not get one. What is old fades.
#[derive(Clone, Copy, Debug)]
struct Demand {
    run_ns: u64,
    steal_ns: u64,
}

impl Demand {
    const NONE: Self = Self {
        run_ns: 0,
        steal_ns: 0,
    };

    fn add(&mut self, counted: &Reading) {
        let all_ns = STEAL_MEMORY_NS.saturating_add(counted.now_ns);
        let add =
            |sum_ns: u64, more_ns| mul_div(sum_ns, STEAL_MEMORY_NS, all_ns).saturating_add(more_ns);
        self.run_ns = add(self.run_ns, counted.run_ns);
        self.steal_ns = add(self.steal_ns, counted.steal_ns);
    }

    /// Whether they waited for more than a quarter of the time that they wanted a CPU. KVM gives a
    /// poll up then, and polling takes the CPU from another thread.
    fn is_contended(&self) -> bool {
        let wanted_ns = self.run_ns.saturating_add(self.steal_ns);
        self.steal_ns > STEAL_NOISE_NS && self.steal_ns > wanted_ns / 4
    }
}

fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}
