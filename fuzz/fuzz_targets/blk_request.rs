//! The parser of block requests: what it accepts lies on the disk.
#![no_main]

libfuzzer_sys::fuzz_target!(|request: &[u8]| tare_devices::fuzz_entry::blk_request(request));
