//! Linux kernels: `tare_boot::load` with the Linux protocol.
#![no_main]

libfuzzer_sys::fuzz_target!(|image: &[u8]| tare_boot::fuzz_entry::kernel(image));
