//! Our TCP beside Linux's on the same wire: goodput and what is sent again, under fifteen
//! impairments, in real time.
//!
//! The wire is `tare_tcp::wire`, which the crate's own tests use in simulated time: with
//! the same seed both arms lose packets by the same random numbers. The receiver is Linux
//! in both arms, with a tap in its own network namespace; the sender is Linux in
//! another, or the library OS's network stack in this process. Nothing of it is seen outside.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tare_control::sentence::chain;
use tare_lab::kit::{
    Bench, Data, Depth, Entry, Experiment, Figure, Goal, Make, Metric, Record, ReportText,
    RunError, Statistic, Template, Turn, WeighError, has_data, metrics, replanned, rounds, row,
};
use tare_load::tcp::{Arm, obstacle, transfer};
use tare_tcp::wire::COMPARED;

/// Bytes of a transfer that is compared.
const BYTES: usize = 1 << 20;
/// Bytes of the one that must only be right.
const LONG: usize = 20 << 20;
/// Longest time of a transfer, and of a long one.
const LIMIT: Duration = Duration::from_secs(30);
const LONG_LIMIT: Duration = Duration::from_secs(240);
/// What a transfer is planned to take on average.
const PLANNED: Duration = Duration::from_millis(800);
const LONG_PLANNED: Duration = Duration::from_secs(15);

/// The impairments' names in figures, in the order of [`COMPARED`].
const KEYS: [&str; 15] = [
    "clean",
    "loss_01",
    "loss_1",
    "loss_5",
    "reorder",
    "duplicate",
    "corrupt",
    "rtt_20",
    "rtt_100",
    "jitter",
    "queue_50",
    "queue_8",
    "rtt_20_loss",
    "rtt_100_loss",
    "all",
];

metrics! {
    GOODPUT: more("goodput", "Mbit/s");
    AGAIN: less("again_pct", "%");
    SLOWDOWN: less("slowdown", "1");
    AGAIN_RATIO: less("again_ratio", "1");
    FAILED: less("failed", "1");
}
/// Segments sent again and half a segment, so that nothing sent again compares too.
const AGAIN_SHARE: Metric = Metric::less("again_share", "1");

/// Goodput of at least 0.8 of Linux's, at most 1.5 times its share of segments sent again, and
/// no transfer that fails: it has no time, so that no ratio shows it.
macro_rules! goals {
    ($($key:literal)*) => {
        &[$(
            Goal::on_any(concat!("slowdown.", $key), 1.25),
            Goal::on_any(concat!("again_ratio.", $key), 1.5),
            Goal::on_any(concat!("failed.", $key), 0.0),
        )*]
    };
}

const GOALS: &[Goal] = goals!(
    "clean" "loss_01" "loss_1" "loss_5" "reorder" "duplicate" "corrupt" "rtt_20" "rtt_100"
    "jitter" "queue_50" "queue_8" "rtt_20_loss" "rtt_100_loss" "all"
);

/// The experiment.
pub(super) const ENTRY: Entry = Entry {
    name: "tcp",
    about: "our TCP beside Linux's on the same wire, under fifteen impairments",
    metrics: METRICS,
    goals: GOALS,
    make: Make::Other(|depth| Box::new(Tcp::new(depth))),
};

/// The experiment and what it has measured.
pub(crate) struct Tcp {
    depth: Depth,
    rounds: usize,
    /// Whether 20 MiB are sent under each impairment too.
    is_long: bool,
    data: Data,
    /// Impairments under which 20 MiB arrived, and whether each byte was right.
    long: Vec<(String, bool)>,
    /// Tare's transfers under each impairment, and those that failed.
    ours: BTreeMap<String, [usize; 2]>,
}

impl Tcp {
    /// Planned for a depth.
    pub(crate) fn new(depth: Depth) -> Self {
        Self {
            depth,
            rounds: depth.of([1, 6, 20]),
            is_long: depth != Depth::Quick,
            data: Data::default(),
            long: Vec::new(),
            ours: BTreeMap::new(),
        }
    }

