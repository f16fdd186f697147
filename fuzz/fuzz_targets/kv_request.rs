//! The cache appliance's commands: line, data, store.
#![no_main]

#[path = "../judges/kv_request.rs"]
mod judge;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| judge::judge(bytes));
