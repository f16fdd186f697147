//! What servers over TCP share, whatever they speak: connections, threads,
//! bytes that were received.
//!
//! | module | what it is |
//! |---|---|
//! | `transport` | what a connection needs of a byte stream |
//! | `stream` | a libos stream as such a transport |
//! | `buffer` | the bytes received and not yet understood |
//! | `workers` | who accepts and who serves |
//! | `text` | numbers as text |
//! | `metrics` | figures for Prometheus |
//! | `host` | the same on a host's sockets, for tests and measurements |
//! | `memory` | a client in memory, to count what commands cost |
//! | `script` | a client in memory with its own clock, for tests |
//!
//! One thread at a time waits in `accept`. Whoever gets a connection makes sure
//! that another one takes its place, a rested thread if there is one, and serves
//! the connection itself: no hand-over, and usually no new thread. All run on the
//! core of the network stack: most answers are cheaper than waking another core.
//!
//! Neighbours: above, the protocols of `guests/http` and `guests/kv`, which know
//! nothing of sockets; below, [`net`](crate::net), [`thread`](crate::thread) and
//! [`sync`](crate::sync).

mod buffer;
#[cfg(not(target_os = "none"))]
pub mod host;
#[cfg(not(target_os = "none"))]
mod memory;
pub mod metrics;
#[cfg(not(target_os = "none"))]
pub mod script;
mod stream;
pub mod text;
mod transport;
mod workers;

pub use buffer::{Buffer, NoRoom, Sizes};
#[cfg(not(target_os = "none"))]
pub use memory::Memory;
pub use stream::Stream;
pub use transport::{Transport, TransportError};
pub use workers::{Service, start, stay};

#[cfg(test)]
mod tests;
