//! Image files: `tare_boot::load`.
#![no_main]

libfuzzer_sys::fuzz_target!(|image: &[u8]| tare_boot::fuzz_entry::image(image));
