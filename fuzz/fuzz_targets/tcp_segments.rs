//! Segments that reach a TCP connection of the library OS.
#![no_main]

#[path = "../judges/tcp_segments.rs"]
mod judge;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| judge::judge(bytes));
