//! The control socket's server: a subset of HTTP/1.1 over a UNIX socket, on the main thread, with
//! one non-blocking state machine for each client.
//!
//! Everything is bounded: clients, heads, bodies, pending answers. A slow or silent client costs
//! its buffers and nothing else. When all places are taken, further clients wait ([`server`]).

mod connection;
mod request;
mod response;
pub mod server;

pub use request::{Method, Request};
pub use response::Response;

/// Answers requests.
pub trait Routes {
    /// The answer to `request`.
    fn answer(&mut self, request: &Request<'_>) -> Response;
}
