//! The library OS's initramfs.
#![no_main]

#[path = "../judges/cpio.rs"]
mod judge;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| judge::judge(bytes));
