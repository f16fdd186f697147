//! Which run comes next, and when to stop.
//!
//! Rounds of blocks in random order: each kind of run once, those on the host more often
//! where machines are slow, until every difference is known or the budget is spent. A block
//! is a baseline with what is compared with it, in random order: all kinds of runs on the
//! host together, those of each kind of machine with their own baseline.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tare_platform::Platform;
use tare_stats::SplitMix64;

use super::Platforms;
use super::estimate::{LEAST, paired};
use super::plan::{self, Arm, Cell, Turn};
use super::stage::Stage;
use tare_lab::kit::{Bench, RunError};

/// A mean is known well enough at this half width, relative.
const NARROW: f64 = 0.01;
/// Runs before a mean is believed to be known: fewer give no interval.
const LEAST_RUNS: usize = LEAST;
/// Runs after which no kind of run is repeated. CPU-Pinning 2020's 20 do not find 5 % where
/// single runs differ by more than 4 %.
const MOST_RUNS: usize = 200;
/// A block whose runs are this short, s, comes twice as often as other kinds of runs.
const SHORT_S: f64 = 1.0;
/// Failures in a row after which a kind of run is given up.
const MOST_FAILURES: usize = 2;
/// How often a kind of run on the host comes in a round, at least and at most.
const HOST_TURNS: (f64, f64) = (2.0, 6.0);

/// The time for runs, and what of it is left.
struct Budget {
    begin: Instant,
    whole: Duration,
    reported: Duration,
}

impl Budget {
    fn new(whole: Duration) -> Self {
        Self {
            begin: Instant::now(),
            whole,
            reported: Duration::ZERO,
        }
    }

    fn left(&self) -> Duration {
        self.whole.saturating_sub(self.begin.elapsed())
    }

    /// What was spent since this was asked last.
    fn spent(&mut self) -> Duration {
        let now = self.whole - self.left();
        let since = now.saturating_sub(self.reported);
        self.reported = now;
        since
    }
}

impl Platforms {
    /// Runs until nothing is wanted or fits any more.
    pub(crate) fn rounds(
        &mut self,
        bench: &mut Bench<'_>,
        stage: &mut Stage,
    ) -> Result<(), RunError> {
        let names: Vec<String> = self.workloads.iter().map(|w| w.name.clone()).collect();
        let (cpus, shard) = (self.host_cpus, self.options.shard);
        let mut cells = plan::cells(&names, &self.options.wanted(), &self.sizes, cpus, shard);
        let has_appliance = |cell: &Cell| {
            let mut ours = self.workloads.iter().filter(|w| w.name == cell.workload);
            ours.any(|workload| workload.appliance.is_some())
        };
        cells.retain(|cell| cell.place.platform != Platform::Appliance || has_appliance(cell));
        let mut dice = SplitMix64::new(self.seed);
        let mut budget = Budget::new(self.budget);
        let blocks = plan::blocks(&cells);
        let possible = cells.iter().filter(|c| stage.has(&c.place)).count();
        bench.progress.say(&format!(
            "{possible} kinds of runs; they end after {} s at the latest",
            self.budget.as_secs()
        ));
        for round in 0.. {
            let mut ran = false;
            for mut block in self.order(&blocks, round, stage, &mut dice) {
                if !self.wants(&block, stage) {
                    continue;
                }
                dice.shuffle(&mut block);
                let turn = Turn {
                    round,
                    block: now_ms(),
                };
                for cell in &block {
                    let left = budget.left();
                    if self.fits(cell, left) && !self.gave_up(cell) {
                        ran = true;
                        self.once(bench, stage, cell, turn, left)?;
                        bench.progress.done(budget.spent());
                    }
                }
            }
            if !ran {
                break;
            }
            bench.progress.say(&self.forecast(&blocks, round, &budget));
        }
        let possible = cells.iter().filter(|cell| stage.has(&cell.place));
        if let Some(sentence) = self.skipped(possible) {
            bench.progress.say(&sentence);
            self.missing.push(sentence);
        }
        Ok(())
    }

