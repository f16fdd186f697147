//! The interfaces between `tare`, `tare-monitor` and any HTTP client: a
//! machine's configuration, its settings and statistics, the run directory and
//! the exit codes. Serialised types, and a small client that fetches them; the server
//! is in `crates/daemon`.
//!
//! # Interface
//!
//! HTTP on the socket in the run directory: `GET /v1/machine`, `/v1/stats`, `/metrics`,
//! `GET` and `PUT /v1/settings` (one document, [`settings`]), `PUT /v1/stop`. The lock on the run
//! directory is the machine's life ([`rundir`]). [`live`] derives rates and ratios from two samples
//! of the statistics.

#![forbid(unsafe_code)]

pub mod api;
pub mod client;
pub mod config;
pub mod console_exit;
pub mod console_log;
pub mod exit;
pub mod halt;
pub mod live;
pub mod rundir;
pub mod sentence;
pub mod settings;
pub mod stats;
