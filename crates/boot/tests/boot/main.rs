//! The second ring: images, initramfs and tables on real guest memory.

#![allow(clippy::unwrap_used)]

mod images;
mod malformed;
mod tables;
mod valid;