    /// Which of these kinds of runs were skipped because there was no time for them, or for
    /// the first only. Those that failed have said why.
    pub(crate) fn skipped<'a>(&self, cells: impl Iterator<Item = &'a Cell>) -> Option<String> {
        let is_skipped = |cell: &&Cell| {
            let runs = || self.data.runs.iter().filter(|run| run.cell == **cell);
            let failed = runs().any(|run| run.failure.is_some());
            cell.arm == Arm::Main && !failed && runs().all(|run| run.warm_up)
        };
        let name = |cell: &Cell| {
            let warmed = self.data.runs.iter().any(|run| run.cell == *cell);
            let why = if warmed { " (one, to warm up)" } else { "" };
            format!("{} on {}{why}", cell.workload, cell.place)
        };
        let cells: Vec<String> = cells.filter(is_skipped).map(name).collect();
        (!cells.is_empty()).then(|| {
            format!(
                "no time was left for runs that count of {}; give more with --budget",
                cells.join(", ")
            )
        })
    }

    /// One round: what is wanted, in random order; in the first one each once, so that
    /// there is something of all.
    fn order(
        &self,
        blocks: &[Vec<Cell>],
        round: u32,
        stage: &Stage,
        dice: &mut SplitMix64,
    ) -> Vec<Vec<Cell>> {
        let wanted = blocks.iter().filter(|block| self.wants(block, stage));
        let turns = |block: &Vec<Cell>| if round == 0 { 1 } else { self.turns(block) };
        let mut order: Vec<Vec<Cell>> = wanted
            .flat_map(|block| std::iter::repeat_n(block.clone(), turns(block)))
            .collect();
        dice.shuffle(&mut order);
        order
    }

    /// How often a block comes in a round.
    fn turns(&self, block: &[Cell]) -> usize {
        let is_virtual = |cell: &Cell| cell.place.platform.has_linux_guest();
        let longest = block.iter().filter_map(|cell| self.took.get(cell).copied());
        if block.iter().any(is_virtual) {
            return 1;
        }
        if longest.fold(0.0, f64::max) < SHORT_S {
            return 2 * self.host_turns();
        }
        self.host_turns()
    }

    /// Runs on the host are short where machines are translated: they come so often
    /// that both take about the same time.
    fn host_turns(&self) -> usize {
        let took = |is_virtual| -> f64 {
            let of = self.took.iter();
            of.filter(|(cell, _)| cell.place.platform.has_linux_guest() == is_virtual)
                .map(|(_, took)| took)
                .sum()
        };
        let (host, machines) = (took(false), took(true));
        if host > 0.0 {
            (machines / host).clamp(HOST_TURNS.0, HOST_TURNS.1) as usize
        } else {
            HOST_TURNS.0 as usize
        }
    }

    fn forecast(&self, blocks: &[Vec<Cell>], round: u32, budget: &Budget) -> String {
        let took = |block: &Vec<Cell>| -> f64 {
            let once: f64 = block.iter().filter_map(|cell| self.took.get(cell)).sum();
            once * self.turns(block) as f64
        };
        let next: f64 = blocks.iter().map(took).sum();
        format!(
            "round {} is over after {} s; the next takes about {next:.0} s, {} s are left",
            round + 1,
            budget.begin.elapsed().as_secs(),
            budget.left().as_secs()
        )
    }

    /// Whether a block is to be repeated.
    fn wants(&self, block: &[Cell], stage: &Stage) -> bool {
        let possible = |cell: &&Cell| stage.has(&cell.place) && !self.gave_up(cell);
        block
            .iter()
            .filter(possible)
            .any(|cell| self.vague(cell, block))
    }

    fn gave_up(&self, cell: &Cell) -> bool {
        self.bad.get(cell).is_some_and(|bad| *bad >= MOST_FAILURES)
    }

    /// Whether more runs would tell more: of a mean, of an arm beside its baseline the
    /// difference.
    fn vague(&self, cell: &Cell, block: &[Cell]) -> bool {
        let times = self.data.times(&self.host, cell);
        let Some(main) = block
            .iter()
            .find(|other| other.is_baseline() && *other != cell)
        else {
            return times.len() < LEAST_RUNS || (times.len() < MOST_RUNS && !narrow(&times));
        };
        let ratios = self.data.pairs(&self.host, main, cell);
        let known = paired(&ratios)
            .and_then(|ratio| ratio.interval)
            .is_some_and(|it| (it.high - it.low) / 2.0 < NARROW);
        ratios.len() < LEAST_RUNS || (ratios.len() < MOST_RUNS && !known)
    }

    fn fits(&self, cell: &Cell, left: Duration) -> bool {
        // What has not run yet takes at most as long as its like did.
        let like = |(other, _): &(&Cell, &f64)| {
            other.workload == cell.workload
                && other.place.platform.has_linux_guest() == cell.place.platform.has_linux_guest()
        };
        let known = self.took.get(cell).copied().or_else(|| {
            let like = self.took.iter().filter(like);
            like.map(|(_, took)| *took).reduce(f64::max)
        });
        left > Duration::from_secs_f64(known.unwrap_or(0.0).max(0.0))
    }
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_millis() as u64)
}

fn narrow(times: &[f64]) -> bool {
    let mean = tare_stats::mean(times);
    let interval = tare_stats::mean_interval(times);
    mean.zip(interval)
        .is_some_and(|(mean, interval)| (interval.high - mean) / mean < NARROW)
}
