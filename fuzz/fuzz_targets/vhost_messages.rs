//! tare blk: a front-end's messages in any order, with a queue that works.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| tare_vhost::fuzz_entry::messages(input));
