//! The rule: polling is bought from an account.
//!
//! The budget's share of the time that passes is paid in, polling is drawn from
//! it as KVM counted it, and what is saved is bounded. Each look at KVM's
//! counters draws the curve of the waits anew and takes the best window within
//! the budget; if a better one costs more than the budget, it has turns: from
//! when enough is saved until the account is empty.

use super::curve::cost_ns;
use super::experience::Experience;
use super::lately::{KEPT_NS, Lately};
use super::reading::mul_div;
use super::{Curve, Reading, Waits};

/// Over this time waits are remembered.
const MEMORY_NS: u64 = 2_000_000_000;
/// It aims at seven eighths of its budget at most: what was saved, and what is
/// polled until a look that comes late, are on top. At 1 % that is 12.5 ms in
/// 10 s. Many vCPUs poll for more between two looks: [`Lately`] bounds that.
const AIM: (u64, u64) = (7, 8);
/// Longest time whose share of the budget is saved.
const SAVED_NS: u64 = 400_000_000;
/// CPU time of the machine between two looks, while something changes.
const LOOK_NS: u64 = 10_000_000;
/// The least of it: looks come by the host's tick, which is not finer.
const LOOK_SOON_NS: u64 = 1_000_000;
/// The same while nothing does.
const LOOK_SELDOM_NS: u64 = 20_000_000;
/// How long polling rests where others want the CPU.
const REST_NS: u64 = 1_000_000_000;
/// Less waiting for a CPU than this says nothing.
const STEAL_NOISE_NS: u64 = 1_000_000;

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
    /// The longest poll, for `KVM_CAP_HALT_POLL`.
    pub window_ns: u64,
    /// Look again when the machine has used so much CPU time: a machine that
    /// uses none is not looked at.
    pub look_after_cpu_ns: u64,
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
    window_ns: u64,
    standing: Standing,
    rest_until_ns: u64,
    look_after_ns: u64,
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
            window_ns: 0,
            standing: Standing::Idle,
            rest_until_ns: 0,
            look_after_ns: LOOK_SOON_NS,
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
        self.look_after_ns = match (self.window_ns > 0, changed) {
            (true, _) => self.spent_after_ns(),
            (false, true) => LOOK_NS,
            (false, false) => (self.look_after_ns * 2).min(LOOK_SELDOM_NS),
        };
        self.decision()
    }

    const fn decision(&self) -> Decision {
        Decision {
            window_ns: self.window_ns,
            look_after_cpu_ns: self.look_after_ns,
        }
    }

    /// CPU time after which the account may be empty, should all of it be polling.
    /// While polling is on, looking is what bounds its cost.
    fn spent_after_ns(&self) -> u64 {
        let left = u64::try_from(self.account_ns).unwrap_or(0);
        left.clamp(LOOK_SOON_NS, LOOK_NS)
    }

    fn learn(&mut self, counted: &Reading, now_ns: u64) {
        self.waits.add(counted, MEMORY_NS);
        let mut waits = Waits::new();
        waits.add(counted, MEMORY_NS);
        let predicted_ns = cost_ns(&waits, self.window_ns);
        let experience = &mut self.experience;
        experience.add(self.window_ns, counted, predicted_ns, now_ns);
        self.book(counted, now_ns);
        if contended(counted) {
            self.rest_until_ns = now_ns.saturating_add(REST_NS);
        }
        (self.window_ns, self.standing) = if now_ns < self.rest_until_ns {
            (0, Standing::Contended)
        } else {
            self.choose(now_ns)
        };
    }

    /// Pays in for the time that passed and draws what was polled.
    fn book(&mut self, counted: &Reading, now_ns: u64) {
        let paid_in = signed(self.share_of(counted.now_ns));
        let drawn = signed(counted.polled_ns());
        let balance = self.account_ns.saturating_add(paid_in);
        self.account_ns = balance
            .saturating_sub(drawn)
            .min(signed(self.most_saved_ns()));
        let lately = &mut self.lately;
        lately.add(counted.polled_ns(), counted.now_ns, now_ns);
    }

    fn choose(&self, now_ns: u64) -> (u64, Standing) {
        let curve = Curve::corrected(&self.waits, &self.experience, now_ns);
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
            _ => most / 2,
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

    /// The whole budget of [`KEPT_NS`].
    fn kept_ns(&self) -> u64 {
        mul_div(KEPT_NS, u64::from(self.settings.per_myriad), 10_000)
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

/// Whether the vCPUs waited for a CPU for more than a quarter of the time that
/// they wanted one. KVM gives a poll up then, and polling takes the
/// CPU from another thread.
fn contended(counted: &Reading) -> bool {
    let wanted = counted.run_ns.saturating_add(counted.steal_ns);
    counted.steal_ns > STEAL_NOISE_NS && counted.steal_ns > wanted / 4
}

fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}
