//! What watching may still cost: time pays a share of a core, watching draws from it.
//!
//! Everything draws: the observing thread, the programs, attaching and detaching them, the
//! first moments of a window, in which all is counted and what that costs is not known yet. And
//! the account at its end, which is known from the one before: it is saved for. What was drawn too
//! much is paid back within about [`HORIZON_NS`], so that a window that is longer than that
//! keeps the share, whatever came in it and in which order.

/// Time in which a debt is paid back.
const HORIZON_NS: f64 = 1e9;
/// Time in which the account at the end of the first window is saved for.
const SAVING_NS: f64 = 1.5e9;
/// Time from whose begin on it is known what the observing thread takes.
const SHORTEST_NS: f64 = 0.25e9;
/// What quiet times save up at most, beside the account at the end of the window: two
/// seconds of any window may take this more than their share.
const MOST_SAVED_NS: f64 = 10e6;
/// Part of the share that programs may take however large a debt is: figures come always.
const LEAST: f64 = 0.125;

/// What the window has cost so far, and the account at the end of one costs, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Spent {
    /// By the observing thread.
    pub(super) own_ns: u64,
    pub(super) programs_ns: u64,
    pub(super) account_ns: u64,
}

/// An account with time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ledger {
    /// Of a core.
    share: f64,
    balance_ns: f64,
    /// What is kept for the end of the window.
    reserve_ns: f64,
    /// What is saved for it, share of a core.
    saving: f64,
    /// What the observing thread takes of a core.
    own: f64,
    began_ns: u64,
    window_ns: u64,
    settled_ns: u64,
    /// What of this window has been drawn.
    drawn_ns: u64,
}

impl Ledger {
    pub(super) fn new(share: f64, now_ns: u64) -> Self {
        Self {
            share,
            balance_ns: 0.0,
            reserve_ns: 0.0,
            saving: 0.0,
            own: 0.0,
            began_ns: now_ns,
            window_ns: now_ns,
            settled_ns: now_ns,
            drawn_ns: 0,
        }
    }

    /// The first window begins.
    pub(super) fn open(&mut self, now_ns: u64) {
        *self = Self::new(self.share, now_ns);
    }

    /// Another window begins: what is spent counts from here.
    pub(super) fn begin(&mut self, now_ns: u64) {
        self.window_ns = now_ns;
        self.drawn_ns = 0;
    }

    /// Time pays, and what was spent since the last settlement is drawn.
    pub(super) fn charge(&mut self, now_ns: u64, spent: Spent) {
        let since = |then_ns: u64| now_ns.saturating_sub(then_ns) as f64;
        let account_ns = spent.account_ns as f64;
        let paid = self.balance_ns + self.share * since(self.settled_ns);
        let most = self.balance_ns.max(MOST_SAVED_NS + account_ns);
        let total_ns = spent.own_ns + spent.programs_ns;
        self.balance_ns = paid.min(most) - total_ns.saturating_sub(self.drawn_ns) as f64;
        self.drawn_ns = total_ns;
        self.settled_ns = self.settled_ns.max(now_ns);
        let saved = since(self.began_ns) / SAVING_NS;
        self.reserve_ns = account_ns * saved.min(1.0);
        self.saving = if saved < 1.0 {
            account_ns / SAVING_NS
        } else {
            0.0
        };
        self.own = spent.own_ns as f64 / since(self.window_ns).max(SHORTEST_NS);
    }

    /// Share of a core that programs may take from now on.
    pub(super) fn budget(&self) -> f64 {
        let free = (self.balance_ns - self.reserve_ns) / HORIZON_NS;
        (self.rate() + free).clamp(self.share * LEAST, self.share)
    }

    /// Time until so much can be drawn without a debt, if nothing but the observing thread
    /// draws until then.
    pub(super) fn affords_after(&self, next_ns: f64) -> u64 {
        let missing = next_ns + self.reserve_ns - self.balance_ns;
        // An infinite time is as long as any.
        (missing.max(0.0) / self.rate().max(self.share * LEAST)) as u64
    }

    /// What time pays beyond what is spent already.
    fn rate(&self) -> f64 {
        self.share - self.own - self.saving
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const SHARE: f64 = 0.015;

    fn spent(own_ms: u64, programs_ms: u64, account_ms: u64) -> Spent {
        Spent {
            own_ns: own_ms * MS,
            programs_ns: programs_ms * MS,
            account_ns: account_ms * MS,
        }
    }

    #[track_caller]
    fn expect_wait(ledger: &Ledger, next_ms: f64, wait_ms: u64) -> u64 {
        let wait_ns = ledger.affords_after(next_ms * 1e6);
        assert!(wait_ns.abs_diff(wait_ms * MS) <= 1_000, "{wait_ns}");
        wait_ns
    }

    #[test]
    fn a_debt_is_paid_back_before_more_is_spent() {
        let mut ledger = Ledger::new(SHARE, 0);
        ledger.charge(100 * MS, spent(0, 9, 0));
        // 1.5 ms were paid for.
        assert!((ledger.budget() - (SHARE - 0.0075)).abs() < 1e-9);
        let wait_ns = expect_wait(&ledger, 3.0, 700);
        ledger.charge(100 * MS + wait_ns, spent(0, 9, 0));
        expect_wait(&ledger, 3.0, 0);
        assert_eq!(ledger.budget(), SHARE);
    }

    #[test]
    fn the_account_at_the_end_is_saved_for() {
        let mut ledger = Ledger::new(SHARE, 0);
        ledger.charge(300 * MS, spent(0, 0, 10));
        // 4.5 ms were paid for, of which 2 are kept, and 6.7 of 15 ms a second are saved.
        expect_wait(&ledger, 2.5, 0);
        expect_wait(&ledger, 3.0, 60);
        ledger.charge(2_000 * MS, spent(0, 5, 10));
        // 15 ms are left, and 10 of them kept.
        expect_wait(&ledger, 5.0, 0);
        expect_wait(&ledger, 8.0, 200);
    }

    #[test]
    fn quiet_time_saves_for_no_storm_of_its_own_length() {
        let mut ledger = Ledger::new(SHARE, 0);
        ledger.charge(600_000 * MS, spent(0, 0, 0));
        assert_eq!(ledger.budget(), SHARE);
        ledger.charge(600_000 * MS, spent(0, 10, 0));
        expect_wait(&ledger, 3.0, 200);
    }

    #[test]
    fn windows_follow_each_other_in_one_account() {
        let mut ledger = Ledger::new(SHARE, 0);
        ledger.charge(1_000 * MS, spent(5, 30, 0));
        ledger.begin(1_000 * MS);
        ledger.charge(1_000 * MS, spent(0, 0, 0));
        // 10 ms were saved, and 35 spent.
        assert!(ledger.affords_after(0.0) > 1_600 * MS);
        // Programs keep a part.
        ledger.charge(1_001 * MS, spent(500, 0, 0));
        assert_eq!(ledger.budget(), SHARE * LEAST);
    }
}
