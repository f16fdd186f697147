//! A cache that speaks memcached's text protocol, as an appliance.
//!
//! Sans-I/O inside: bytes are parsed into a [`request`], which the [`server`]
//! carries out on its [`store`]; [`connection`] drives that over any
//! [transport](tare_libos::serve::Transport). What memcached's `protocol.txt`
//! leaves open follows memcached 1.6 by the byte, and `tests/differential.rs` holds
//! it to that.
//!
//! # Bound on memory
//! Not slabs but one least-recently-used list over items of all sizes, bounded
//! by what they take of the heap ([`store`]): a change of the usual value size
//! needs no pages moved between classes, and the item evicted is always the one
//! that was used least recently. Expired items go when they are met, by a request or at
//! the end of the list. No timer runs.
//!
//! # What an operation costs
//! An item is stored as its answer, `VALUE key flags bytes`, value and all, so
//! that a `get` is one lookup and one copy. Writing a value of the size that
//! was there before allocates nothing.
//!
//! Limits: no binary protocol (a connection that begins with it is closed), no UDP, no
//! authentication, of the meta flags not `l` (time since the last access); `stats` has
//! what monitoring reads (general, `items`, `slabs`, `settings`, `sizes`, `reset`). Not planned:
//! `stats conns` and `detail`, `slabs automove`, `lru_crawler`, `watch`, `cache_memlimit`, which
//! steer or show what this store does not have. As in memcached, keys may hold
//! control characters other than the line's end and NUL: it is the client
//! that must not send them.

#![cfg_attr(target_os = "none", no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

#[cfg(target_os = "none")]
pub mod appliance;
pub mod connection;
#[cfg(not(target_os = "none"))]
pub mod host;
pub mod limits;
mod number;
mod output;
pub mod request;
pub mod server;
mod statistics;
pub mod store;
