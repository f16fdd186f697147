//! TCP as a state machine: no clock, no threads, no device, no unsafe code.
//! Segments and time come in by calls, segments and deadlines come out, and the
//! same calls give the same results.
//!
//! A [`Connection`] is created by [`Connection::connect`], from a SYN by
//! [`Connection::accept`], or from a SYN cookie ([`cookie::Cookies`]). The
//! caller demultiplexes, computes checksums and carries segments; addresses
//! matter here only to [`Secret`], so that IPv6 needs nothing new.
//!
//! | module | what it is | source |
//! |---|---|---|
//! | `connection` | states, arrivals, output, timers | RFC 9293, 5961, 1337, 6191 |
//! | [`segment`], [`options`] | wire format | RFC 9293, 7323, 2018 |
//! | [`seq`] | order of sequence numbers | RFC 9293, 3.4 |
//! | [`secret`] | initial sequence numbers | RFC 6528 |
//! | [`cookie`] | SYN cookies | RFC 4987 |
//! | `rtt` | retransmission timeout | RFC 6298 |
//! | `scoreboard` | what is outstanding | RFC 2018, 6675 |
//! | `rack` | loss detection by time, tail loss probes | RFC 8985 |
//! | `congestion`, `cubic`, `slow_start` | how fast to send | RFC 5681, 6928, 9406, 9438, 9937 |
//! | `receive`, `reassembly` | windows, data out of order | RFC 9293, 7323, 2018, 2883 |
//! | `path_mtu` | segment size | RFC 1191, 4821 |
//! | [`memory`] | the bound on all buffers | |
//!
//! Not here: urgent data beyond passing it in line, ECN, fast open, multipath.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod challenge;
mod config;
mod congestion;
mod connection;
pub mod cookie;
mod cubic;
mod delayed_ack;
pub mod memory;
pub mod options;
mod path_mtu;
mod rack;
mod reassembly;
mod receive;
mod rtt;
mod scoreboard;
pub mod secret;
pub mod segment;
pub mod seq;
mod slow_start;
mod small;
pub mod time;
pub mod wire;

pub use config::{Config, Identity, KeepAlive};
pub use connection::{Connection, IoError, Loss, State, Statistics};
pub use memory::Pool;
pub use secret::{FourTuple, Secret};
pub use segment::{Outgoing, Segment};
pub use seq::Seq;
