//! HTTP/1.1 for an appliance's own program: a function from [`Request`] to [`Response`].
//!
//! ```no_run
//! use tare_libos::io;
//! use tare_web::{Request, Response};
//!
//! fn main() -> io::Result<()> {
//!     tare_web::serve(80, answer)
//! }
//!
//! fn answer(request: &Request) -> Response {
//!     match request.path() {
//!         "/" => Response::text("Hello\n"),
//!         _ => Response::not_found(),
//!     }
//! }
//! ```
//!
//! A connection has its own thread, which calls the function for one request after
//! the other; those of other connections run meanwhile where the function waits. A
//! function without sockets is tested on the host as it is.
//!
//! `request` parses and refuses what two readers could understand in two ways, [`framing`]
//! and [`body`] find a body's end, [`connection`] keeps a client within [`limits`], `server`
//! accepts.
//!
//! Neighbours: below, [`tare_libos::serve`]; beside, `guests/http`, the server of files,
//! which prepares its answers and copies nothing, and reads bodies by [`body`] too.
//!
//! Limits: a request and a response are whole in memory; no transfer coding besides chunked
//! (501), no TLS or HTTP/2. A request for which there is no memory gets 503; an allocation
//! of the function's own that fails ends the machine, as does a panic.

#![cfg_attr(target_os = "none", no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod body;
pub mod connection;
pub mod date;
pub mod framing;
pub mod limits;
mod output;
mod request;
mod response;
mod server;

pub use request::Request;
pub use response::Response;
pub use server::serve;
