//! The machine's hardware address: locally administered, the same for the same
//! name on the same host, so that a DHCP server on a tap gives the same lease.

use std::fs;

/// FNV-1a, 64 bits.
const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// The address of the machine called `name` on this host.
pub(crate) fn address(name: &str) -> [u8; 6] {
    let host = fs::read("/etc/machine-id").unwrap_or_default();
    derive(&host, name)
}

fn derive(host: &[u8], name: &str) -> [u8; 6] {
    let bytes = host.iter().chain(name.as_bytes());
    let hash = bytes.fold(OFFSET, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(PRIME)
    });
    let [a, b, c, d, e, ..] = hash.to_be_bytes();
    [0x02, a, b, c, d, e]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_local_unicast_and_differ_by_name_and_host() {
        let address = derive(b"host", "http-1");
        assert_eq!(address[0] & 0x03, 0x02);
        assert_eq!(address, derive(b"host", "http-1"));
        assert_ne!(address, derive(b"host", "http-2"));
        assert_ne!(address, derive(b"other", "http-1"));
    }
}
