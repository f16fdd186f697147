//! The table of a site's file, as the guest reads it.
#![no_main]

#[path = "../judges/site_table.rs"]
mod judge;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| judge::judge(bytes));
