//! What is requested, and what became of each request.

use std::net::SocketAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// What is requested from whom.
#[derive(Clone, Debug)]
pub struct Target {
    /// The server.
    pub address: SocketAddr,
    /// The path, beginning with `/`.
    pub path: String,
    /// What the server must answer with.
    pub body: Arc<[u8]>,
}

/// One request. Times are ns since its load began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// When it was to be sent.
    pub scheduled_ns: u64,
    /// When a connection was there for it; absent if it never came to that.
    pub sent_ns: Option<u64>,
    /// When its fate was known.
    pub done_ns: u64,
    /// It needed a new connection.
    pub connected: bool,
    /// Why there was no right answer.
    pub failure: Option<Failure>,
}

impl Request {
    /// From the scheduled time to the end of the answer.
    pub fn latency_ns(&self) -> u64 {
        self.done_ns.saturating_sub(self.scheduled_ns)
    }
}

/// Latencies of the right answers, us.
pub fn latencies_us(asked: &[Request]) -> Vec<f64> {
    let right = asked.iter().filter(|request| request.failure.is_none());
    let us = right.map(|request| request.latency_ns() as f64 / 1e3);
    us.collect()
}

/// A sentence about requests that failed, of which `what` says when; `None` if none has.
pub fn failed(asked: &[Request], what: &str) -> Option<String> {
    let mut failed = asked.iter().filter_map(|request| request.failure);
    let first = failed.next()?;
    let (count, all) = (failed.count() + 1, asked.len());
    Some(format!("{count} of {all} {what}, the first: {first}"))
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// No connection.
    Connect,
    /// The connection ended before the answer did.
    Closed,
    /// No complete answer in time.
    Timeout,
    /// The answer is not HTTP as expected.
    Malformed,
    /// A status other than 200.
    Status(u16),
    /// Another body than the file's.
    WrongBody,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Connect => f.write_str("could not connect"),
            Self::Closed => f.write_str("connection closed early"),
            Self::Timeout => f.write_str("no answer in time"),
            Self::Malformed => f.write_str("answer not understood"),
            Self::Status(status) => write!(f, "status {status}"),
            Self::WrongBody => f.write_str("wrong content"),
        }
    }
}
