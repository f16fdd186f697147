//! What guests of a proof say: `tare_tailor`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tare_tailor::fuzz_entry::consoles(bytes));
