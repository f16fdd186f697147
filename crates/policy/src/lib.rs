//! Decision rules, pure: poller idleness, spin before halt, interrupt coalescing.

#![no_std]
#![forbid(unsafe_code)]
