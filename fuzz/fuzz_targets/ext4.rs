//! File systems on the library OS's disks.
#![no_main]

#[path = "../judges/ext4.rs"]
mod judge;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| judge::judge(bytes));
