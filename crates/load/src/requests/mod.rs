//! Load on loopback, HTTP or what has exact answers: one thread, non-blocking sockets, `poll`.
//!
//! Open-loop load has scheduled send times, and each latency counts from the
//! scheduled time: a server that stalls is charged for all the requests that
//! had to wait meanwhile (coordinated omission, G. Tene 2013). Every request
//! ends as an answer that was checked (status, length, content) or as a
//! counted failure, within its time limit.

pub mod compact;
mod connection;
mod exchange;
mod first_byte;
mod generator;
mod request;
mod response;
mod schedule;
#[cfg(test)]
mod tests;

pub use exchange::{Exchange, Expected};
pub use first_byte::first_byte;
pub use generator::{Generator, LoadError};
pub use request::{Failure, Request, Target, failed, latencies_us};
pub use schedule::{Connections, Schedule};
