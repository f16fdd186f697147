//! Lines of `raw.jsonl`, also kept in memory for figures and charts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tare_control::stats::Stats;
use tare_load::requests::Request;
use tare_machines::observe::CpuSpent;
use tare_tailor::counter::Count;

use super::arms::{Arm, Peer};

/// A part of an arm's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Phase {
    /// From the exec of `tare run` until the machine serves.
    Start,
    /// Closed-loop load that finds what is carried.
    Calibrate,
    /// Open-loop load at the burst's rate.
    Burst,
    /// Begin of a break; drawn, not counted.
    Settle,
    /// No requests.
    Break,
    /// One request a second.
    Steady,
    /// Requests on one connection between two counts.
    CountRequests,
    /// Connections with one request between two counts.
    CountConnections,
    /// Idle, on a machine that was never asked for anything.
    Idle,
    /// Idle with two vCPUs.
    Idle2Cpu,
}

/// Where a sample belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct SamplePosition {
    /// The arm.
    pub(crate) arm: Arm,
    /// The cycle, from 0.
    pub(crate) cycle: usize,
    /// The phase.
    pub(crate) phase: Phase,
}

/// Which machine a sample is of, also one that no arm of the bursts has; earlier records do not
/// say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Boot {
    /// Name of the arm, or of the server beside it.
    pub(crate) arm: String,
    /// The cycle, start or round in which it was booted, from 0.
    pub(crate) cycle: usize,
}

/// CPU time over one window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CpuSample {
    /// Where it belongs.
    #[serde(flatten)]
    pub(crate) place: SamplePosition,
    /// Begin of the window since the phase began, ns.
    pub(crate) from_ns: u64,
    /// CPU time in it.
    #[serde(flatten)]
    pub(crate) spent: CpuSpent,
}

/// A line of `raw.jsonl`, as it is written and read back.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "sample", rename_all = "snake_case")]
pub(crate) enum Line {
    /// A machine serves.
    Serving {
        /// Its arm.
        arm: Arm,
        /// The cycle, from 0; earlier records do not say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cycle: Option<usize>,
        /// vCPUs.
        cpus: u8,
        /// Time since the exec of `tare run`, ns.
        after_ns: u64,
    },
    /// CPU time.
    Cpu(CpuSample),
    /// A request.
    Request {
        /// Where it belongs.
        #[serde(flatten)]
        place: SamplePosition,
        /// What became of it.
        #[serde(flatten)]
        request: Request,
    },
    /// The machine's statistics.
    Stats {
        /// Where they belong.
        #[serde(flatten)]
        place: SamplePosition,
        /// All of them.
        stats: Box<Stats>,
    },
    /// What rose in an idle window in which the machine woke.
    Woken {
        /// Where it belongs.
        #[serde(flatten)]
        place: SamplePosition,
        /// Counters and how much they rose.
        counters: BTreeMap<String, u64>,
    },
    /// Events in a window of time.
    Events {
        /// The machine; earlier records do not say.
        #[serde(flatten)]
        place: Option<SamplePosition>,
        /// The figure of their rate.
        figure: String,
        /// How many.
        events: f64,
        /// In how long.
        seconds: f64,
    },
    /// One sample of a figure.
    Value {
        /// The machine, if it is of one.
        #[serde(flatten)]
        boot: Option<Boot>,
        /// The figure.
        figure: String,
        /// Its unit.
        unit: String,
        /// The sample.
        value: f64,
    },
    /// The rate of the bursts.
    Rate {
        /// What the slowest arm carried, requests per second.
        carried_per_s: f64,
        /// The bursts', requests per second.
        burst_per_s: f64,
    },
    /// What a server carried at full speed.
    Carried {
        /// Who.
        peer: Peer,
        /// Which time, from 0.
        round: usize,
        /// On how many connections.
        connections: usize,
        /// Requests that were answered.
        answered: usize,
        /// In how long.
        seconds: f64,
        /// Its CPU time meanwhile.
        spent: CpuSpent,
    },
    /// CPU time of a server without requests, or at the source's rate.
    PeerCpu {
        /// Whose.
        peer: Peer,
        /// Which time, from 0.
        round: usize,
        /// Idle or burst.
        phase: Phase,
        /// How much.
        spent: CpuSpent,
    },
    /// Instructions counted in the translator.
    Translated {
        /// The machine.
        #[serde(flatten)]
        boot: Option<Boot>,
        /// The figure.
        figure: String,
        /// Each count.
        insns: Vec<Count>,
    },
}
