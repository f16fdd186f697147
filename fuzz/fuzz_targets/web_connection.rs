//! A connection to an appliance's own program: heads, bodies, answers.
#![no_main]

#[path = "../judges/web_connection.rs"]
mod judge;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| judge::judge(bytes));
