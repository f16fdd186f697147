//! `summary.json`: the form that every experiment's results have. `docs/summary.schema.json`
//! describes it to other programs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tare_machines::versions::Versions;

use crate::figure::{Figure, Statistic};
use crate::goal::JudgedGoal;
use crate::host::HostFacts;
use crate::weigh_result::WeighEnd;

/// Version of the form; it rises when a field changes its meaning or goes.
pub(crate) const SCHEMA: u32 = 2;

/// The whole of `summary.json`. Scripts rely on its fields. Those with a default are not in
/// runs of version 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    /// Version of the form.
    #[serde(default = "first")]
    pub schema: u32,
    /// Name of the experiment.
    pub experiment: String,
    /// Name of its depth: quick, standard or full. Earlier versions have it in the record alone,
    /// as the subject.
    #[serde(default)]
    pub depth: Option<String>,
    /// The image or application that was measured, of an experiment that takes one.
    #[serde(default)]
    pub subject: Option<String>,
    /// Start time, RFC 3339, UTC.
    pub started: String,
    /// How long it took, s.
    #[serde(default)]
    pub duration_s: f64,
    /// How it ended.
    #[serde(default)]
    pub status: Status,
    /// Revision of the source that the program was built from, or version.
    pub revision: String,
    /// What it ran on.
    pub machine: HostFacts,
    /// Versions of what was run there, by program; earlier versions have them in the record alone.
    #[serde(default, skip_serializing_if = "Versions::is_empty")]
    pub versions: Versions,
    /// SHA-256 of the program that measured and of the guest images; earlier versions have them in
    /// the record alone, and runs that were merged have those of several hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digests: Option<Digests>,
    /// What came out.
    pub figures: Vec<Figure>,
    /// What the figures say of the goals.
    #[serde(default)]
    pub goals: Vec<JudgedGoal>,
    /// What the comparisons of arms say.
    #[serde(default)]
    pub effects: Vec<Effect>,
    /// Why the goals have no verdict although they hold here: the host was busy.
    #[serde(default)]
    pub not_judged: Option<String>,
    /// Samples and checks that failed, one sentence each.
    #[serde(default)]
    pub failures: Vec<String>,
}

/// SHA-256 in hexadecimal of what measured and of what was measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Digests {
    /// The program; absent for one that is not optimised.
    #[serde(default)]
    pub program: Option<String>,
    /// The images beside it by name, and one that was named by its path.
    #[serde(default)]
    pub images: BTreeMap<String, String>,
}

impl Digests {
    /// From the `programs` of a record; `None` where it has none.
    pub(crate) fn of(programs: &Value) -> Option<Self> {
        let text = |value: &Value| Some(value.as_str()?.to_owned());
        let images = programs.get("images_sha256").and_then(Value::as_object);
        let images = images.into_iter().flatten();
        let this = Self {
            program: programs.get("program_sha256").and_then(text),
            images: images
                .filter_map(|(name, digest)| Some((name.clone(), text(digest)?)))
                .collect(),
        };
        (this != Self::default()).then_some(this)
    }
}

/// A plan's depth; the study of platforms calls it its form.
pub(crate) fn depth_of(plan: &Value) -> Option<String> {
    word(plan, "depth").or(word(plan, "form"))
}

/// The image or application that a plan measures.
pub(crate) fn subject_of(plan: &Value) -> Option<String> {
    word(plan, "image").or(word(plan, "app"))
}

fn word(plan: &Value, name: &str) -> Option<String> {
    Some(plan.get(name)?.as_str()?.to_owned())
}

/// What a figure that compares two arms says: a ratio with its interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Effect {
    /// Name of the figure.
    pub figure: String,
    /// Whether its interval excludes 1.
    pub differs: Differs,
}

/// Whether a ratio differs from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Differs {
    /// Its whole interval is above.
    Above,
    /// Its whole interval is below.
    Below,
    /// The interval holds 1.
    CannotBeToldApart,
    /// Too few samples for an interval.
    NoInterval,
}

impl Effect {
    /// Of a figure, if it is a ratio of two arms.
    pub fn of(figure: &Figure) -> Option<Self> {
        (is_ratio(figure) && matches!(figure.unit.as_str(), "1" | "x")).then(|| Self {
            figure: figure.name.clone(),
            differs: match figure.interval() {
                None => Differs::NoInterval,
                Some((low, _)) if low > 1.0 => Differs::Above,
                Some((_, high)) if high < 1.0 => Differs::Below,
                Some(_) => Differs::CannotBeToldApart,
            },
        })
    }

    /// Whether the figure is not a ratio of two arms, or has an effect; half widths and
    /// differences in percent are beside one that has.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn is_shown(figure: &Figure) -> bool {
        !is_ratio(figure) || figure.unit == "%" || Self::of(figure).is_some()
    }
}

fn is_ratio(figure: &Figure) -> bool {
    matches!(figure.statistic, Statistic::Ratio | Statistic::PairedRatio)
}

/// How a run ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// All that was planned was done.
    #[default]
    Complete,
    /// The same, but samples or checks failed.
    Failed,
    /// A machine or a step failed; what was measured until then counts.
    Broken,
    /// By a signal, or by a kill: the record has no end.
    Interrupted,
}

impl Status {
    /// From how the run ended and what failed.
    pub(crate) fn of(ending: WeighEnd, failures: &[String]) -> Self {
        match ending {
            WeighEnd::Complete if failures.is_empty() => Self::Complete,
            WeighEnd::Complete => Self::Failed,
            WeighEnd::Broken(_) => Self::Broken,
            WeighEnd::Interrupted(_) => Self::Interrupted,
        }
    }
}

const fn first() -> u32 {
    1
}
