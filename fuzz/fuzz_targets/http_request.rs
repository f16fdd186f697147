//! The HTTP appliance's requests: head, target, range.
#![no_main]

#[path = "../judges/http_request.rs"]
mod judge;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| judge::judge(bytes));
