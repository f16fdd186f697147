//! `site.toml`: `tare_site::file`.
#![no_main]

#[path = "../judges/site_file.rs"]
mod judge;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| judge::judge(bytes));
