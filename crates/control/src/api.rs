//! Bodies of the control interface's requests and answers, besides [`crate::stats`].
//!
//! | request | answer |
//! |---|---|
//! | `GET /v1/machine` | [`MachineStatus`] |
//! | `GET /v1/stats` | [`crate::stats::Stats`] |
//! | `GET /metrics` | Prometheus text 0.0.4 |
//! | `GET /v1/settings` | [`crate::settings::Settings`] |
//! | `PUT /v1/settings`, body [`crate::settings::SettingsChange`] | the settings then in force |
//! | `PUT /v1/stop` or `POST`, body [`StopRequest`] or none | 202, then the machine ends |
//! | `PUT /v1/signal` or `POST`, body [`SignalRequest`] | 202, and the guest's program gets it |
//!
//! An error is a status of 400 or more with an [`ErrorBody`].

use serde::{Deserialize, Serialize};
use tare_host::signal_number::SignalNumber;

use crate::config::MachineConfig;
use crate::stats::Kvm;

/// A machine as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineStatus {
    /// The configuration that was requested.
    pub config: MachineConfig,
    /// Process ID of the monitor.
    pub pid: u32,
    /// What executes the guest.
    pub kvm: Kvm,
    /// What it is doing.
    pub state: State,
    /// Time since the monitor began, ns.
    pub uptime_ns: u64,
}

/// What a machine is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Its vCPUs run (or are halted, waiting for an interrupt).
    Running,
    /// Its end was requested.
    Stopping,
}

/// Body of a stop request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StopRequest {
    /// How to end.
    #[serde(default)]
    pub how: Stop,
}

/// Body of a request to signal the guest's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignalRequest {
    /// Its number in Linux.
    pub signal: SignalNumber,
}

/// How a machine ends on request. Its power goes at once, but for a program's: power-off is
/// its stop signal, and it ends with its own status. Asking again is harmless.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// As if the guest had powered off: exit code 0.
    #[default]
    PowerOff,
    /// As if SIGTERM had come: exit code 143.
    Kill,
}

/// What went wrong with a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// One sentence.
    pub error: String,
}
