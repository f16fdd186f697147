//! How addresses are made and which groups they belong to.

use core::net::Ipv6Addr;

use crate::neighbours::Mac;
use crate::random;

/// All nodes of the link.
pub(crate) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// All its routers.
pub(crate) const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
/// The routers that keep account of groups (RFC 3810).
pub(crate) const ALL_MLD_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);
/// The prefix of addresses that count on one link only; 64 bits.
pub(crate) const LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0);

/// The address of this host in a network of 64 bits (RFC 7217, 5): the same for the
/// same network, and unrelated to that of others. `tries` counts the addresses that
/// others had already.
pub(crate) fn stable(prefix: Ipv6Addr, mac: Mac, tries: u8, secret: &[u8; 16]) -> Ipv6Addr {
    let network = prefix.to_bits() >> 64;
    let mut input = [tries; 15];
    input[..8].copy_from_slice(&(network as u64).to_le_bytes());
    input[8..14].copy_from_slice(&mac);
    let mut host = random::hash(secret, &input);
    // Reserved: the routers' anycast address, and others (RFC 5453).
    if host == 0 || host >> 8 == 0xfd_ffff_ffff_ffff {
        host ^= 1 << 40;
    }
    Ipv6Addr::from_bits(network << 64 | u128::from(host))
}

/// The group in which neighbours look for an address (RFC 4291, 2.7.1).
pub(crate) fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let low = address.to_bits() & 0xff_ffff;
    Ipv6Addr::from_bits(0xff02_0000_0000_0000_0000_0001_ff00_0000 | low)
}

/// The Ethernet address of a group (RFC 2464, 7).
pub(crate) fn group_mac(group: Ipv6Addr) -> Mac {
    let [.., a, b, c, d] = group.octets();
    [0x33, 0x33, a, b, c, d]
}

/// Whether `address` is in the network of the first `len` bits of `prefix`.
pub(crate) fn is_within(address: Ipv6Addr, prefix: Ipv6Addr, len: u8) -> bool {
    let host_bits = 128_u32.saturating_sub(u32::from(len));
    let differs = address.to_bits() ^ prefix.to_bits();
    differs.checked_shr(host_bits).unwrap_or(0) == 0
}

/// Whether a host may have this address on a link.
pub(crate) fn is_host(address: Ipv6Addr) -> bool {
    !(address.is_unspecified()
        || address.is_loopback()
        || address.is_multicast()
        || address.to_ipv4_mapped().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_stable_within_a_network_and_unrelated_between_two() {
        let secret = [7; 16];
        let one = Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, 0);
        let other = Ipv6Addr::new(0x2001, 0xdb8, 0, 2, 0, 0, 0, 0);
        let mac = [2, 0, 0, 0, 0, 1];
        let of = |prefix, tries| stable(prefix, mac, tries, &secret);
        assert_eq!(of(one, 0), of(one, 0));
        assert!(is_within(of(one, 0), one, 64));
        assert_ne!(of(one, 0), of(one, 1));
        let host = |address: Ipv6Addr| address.to_bits() as u64;
        assert_ne!(host(of(one, 0)), host(of(other, 0)));
        assert_ne!(of(one, 0), stable(one, mac, 0, &[8; 16]));
    }

    #[test]
    fn groups_and_their_ethernet_addresses_are_those_of_the_standards() {
        let address = Ipv6Addr::new(0x4037, 0, 0, 0, 1, 0x800, 0x200e, 0x8c6c);
        let group = solicited_node(address);
        assert_eq!(group, Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff0e, 0x8c6c));
        assert_eq!(group_mac(group), [0x33, 0x33, 0xff, 0x0e, 0x8c, 0x6c]);
        assert!(is_within(address, address, 128) && is_within(address, Ipv6Addr::LOCALHOST, 0));
        assert!(!is_within(address, Ipv6Addr::LOCALHOST, 2));
    }
}
