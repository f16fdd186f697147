//! The second ring: images, initramfs and tables on real guest memory.

#![allow(clippy::unwrap_used)]

mod hostile;
mod images;
mod malformed;
mod tables;
mod valid;
