//! Addresses that a guest may not reach, and why.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why a frame is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// 127.0.0.0/8, ::1.
    Loopback,
    /// 0.0.0.0/8, ::, which Linux connects to itself.
    Unspecified,
    /// 169.254.0.0/16, fe80::/10: metadata services of clouds among others.
    LinkLocal,
    /// An address of the host.
    Host,
    /// Multicast or broadcast, which the host would deliver to its own
    /// listeners too.
    Multicast,
    /// Neither ARP nor IP.
    Protocol,
    /// Headers that are cut short or contradict themselves.
    Malformed,
}

impl Reason {
    /// All of them, in order.
    pub const ALL: [Self; 7] = [
        Self::Loopback,
        Self::Unspecified,
        Self::LinkLocal,
        Self::Host,
        Self::Multicast,
        Self::Protocol,
        Self::Malformed,
    ];
}

/// The reason that is in the address itself, as source or destination.
pub(crate) fn special(address: IpAddr) -> Option<Reason> {
    match address {
        IpAddr::V4(address) => special_v4(address),
        IpAddr::V6(address) => special_v6(address),
    }
}

fn special_v4(address: Ipv4Addr) -> Option<Reason> {
    match address.octets() {
        [0, ..] => Some(Reason::Unspecified),
        [127, ..] => Some(Reason::Loopback),
        [169, 254, ..] => Some(Reason::LinkLocal),
        [224..=239 | 255, ..] => Some(Reason::Multicast),
        _ => None,
    }
}

fn special_v6(address: Ipv6Addr) -> Option<Reason> {
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => Some(Reason::Unspecified),
        [0, 0, 0, 0, 0, 0, 0, 1] => Some(Reason::Loopback),
        [0xfe80..=0xfebf, ..] => Some(Reason::LinkLocal),
        [0xff00..=0xffff, ..] => Some(Reason::Multicast),
        _ => embedded(address).and_then(special_v4),
    }
}

/// The IPv4 address that an IPv6 address stands for: IPv4-mapped (::ffff:0:0/96),
/// IPv4-compatible (::/96), NAT64 (64:ff9b::/96), 6to4 (2002::/16).
pub(crate) fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let join = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    match address.segments() {
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            Some(join(high, low))
        }
        [0x2002, high, low, ..] => Some(join(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_addresses_have_a_reason_in_both_families() {
        let of = |text: &str| special(text.parse().expect("an address"));
        let reasons = [
            ("127.0.0.1", Some(Reason::Loopback)),
            ("127.255.255.254", Some(Reason::Loopback)),
            ("0.0.0.0", Some(Reason::Unspecified)),
            ("0.1.2.3", Some(Reason::Unspecified)),
            ("169.254.169.254", Some(Reason::LinkLocal)),
            ("224.0.0.251", Some(Reason::Multicast)),
            ("255.255.255.255", Some(Reason::Multicast)),
            ("10.0.2.2", None),
            ("192.0.2.1", None),
            ("::", Some(Reason::Unspecified)),
            ("::1", Some(Reason::Loopback)),
            ("fe80::1", Some(Reason::LinkLocal)),
            ("febf::1", Some(Reason::LinkLocal)),
            ("fec0::1", None),
            ("ff02::fb", Some(Reason::Multicast)),
            ("::ffff:127.0.0.1", Some(Reason::Loopback)),
            ("::127.0.0.1", Some(Reason::Loopback)),
            ("64:ff9b::7f00:1", Some(Reason::Loopback)),
            ("2002:7f00:1::1", Some(Reason::Loopback)),
            ("2001:db8::1", None),
        ];
        for (text, reason) in reasons {
            assert_eq!(of(text), reason, "{text}");
        }
    }
}
