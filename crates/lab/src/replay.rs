//! A record read back: the samples of an earlier run instead of machines.
//!
//! Experiments whose images print what they measure run unchanged on a `Replay`, which
//! hands out the recorded lines where a machine would have printed them; the others read
//! [`Record::lines`].

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tare_account::Account;
use tare_control::stats::Stats;
use tare_load::interrupt::Interrupt;
use tare_machines::appliance::{
    Appliance, ApplianceError, Executor, Guest, GuestSpec, ServedGuest, ServerKind,
};
use tare_machines::linux::catalog::App;
use tare_machines::observe::CpuReading;
use tare_machines::versions::{self, Versions};

use crate::error::WeighError;
use crate::host::HostFacts;
use crate::summary::Digests;

/// The lines of a `raw.jsonl`.
#[derive(Debug)]
pub struct Record {
    /// The run directory.
    pub dir: PathBuf,
    /// All lines that are JSON; one that was cut off is passed over.
    pub lines: Vec<Value>,
}

impl Record {
    /// Reads the record in a run directory.
    pub fn read(dir: &Path) -> Result<Self, WeighError> {
        let path = dir.join("raw.jsonl");
        let text = fs::read_to_string(&path).map_err(|source| WeighError::Read { path, source })?;
        let lines = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        let this = Self {
            dir: dir.to_owned(),
            lines: lines.collect(),
        };
        if this.plan().is_none() {
            let why = format!("{} is not a record of tare weigh", dir.display());
            return Err(WeighError::Option(why));
        }
        Ok(this)
    }

    /// Lines of one kind.
    pub fn of(&self, sample: &str) -> impl Iterator<Item = &Value> {
        let lines = self.lines.iter();
        lines.filter(move |line| line.get("sample").and_then(Value::as_str) == Some(sample))
    }

    /// How the run began; the last time, if it was resumed.
    pub fn plan(&self) -> Option<&Value> {
        self.of("plan").last()
    }

    /// Version of its form; the first did not name it.
    pub(crate) fn version(&self) -> u64 {
        let version = self.plan().and_then(|plan| plan.get("record")?.as_u64());
        version.unwrap_or(1)
    }

    /// A text of the plan's line.
    pub fn word(&self, name: &str) -> Option<String> {
        Some(self.plan()?.get(name)?.as_str()?.to_owned())
    }

    /// Versions of what was run, on all legs of a run that was resumed.
    pub(crate) fn versions(&self) -> Versions {
        let mut all = Versions::new();
        let plans = self.of("plan").filter_map(|plan| plan.get("programs"));
        for programs in plans {
            all.extend(versions::of(programs));
        }
        for line in self.of("program") {
            let text = |name: &str| Some(line.get(name)?.as_str()?.to_owned());
            all.extend(text("program").zip(text("version")));
        }
        all
    }

    /// Digests of program and images, of the last leg of a run that was resumed.
    pub(crate) fn digests(&self) -> Option<Digests> {
        Digests::of(self.plan()?.get("programs")?)
    }

    /// The machine on which it ran.
    pub fn machine(&self) -> HostFacts {
        let machine = self.plan().and_then(|plan| plan.get("machine"));
        machine
            .and_then(|machine| serde_json::from_value(machine.clone()).ok())
            .unwrap_or_default()
    }

    /// The line with which the run ended; `None` where it was killed, also when it had been resumed.
    pub fn end(&self) -> Option<&Value> {
        let last = |sample: &str| {
            let is = |line: &Value| line.get("sample").and_then(Value::as_str) == Some(sample);
            self.lines.iter().rposition(is)
        };
        let end = last("end")?;
        let is_over = last("plan").is_none_or(|plan| plan < end);
        is_over.then(|| &self.lines[end])
    }

    /// The greatest of a number that the run has at each end: it may have been resumed.
    pub fn greatest(&self, name: &str) -> Option<f64> {
        let all = self
            .of("end")
            .filter_map(|end| end.get(name).and_then(Value::as_f64));
        all.reduce(f64::max)
    }

    /// Failures that were recorded at the end.
    pub fn failures(&self) -> Vec<String> {
        let failures = self.end().and_then(|end| end.get("failures"));
        failures
            .and_then(|failures| serde_json::from_value(failures.clone()).ok())
            .unwrap_or_default()
    }
}

/// An arm, and which time it has its turn.
type ArmRound = (String, usize);

/// Hands out what machines printed.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    /// Turns of each arm and round in order, and the lines of each.
    turns: BTreeMap<ArmRound, VecDeque<VecDeque<(String, Value)>>>,
    /// What was measured without a machine, by arm and kind.
    others: BTreeMap<(String, String), VecDeque<Value>>,
}