    /// Takes a sample, measured now or read from a record.
    fn note(&mut self, sample: &Value) {
        let word = |name: &str| sample.get(name).and_then(Value::as_str);
        let number = |name: &str| sample.get(name).and_then(Value::as_f64);
        let (Some(key), Some(arm)) = (word("impairment"), word("arm")) else {
            return;
        };
        let bytes = number("bytes").unwrap_or_default();
        let complete = number("received") == Some(bytes)
            && sample.get("right").and_then(Value::as_bool) == Some(true);
        if bytes > BYTES as f64 {
            self.long.push((key.to_owned(), complete));
        }
        if arm == Arm::Tare.name() {
            let [all, failed] = self.ours.entry(key.to_owned()).or_default();
            *all += 1;
            *failed += usize::from(!complete);
        }
        if !complete {
            let why = word("failure").unwrap_or("bytes are wrong or missing");
            let mib = bytes / f64::from(1 << 20);
            let failed = format!("{key}, {arm}, {mib} MiB: {why}");
            self.data.failures.push(failed);
            return;
        }
        if bytes > BYTES as f64 {
            return;
        }
        let numbers = ["s", "segments", "again"].map(number);
        let [Some(s), Some(segments), Some(again)] = numbers else {
            return;
        };
        let samples = &mut self.data.samples;
        samples.enter_round(number("round").unwrap_or_default() as usize);
        for (metric, value) in [
            (GOODPUT, bytes * 8.0 / s / 1e6),
            (AGAIN, 100.0 * again / segments),
            (AGAIN_SHARE, (again + 0.5) / segments),
        ] {
            samples.put(metric, &format!("{key}.{arm}"), value);
        }
    }

    /// A figure of one arm over the other, `over`, in pairs of rounds that both have.
    fn ratio(
        &self,
        metric: Metric,
        of: Metric,
        [over, under]: [Arm; 2],
        key: &str,
    ) -> Option<Figure> {
        let arms = [over.name(), under.name()];
        metric.paired(key, &self.data.samples.ratios(&of.of(key), arms))
    }

    /// Tare's transfers that failed.
    fn failed(&self, key: &str) -> Option<Figure> {
        let [all, failed] = *self.ours.get(key)?;
        let (name, unit) = (FAILED.of(key), FAILED.unit);
        Some(Figure::bare(
            &name,
            unit,
            failed as f64,
            Statistic::Exact,
            all,
        ))
    }
}
impl Experiment for Tcp {
    has_data!();

    fn configure(&mut self) -> Result<(), WeighError> {
        match obstacle() {
            None => Ok(()),
            Some(why) => Err(WeighError::Option(format!("tcp cannot run here: {why}"))),
        }
    }

    fn plan(&self) -> Value {
        json!({
            "depth": self.depth.name(), "rounds": self.rounds, "bytes": BYTES,
            "long_bytes": if self.is_long { LONG } else { 0 }, "impairments": KEYS,
        })
    }

    fn replan(&mut self, plan: &Value) {
        replanned(plan, "rounds", &mut self.rounds);
    }

    /// Of each impairment both arms, of which neither is always first; then the long transfers,
    /// Tare's alone.
    fn turns(&self) -> Vec<Turn> {
        let turn = |key: usize, place: usize, round: usize| {
            let arm = (round + key + place) % Arm::BOTH.len();
            let index = key * Arm::BOTH.len() + arm;
            Some(Turn::new(index, COMPARED[key].name, PLANNED))
        };
        let mut turns = rounds(self.rounds, &[Arm::BOTH.len(); KEYS.len()], 0, turn);
        let long = COMPARED.iter().enumerate().filter(|_| self.is_long);
        turns.extend(long.map(|(key, compared)| Turn {
            round: self.rounds,
            step: format!("20 MiB: {}", compared.name),
            ..Turn::new(key * Arm::BOTH.len(), compared.name, LONG_PLANNED)
        }));
        turns
    }

