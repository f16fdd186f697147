//! Lines of `raw.jsonl`, as they are measured and read back.

use serde::{Deserialize, Serialize};
use tare_lab::kit::Metric;
use tare_tailor::counter::Count;

use super::calls::Calls;
use super::rates::Step;

/// Which boot of which kernel. Earlier versions counted in one boot of each kernel.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct BootOf {
    pub(super) kernel: String,
    #[serde(default)]
    pub(super) round: usize,
}

/// A sample of a kernel.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "sample", rename_all = "snake_case")]
pub(super) enum Line {
    /// What is measured once: sizes, options, answers that differ.
    Single { figure: String, value: f64 },
    /// Its own start, without the application's files.
    Start { kernel: String, insns: u64 },
    /// A boot with the counter, whose time is the counter's too.
    Boot {
        #[serde(flatten)]
        of: BootOf,
        insns: Count,
        ms: f64,
    },
    /// Single requests of a phase, of one boot.
    Requests {
        #[serde(flatten)]
        of: BootOf,
        phase: String,
        insns: Vec<Count>,
    },
    /// Guest memory ever touched, of one boot.
    Memory {
        #[serde(flatten)]
        of: BootOf,
        kib: u64,
    },
    /// Rising rates.
    Rates { kernel: String, steps: Vec<Step> },
    /// System calls one by one, of one boot.
    Calls { kernel: String, insns: Calls },
}

impl Line {
    /// A figure that is measured once.
    pub(super) fn single(metric: Metric, of: &str, value: f64) -> Self {
        let figure = metric.of(of);
        Self::Single { figure, value }
    }
}
