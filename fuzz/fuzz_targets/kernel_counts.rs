//! Execution counts of instrumented kernels: `tare_tailor`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tare_tailor::fuzz_entry::counts(bytes));
