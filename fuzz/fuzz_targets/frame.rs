//! The library OS's look at received frames.
#![no_main]

use tare_libos::net::frame::{Checksums, Medium, leave_checksum_to_device, parse_as};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    for medium in [Medium::Ethernet, Medium::Ip] {
        let verified = parse_as(bytes, medium, Checksums::Unverified);
        let trusted = parse_as(bytes, medium, Checksums::Trusted);
        // Verifying only ever refuses more.
        assert!(verified.is_err() || verified == trusted);
    }
    leave_checksum_to_device(&mut bytes.to_vec());
});
