//! Which Ethernet frames may pass between a guest and user-mode networking.
//!
//! passt opens a connection from the host to whatever address a guest's frame
//! names, also to the host's loopback and to the host's own addresses. A guest
//! is hostile, so [`Filter`] drops such frames before passt sees them. It works
//! on bytes alone, without I/O: the monitor's link to passt calls it for each
//! frame.
//!
//! Limits: the host's addresses are those at the start of the machine; tap
//! interfaces are not filtered (their bridge or routing decides).

mod address;
mod filter;
mod flows;
mod local;
mod packet;
mod prefix;

pub use address::Reason;
pub use filter::{Filter, Rules, Verdict};
pub use local::{from_fib_trie, from_if_inet6};
pub use prefix::{Prefix, PrefixError};
