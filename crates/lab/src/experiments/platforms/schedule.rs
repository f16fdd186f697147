//! Which run comes next, and when to stop.
//!
//! Rounds in random order: each kind of run once, those on the host more often where
//! machines are slow, until every mean is known or the budget is spent.

use std::time::{Duration, Instant};

use super::Platforms;
use super::plan::{self, Cell, Dice};
use super::stage::Stage;
use crate::bench::{Bench, RunError};

/// A mean is known well enough at this half width, relative.
const NARROW: f64 = 0.01;
/// Runs before a mean is believed to be known.
const LEAST_RUNS: usize = 5;
/// Runs after which no kind of run is repeated, as many as the talk's.
const MOST_RUNS: usize = 20;
/// Failures in a row after which a kind of run is given up.
const PATIENCE: usize = 2;
/// How often a kind of run on the host comes in a round, at least and at most.
const HOST_TURNS: (f64, f64) = (2.0, 6.0);

/// The time for runs, and what of it is left.
struct Budget {
    begin: Instant,
    whole: Duration,
    told: Duration,
}

impl Budget {
    fn new(whole: Duration) -> Self {
        Self {
            begin: Instant::now(),
            whole,
            told: Duration::ZERO,
        }
    }

    fn left(&self) -> Duration {
        self.whole.saturating_sub(self.begin.elapsed())
    }

    /// What was spent since this was asked last.
    fn spent(&mut self) -> Duration {
        let now = self.whole - self.left();
        let since = now.saturating_sub(self.told);
        self.told = now;
        since
    }
}

impl Platforms {
    /// Runs until nothing is wanted or fits any more.
    pub(super) fn rounds(
        &mut self,
        bench: &mut Bench<'_>,
        stage: &mut Stage,
    ) -> Result<(), RunError> {
        let names: Vec<String> = self.workloads.iter().map(|w| w.name.clone()).collect();
        let cells = plan::cells(&names, &self.sizes, self.host_cpus, self.options.shard);
        let mut dice = Dice(self.seed);
        let mut budget = Budget::new(self.budget);
        let possible = cells.iter().filter(|c| stage.has(&c.place)).count();
        bench.progress.say(&format!(
            "{possible} kinds of runs; they end after {} s at the latest",
            self.budget.as_secs()
        ));
        for round in 0.. {
            let mut ran = false;
            for cell in self.order(&cells, stage, &mut dice) {
                let left = budget.left();
                if !self.fits(&cell, left) || !self.wants(&cell, stage) {
                    continue;
                }
                ran = true;
                self.once(bench, stage, &cell, round, left)?;
                bench.progress.done(budget.spent());
            }
            if !ran {
                break;
            }
            bench.progress.say(&self.forecast(round, &budget));
        }
        Ok(())
    }

    /// One round: what is wanted, in random order.
    fn order(&self, cells: &[Cell], stage: &Stage, dice: &mut Dice) -> Vec<Cell> {
        let turns = self.host_turns();
        let wanted = cells.iter().filter(|cell| self.wants(cell, stage));
        let mut order: Vec<Cell> = wanted
            .flat_map(|cell| {
                let times = match cell.place.platform.is_virtual() {
                    true => 1,
                    false => turns,
                };
                std::iter::repeat_n(cell.clone(), times)
            })
            .collect();
        dice.shuffle(&mut order);
        order
    }

    /// Runs on the host are short where machines are translated: they come so often
    /// that both take about the same time.
    fn host_turns(&self) -> usize {
        let took = |is_virtual| -> f64 {
            let of = self.took.iter();
            of.filter(|(cell, _)| cell.place.platform.is_virtual() == is_virtual)
                .map(|(_, took)| took)
                .sum()
        };
        let (host, machines) = (took(false), took(true));
        match host > 0.0 {
            true => (machines / host).clamp(HOST_TURNS.0, HOST_TURNS.1) as usize,
            false => HOST_TURNS.0 as usize,
        }
    }

    fn forecast(&self, round: u32, budget: &Budget) -> String {
        let turns = self.host_turns() as f64;
        let next: f64 = self
            .took
            .iter()
            .map(|(cell, took)| match cell.place.platform.is_virtual() {
                true => *took,
                false => took * turns,
            })
            .sum();
        format!(
            "round {} is over after {} s; the next takes about {next:.0} s, {} s are left",
            round + 1,
            budget.begin.elapsed().as_secs(),
            budget.left().as_secs()
        )
    }

    /// Whether a kind of run is to be repeated.
    fn wants(&self, cell: &Cell, stage: &Stage) -> bool {
        if !stage.has(&cell.place) || self.bad.get(cell).is_some_and(|bad| *bad >= PATIENCE) {
            return false;
        }
        let times = self.data.times(&self.host, cell);
        times.len() < LEAST_RUNS || (times.len() < MOST_RUNS && !narrow(&times))
    }

    fn fits(&self, cell: &Cell, left: Duration) -> bool {
        // What has not run yet takes at most as long as its like did.
        let like = |(other, _): &(&Cell, &f64)| {
            other.workload == cell.workload
                && other.place.platform.is_virtual() == cell.place.platform.is_virtual()
        };
        let known = self.took.get(cell).copied();
        let known = known.or_else(|| {
            let like = self.took.iter().filter(like);
            like.map(|(_, took)| *took).reduce(f64::max)
        });
        left > Duration::from_secs_f64(known.unwrap_or(0.0).max(0.0))
    }
}

fn narrow(times: &[f64]) -> bool {
    let mean = tare_stats::mean(times);
    let interval = tare_stats::mean_interval(times);
    mean.zip(interval)
        .is_some_and(|(mean, interval)| (interval.high - mean) / mean < NARROW)
}
