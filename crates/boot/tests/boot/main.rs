//! The second ring: images, initramfs and tables on real guest memory.

#![allow(clippy::unwrap_used)]

mod images;
mod linux;
mod malformed;
mod tables;
mod valid;
