//! Locks and configurations of kernels: `tare_tailor`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tare_tailor::fuzz_entry::lock(bytes));
