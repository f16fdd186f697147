//! Our TCP beside Linux's on the same wire: goodput and what is sent again, under fifteen
//! impairments, in real time.
//!
//! The wire is `tare_tcp::wire`, which the crate's own tests use in simulated time: with
//! the same seed both arms lose packets by the same random numbers. The receiver is Linux
//! in both arms, with a tap in a network namespace of its own; the sender is Linux in
//! another, or the library OS's network stack in this process. Nothing of it is seen outside.

mod linux;
mod ours;
mod report;
#[cfg(test)]
mod tests;
mod transfer;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tare_control::sentence::chain;
use tare_control::stats::Kvm;
use tare_host::tap_namespace as tap;
use tare_tcp::wire::{COMPARED, Impairment};

use crate::bench::{Bench, RunError};
use crate::error::WeighError;
use crate::experiment::{Experiment, no_options_of_tailor};
use crate::figure::{Figure, Samples, Statistic, median, paired_ratio};
use crate::goal::Goal;
use crate::replay::Record;
use crate::report::ReportText;
use crate::request::{Depth, WeighRequest};

use transfer::{Arm, transfer};

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

/// The experiment and what it has measured.
pub(crate) struct Tcp {
    depth: Depth,
    rounds: usize,
    /// Whether 20 MiB are sent under each impairment too.
    is_long: bool,
    samples: Samples,
    /// Impairments under which 20 MiB arrived, and whether each byte was right.
    long: Vec<(String, bool)>,
    failures: Vec<String>,
    /// Tare's transfers under each impairment.
    ours: BTreeMap<String, Tally>,
}

/// How transfers ended.
#[derive(Clone, Copy, Default)]
struct Tally {
    all: usize,
    failed: usize,
}

/// A transfer to be made.
#[derive(Clone, Copy)]
struct Turn {
    key: &'static str,
    impairment: Impairment,
    arm: Arm,
    round: usize,
    bytes: usize,
}

impl Tcp {
    /// Planned for a depth.
    pub(crate) fn new(depth: Depth) -> Self {
        Self {
            depth,
            rounds: match depth {
                Depth::Quick => 1,
                Depth::Standard => 6,
                Depth::Full => 20,
            },
            is_long: depth != Depth::Quick,
            samples: Samples::default(),
            long: Vec::new(),
            failures: Vec::new(),
            ours: BTreeMap::new(),
        }
    }

    /// One transfer: a sample, whether it arrived or not.
    fn turn(&mut self, bench: &mut Bench<'_>, turn: Turn) -> Result<(), RunError> {
        let Turn {
            key,
            arm,
            round,
            bytes,
            ..
        } = turn;
        bench.interrupt.check()?;
        let limit = if bytes == BYTES { LIMIT } else { LONG_LIMIT };
        let seed = 1 + round as u64;
        let outcome = transfer(arm, turn.impairment, (bytes, seed), limit, bench.interrupt);
        bench.interrupt.check()?;
        let mut sample = json!({
            "sample": "transfer", "impairment": key, "arm": arm.name(), "round": round,
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
            let tally = self.ours.entry(key.to_owned()).or_default();
            tally.all += 1;
            tally.failed += usize::from(!complete);
        }
        if !complete {
            let why = word("failure").unwrap_or("bytes are wrong or missing");
            let mib = bytes / f64::from(1 << 20);
            self.failures
                .push(format!("{key}, {arm}, {mib} MiB: {why}"));
            return;
        }
        if bytes > BYTES as f64 {
            return;
        }
        let (Some(s), Some(segments), Some(again)) =
            (number("s"), number("segments"), number("again"))
        else {
            return;
        };
        let round = sample.get("round").and_then(Value::as_u64);
        let round = round.and_then(|round| round.try_into().ok());
        self.samples.enter_round(round.unwrap_or_default());
        let mut add = |figure: &str, unit, value| {
            self.samples
                .add(&format!("{figure}.{key}.{arm}"), unit, value);
        };
        add("goodput", "Mbit/s", bytes * 8.0 / s / 1e6);
        add("again_pct", "%", 100.0 * again / segments);
        // Half a segment more, so that nothing sent again compares too.
        add("again_share", "1", (again + 0.5) / segments);
    }

    fn values(&self, figure: &str, key: &str, arm: Arm) -> &[f64] {
        self.samples
            .values(&format!("{figure}.{key}.{}", arm.name()))
    }

    /// A figure of one arm over the other, `over`, in pairs of rounds that both have.
    fn ratio(&self, name: &str, of: &str, over: Arm, under: Arm, key: &str) -> Option<Figure> {
        let arms = [over.name(), under.name()];
        let pairs = self.samples.pairs(&format!("{of}.{key}"), arms);
        let ratios: Vec<f64> = pairs.iter().map(|(over, under)| over / under).collect();
        paired_ratio(&format!("{name}.{key}"), "1", &ratios)
    }

    /// Tare's transfers that failed.
    fn failed(&self, key: &str) -> Option<Figure> {
        let Tally { all, failed } = *self.ours.get(key)?;
        let name = format!("failed.{key}");
        let failed = failed as f64;
        Some(Figure::bare(&name, "1", failed, Statistic::Exact, all))
    }
}

/// Why this cannot be measured here.
fn obstacle() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("it makes network namespaces, which needs root".to_owned());
    }
    if !Path::new(tap::DEVICE).exists() {
        return Some(format!("{} is missing (modprobe tun)", tap::DEVICE));
    }
    let probed = std::thread::spawn(|| tap::enter("192.0.2.1/24").map(drop)).join();
    match probed {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(format!("a tap in a network namespace: {error}")),
        Err(_) => Some("a tap in a network namespace cannot be made".to_owned()),
    }
}

