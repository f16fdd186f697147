//! A front-end in this process, well-behaved and not, against the I/O loop.
#![allow(clippy::unwrap_used)]

mod cache;
mod daemon;
mod hostile;
mod life;
