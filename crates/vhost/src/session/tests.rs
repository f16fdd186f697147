//! A front-end in this process, well-behaved and not, against the I/O loop.
#![allow(clippy::unwrap_used)]

mod front;
mod hostile;
mod life;
