//! Published ports: the host's end of each connection to a guest, without a process in
//! between. A [`Table`] speaks TCP to the guest in Ethernet frames, by the same state machine as the
//! library OS (`tare-tcp`), and carries bytes between that and a [`Stream`] of the host.
//!
//! Pure: sockets and time come in by calls (`tare-monitor` has both), frames come in and go out.
//!
//! - A connection opens towards the guest at once when [`Table::open`] gets a stream. The SYN is
//!   repeated until the guest answers.
//! - Bytes are read from a stream only as far as the guest's window and the pool of memory go, and
//!   the guest's window opens only as far as the stream takes bytes: nothing is queued without a bound.
//! - The end of one direction and resets pass in both directions.
//! - A client of a UDP port is remembered for some minutes after its last datagram. The guest's answers name it by
//!   their ends ([`FrameOwner::Client`]).
//! - The wire is memory of this host: nothing is lost on it, and no checksum of what the guest sends is
//!   looked at.
//!
//! The guest is hostile: each frame is parsed into a valid type first (`frame`), what is wrong is
//! counted ([`ForwardCounters`]), and what belongs to no connection goes to whoever is beside, or is
//! refused ([`Settings::beside`]).
//!
//! Limits: fragments of UDP by IPv4 alone, no IPv6 extension headers, no ICMP.

mod counters;
mod cut;
mod datagrams;
mod deadlines;
mod frame;
mod neighbour;
mod output;
mod relay;
mod settings;
mod table;

#[cfg(test)]
mod tests;

pub use counters::ForwardCounters;
pub use cut::Cut;
pub use datagrams::{Answer, DatagramClient, DatagramPort};
pub use relay::{Stream, Watched};
pub use settings::{Beside, Ends, Limits, Settings};
pub use table::{FrameOwner, Readiness, Slot, Table};
