//! The library OS's whole network stack: frames and time in, frames out.
#![no_main]

#[path = "../judges/stack.rs"]
mod judge;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| judge::judge(bytes));
