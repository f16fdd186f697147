//! What looking at a frame must keep to, whatever the bytes are. Shared by the
//! fuzz target and tare-net's replay of the corpus.

use tare_net::frame::{Checksums, Medium, leave_checksum_to_device, parse_as};

/// Verifying checksums only ever refuses more.
pub(crate) fn judge(bytes: &[u8]) {
    for medium in [Medium::Ethernet, Medium::Ip] {
        let verified = parse_as(bytes, medium, Checksums::Unverified);
        let trusted = parse_as(bytes, medium, Checksums::Trusted);
        assert!(verified.is_err() || verified == trusted);
    }
    leave_checksum_to_device(&mut bytes.to_vec());
}
