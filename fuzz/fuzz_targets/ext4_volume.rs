//! File systems that a program of `tare run ./program --disk` writes to.
#![no_main]

#[path = "../judges/ext4_volume.rs"]
mod judge;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| judge::judge(bytes));
