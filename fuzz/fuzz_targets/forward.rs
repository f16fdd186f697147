//! Frames from a guest, and clients, at the host's end of published ports.
#![no_main]

#[path = "../judges/forward.rs"]
mod judge;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| judge::judge(bytes));
