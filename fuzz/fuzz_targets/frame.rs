//! The library OS's look at received frames.
#![no_main]

#[path = "../judges/frame.rs"]
mod judge;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| judge::judge(bytes));
