//! Frames from a guest, before user-mode networking sees them.
#![no_main]

#[path = "../judges/frame_filter.rs"]
mod judge;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| judge::judge(bytes));