impl Replay {
    /// From a record.
    pub(crate) fn of(record: &Record) -> Self {
        let mut this = Self::default();
        let mut over: BTreeMap<ArmRound, bool> = BTreeMap::new();
        for line in &record.lines {
            let text = |name: &str| Some(line.get(name)?.as_str()?.to_owned());
            let (Some(sample), Some(arm)) = (text("sample"), text("arm")) else {
                continue;
            };
            let value = line.get("record").cloned().unwrap_or_default();
            let prints = matches!(sample.as_str(), "guest" | "watched");
            if !prints && !matches!(sample.as_str(), "stats" | "account") {
                let others = this.others.entry((arm, sample)).or_default();
                others.push_back(value);
                continue;
            }
            let round = line.get("round").and_then(Value::as_u64).unwrap_or(0);
            let place = (arm, usize::try_from(round).unwrap_or(usize::MAX));
            let turns = this.turns.entry(place.clone()).or_default();
            let was_over = over.insert(place.clone(), false).unwrap_or(true);
            // What follows the last line belongs to the turn that it ended.
            if was_over && prints {
                turns.push_back(VecDeque::new());
            }
            let ended = value.get("done").is_some() || (was_over && !prints);
            over.insert(place, ended);
            if let Some(turn) = turns.back_mut() {
                turn.push_back((sample, value));
            }
        }
        this
    }
}

impl Executor for Replay {
    fn start(&mut self, _: ServerKind<'_>) -> Result<Box<dyn Appliance>, ApplianceError> {
        Err(missing())
    }

    fn bring(&mut self, _: &App) -> Result<u64, ApplianceError> {
        Err(missing())
    }

    fn measure(&mut self, spec: &GuestSpec) -> Result<Box<dyn Guest>, ApplianceError> {
        let turns = self.turns.get_mut(&(spec.label.clone(), spec.round));
        let lines = turns.and_then(VecDeque::pop_front).ok_or_else(missing)?;
        Ok(Box::new(Printed { lines }))
    }

    fn serve(&mut self, _: &ServedGuest) -> Result<Box<dyn Guest>, ApplianceError> {
        Err(missing())
    }

    fn recorded(&mut self, arm: &str, sample: &str) -> Option<Value> {
        let key = (arm.to_owned(), sample.to_owned());
        self.others.get_mut(&key)?.pop_front()
    }

    fn has(&self, arm: &str) -> bool {
        self.turns.keys().any(|(known, _)| known == arm)
    }

    fn is_replay(&self) -> bool {
        true
    }
}

fn missing() -> ApplianceError {
    ApplianceError::Ended {
        code: 0,
        said: "the record has none".to_owned(),
    }
}

/// A machine that printed.
#[derive(Debug)]
struct Printed {
    lines: VecDeque<(String, Value)>,
}

impl Printed {
    fn pop(&mut self, wanted: &str) -> Option<Value> {
        let (sample, _) = self.lines.front()?;
        (sample == wanted)
            .then(|| self.lines.pop_front())?
            .map(|(_, value)| value)
    }
}

impl Guest for Printed {
    fn record(&mut self, _: Duration, _: &Interrupt) -> Result<Value, ApplianceError> {
        while let Some((sample, value)) = self.lines.pop_front() {
            if matches!(sample.as_str(), "guest" | "watched") {
                return Ok(value);
            }
        }
        Err(missing())
    }

    fn cpu(&mut self) -> Result<CpuReading, ApplianceError> {
        Err(missing())
    }

    fn stats(&mut self) -> Result<Option<Stats>, ApplianceError> {
        let stats = self.pop("stats");
        Ok(stats.and_then(|stats| serde_json::from_value(stats).ok()))
    }

    fn account(&mut self) -> Option<Account> {
        serde_json::from_value(self.pop("account")?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_handed_out_in_order_with_what_followed_them() {
        let dir = tempfile::tempdir().unwrap();
        let of = |round: usize, sample: &str, record: &str| {
            let place = format!("\"arm\":\"a\",\"round\":{round}");
            format!("{{\"sample\":\"{sample}\",{place},\"record\":{record}}}\n")
        };
        let line = |sample: &str, record: &str| of(0, sample, record);
        let text = [
            "{\"sample\":\"plan\",\"experiment\":\"x\"}\n".to_owned(),
            line("guest", "{\"n\":1}"),
            line("guest", "{\"done\":true}"),
            line("host", "[1]"),
            line("guest", "{\"n\":2}"),
            // The second turn failed; the next round is its own turn.
            of(1, "guest", "{\"n\":3}"),
            "{\"sample\":\"gu".to_owned(),
        ];
        fs::write(dir.path().join("raw.jsonl"), text.concat()).unwrap();
        let record = Record::read(dir.path()).unwrap();
        assert_eq!(record.word("experiment").as_deref(), Some("x"));
        assert!(record.end().is_none());
        let mut replay = Replay::of(&record);
        let [first, second] = [0, 1].map(|round| &replay.turns[&("a".to_owned(), round)]);
        assert_eq!((first.len(), first[0].len(), first[1].len()), (2, 2, 1));
        assert_eq!((second.len(), second[0].len()), (1, 1));
        assert_eq!(replay.recorded("a", "host"), Some(serde_json::json!([1])));
        assert_eq!(replay.recorded("a", "host"), None);
    }

    #[test]
    fn a_directory_without_a_record_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(
            Record::read(dir.path()),
            Err(WeighError::Read { .. })
        ));
        fs::write(dir.path().join("raw.jsonl"), "{}\n").unwrap();
        let error = Record::read(dir.path()).unwrap_err();
        assert!(error.to_string().contains("not a record"), "{error}");
    }
}
