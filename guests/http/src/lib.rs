//! HTTP/1.1 static file server as an appliance.
//!
//! The protocol (RFC 9110 to 9112) is a library without I/O, tested on
//! the host: a request is parsed and judged ([`request`]), its target resolved
//! ([`target`]), its conditions and range evaluated (`conditions`, [`range`]),
//! and the answer put together from parts that were prepared before ([`site`],
//! [`answer`], [`server`]). [`connection`] drives that over any
//! [transport](tare_libos::serve::Transport).
//!
//! # A thread for each connection
//! A quiet connection costs a small stack, a 1 KiB buffer and one timer: 40 kB with
//! the socket's own buffers, so that 64 MiB carry over a thousand. An event loop
//! would save the stack (16 KiB of it) but pays for each request with a look at a
//! ready list, state saved and restored by hand, and a second timer wheel.
//!
//! # A root at a time
//! Files and rules are one `root`, which can be replaced while the server runs ([`reload`]). The
//! latest answers hold their files by themselves, so that the usual request looks at no root.
//!
//! Who accepts and who serves is settled in [`tare_libos::serve`].
//!
//! Limits: no TLS, no HTTP/2, no compression.

#![cfg_attr(target_os = "none", no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod access_log;
pub mod answer;
#[cfg(target_os = "none")]
pub mod appliance;
pub(crate) mod conditions;
pub mod connection;
mod content_type;
pub mod counters;
mod decimal;
pub mod encoding;
pub mod first_root;
#[cfg(not(target_os = "none"))]
pub mod host;
pub mod limits;
pub mod listing;
mod multipart;
pub mod range;
pub mod reload;
pub mod request;
pub mod root;
pub mod rules;
pub mod server;
pub mod site;
pub mod status;
pub mod target;
mod virtual_host;

pub use tare_web::date as http_date;
