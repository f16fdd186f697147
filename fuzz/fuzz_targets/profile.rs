//! Profiles of applications: `tare_profile`.
#![no_main]

#[path = "../judges/profile.rs"]
mod judge;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| judge::judge(bytes));