    /// One transfer: a sample, whether it arrived or not.
    fn take_turn(&mut self, bench: &mut Bench<'_>, turn: &Turn) -> Result<(), RunError> {
        bench.interrupt.check()?;
        let arm = Arm::BOTH[turn.index % Arm::BOTH.len()];
        let place = turn.index / Arm::BOTH.len();
        let (round, bytes, limit) = if turn.round < self.rounds {
            (turn.round, BYTES, LIMIT)
        } else {
            (0, LONG, LONG_LIMIT)
        };
        let seed = 1 + round as u64;
        let impairment = COMPARED[place].impairment;
        let outcome = transfer(arm, impairment, (bytes, seed), limit, bench.interrupt);
        bench.interrupt.check()?;
        let mut sample = json!({
            "sample": "transfer", "impairment": KEYS[place], "arm": arm.name(), "round": round,
            "bytes": bytes,
        });
        let result = match outcome {
            Ok(outcome) => json!({
                "s": outcome.received.took.as_secs_f64(), "received": outcome.received.bytes,
                "right": outcome.received.is_right, "segments": outcome.segments,
                "again": outcome.again,
            }),
            Err(error) => json!({"failure": chain(&error)}),
        };
        if let (Value::Object(sample), Value::Object(result)) = (&mut sample, result) {
            sample.extend(result);
        }
        bench.recorder.sample(&sample)?;
        self.note(&sample);
        Ok(())
    }

    fn replay(&mut self, record: &Record) -> Result<(), RunError> {
        record.of("transfer").for_each(|sample| self.note(sample));
        Ok(())
    }

    fn figures(&self) -> Vec<Figure> {
        let mut figures = Vec::new();
        let (ours, linux) = (Arm::Tare, Arm::Linux);
        for key in KEYS {
            for arm in Arm::BOTH {
                let arm = format!("{key}.{}", arm.name());
                figures.extend([GOODPUT, AGAIN].into_iter().filter_map(|metric| {
                    metric.median(&arm, self.data.samples.values(&metric.of(&arm)))
                }));
            }
            figures.extend(self.ratio(SLOWDOWN, GOODPUT, [linux, ours], key));
            figures.extend(self.ratio(AGAIN_RATIO, AGAIN_SHARE, [ours, linux], key));
            figures.extend(self.failed(key));
        }
        figures
    }

    fn report(&self, figures: &[Figure]) -> ReportText {
        let (fast, of_fast) = within(figures, SLOWDOWN, 1.25);
        let (lean, of_lean) = within(figures, AGAIN_RATIO, 1.5);
        let right = self.long.iter().filter(|(_, is_right)| *is_right).count();
        let text = Template::new(include_str!("report.md"), METRICS, figures)
            .set("fast", fast)
            .set("of_fast", of_fast)
            .set("lean", lean)
            .set("of_lean", of_lean)
            .set("long_mib", LONG >> 20)
            .set("right", right)
            .maybe("of_right", Some(self.long.len()).filter(|all| *all > 0))
            .set("mib", BYTES >> 20)
            .set("rounds", self.rounds);
        let impairments = KEYS.into_iter().zip(COMPARED);
        let rows = impairments.map(|(key, it)| row([("key", key), ("name", it.name)]));
        text.report_with([], [text.tabled("goodput", rows)], &[])
    }
}

/// Under how many impairments a figure is at most `most`, and of how many. One under which a
/// transfer failed counts, and not as a good one.
fn within(figures: &[Figure], metric: Metric, most: f64) -> (usize, usize) {
    let has_failed = |key: &str| {
        FAILED
            .value(figures, key)
            .is_some_and(|failed| failed > 0.0)
    };
    let of = |key: &str| metric.value(figures, key);
    let counted = KEYS
        .iter()
        .filter(|key| of(key).is_some() || has_failed(key));
    let is_good = |key: &&&str| of(key).is_some_and(|it| it <= most) && !has_failed(key);
    (counted.clone().filter(is_good).count(), counted.count())
}