impl Experiment for Tcp {
    fn configure(&mut self, request: &WeighRequest) -> Result<(), WeighError> {
        no_options_of_tailor(request)?;
        match obstacle() {
            None => Ok(()),
            Some(why) => Err(WeighError::Option(format!("tcp cannot run here: {why}"))),
        }
    }

    fn planned(&self) -> Duration {
        let transfers = self.rounds * COMPARED.len() * Arm::BOTH.len();
        let long = if self.is_long { COMPARED.len() } else { 0 };
        let times = |planned: Duration, n: usize| planned * u32::try_from(n).unwrap_or(u32::MAX);
        times(PLANNED, transfers) + times(LONG_PLANNED, long)
    }

    fn plan(&self) -> Value {
        json!({
            "depth": self.depth.name(), "rounds": self.rounds, "bytes": BYTES,
            "long_bytes": if self.is_long { LONG } else { 0 }, "impairments": KEYS,
        })
    }

    fn run(&mut self, bench: &mut Bench<'_>) -> Result<(), RunError> {
        for round in 0..self.rounds {
            for (index, (key, compared)) in KEYS.into_iter().zip(COMPARED).enumerate() {
                bench.progress.step(&format!(
                    "round {} of {}: {}",
                    round + 1,
                    self.rounds,
                    compared.name
                ));
                for turn in 0..Arm::BOTH.len() {
                    // Neither is always first.
                    let arm = Arm::BOTH[(round + index + turn) % Arm::BOTH.len()];
                    let turn = Turn {
                        key,
                        impairment: compared.impairment,
                        arm,
                        round,
                        bytes: BYTES,
                    };
                    self.turn(bench, turn)?;
                    bench.progress.done(PLANNED);
                }
            }
        }
        let long = KEYS.into_iter().zip(COMPARED).filter(|_| self.is_long);
        for (key, compared) in long.collect::<Vec<_>>() {
            bench.progress.step(&format!("20 MiB: {}", compared.name));
            let turn = Turn {
                key,
                impairment: compared.impairment,
                arm: Arm::Tare,
                round: 0,
                bytes: LONG,
            };
            self.turn(bench, turn)?;
            bench.progress.done(LONG_PLANNED);
        }
        Ok(())
    }

    fn replan(&mut self, plan: &Value) {
        let rounds = plan.get("rounds").and_then(Value::as_u64);
        self.rounds = rounds
            .and_then(|it| it.try_into().ok())
            .unwrap_or(self.rounds);
    }

    fn replay(&mut self, record: &Record) -> Result<(), RunError> {
        record.of("transfer").for_each(|sample| self.note(sample));
        Ok(())
    }

    fn kvm(&self) -> Kvm {
        Kvm::None
    }

    fn figures(&self) -> Vec<Figure> {
        let mut figures = Vec::new();
        for key in KEYS {
            let of = |figure: &str, unit: &str, arm: Arm| {
                let name = format!("{figure}.{key}.{}", arm.name());
                median(&name, unit, self.values(figure, key, arm))
            };
            for arm in Arm::BOTH {
                figures.extend(of("goodput", "Mbit/s", arm));
                figures.extend(of("again_pct", "%", arm));
            }
            let (ours, linux) = (Arm::Tare, Arm::Linux);
            figures.extend(self.ratio("slowdown", "goodput", linux, ours, key));
            figures.extend(self.ratio("again_ratio", "again_share", ours, linux, key));
            figures.extend(self.failed(key));
        }
        figures
    }

    fn goals(&self) -> &'static [Goal] {
        GOALS
    }

    fn failures(&self) -> Vec<String> {
        self.failures.clone()
    }

    fn report(&self, figures: &[Figure]) -> ReportText {
        report::report_text(self, figures)
    }
}
