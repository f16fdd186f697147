//! A front-end in this process, well-behaved and not, against the I/O loop.

mod cache;
mod daemon;
mod hostile;
mod life;
