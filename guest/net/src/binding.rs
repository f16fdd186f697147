//! [`Binding`].

use core::net::{IpAddr, SocketAddr};

/// The local address of a socket, which may be unspecified: any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// `::` is all of this host's addresses, `0.0.0.0` those of IPv4.
    pub address: SocketAddr,
    /// `::` leaves IPv4 to others (`IPV6_V6ONLY`).
    pub only_v6: bool,
    /// Which sockets may have the same address and port.
    pub sharing: Sharing,
}

/// What two sockets both say to have one address and port together (socket(7)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sharing {
    /// `SO_REUSEADDR`: of UDP sockets the one that was bound last gets what no connected one does; one
    /// TCP socket of them listens.
    pub address: bool,
    /// `SO_REUSEPORT`: peers are divided among them.
    pub port: bool,
}

impl Sharing {
    fn allows(self, other: Self) -> bool {
        (self.address & other.address) | (self.port & other.port)
    }
}

impl From<SocketAddr> for Binding {
    fn from(address: SocketAddr) -> Self {
        Self {
            address,
            only_v6: false,
            sharing: Sharing::default(),
        }
    }
}

impl Binding {
    /// The same with another port.
    pub fn with_port(self, port: u16) -> Self {
        let address = SocketAddr::new(self.address.ip(), port);
        Self { address, ..self }
    }

    fn covers(&self, ip: IpAddr) -> bool {
        match self.address.ip() {
            IpAddr::V4(any) => any.is_unspecified() && ip.is_ipv4(),
            IpAddr::V6(any) => any.is_unspecified() && (ip.is_ipv6() || !self.only_v6),
        }
    }

    /// Whether a packet to `address` is for its socket.
    pub fn takes(&self, address: &SocketAddr) -> bool {
        let own = self.address;
        own.port() == address.port() && (own.ip() == address.ip() || self.covers(address.ip()))
    }

    /// Whether a packet could be for both.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.takes(&other.address) || other.takes(&self.address)
    }

    /// Whether one of two UDP sockets keeps the other from its port (`udp_lib_lport_inuse` in
    /// net/ipv4/udp.c).
    pub(crate) fn excludes(&self, other: &Self) -> bool {
        !self.sharing.allows(other.sharing) && self.overlaps(other)
    }

    /// Whether one of two listeners keeps the other from its port.
    pub(crate) fn excludes_listener(&self, other: &Self) -> bool {
        !(self.sharing.port & other.sharing.port) && self.overlaps(other)
    }

    /// Of several that take a packet from `peer`, the one of the highest rank gets it, as by
    /// `compute_score` in net/ipv4/udp.c and inet_hashtables.c: bound to an address, not to both families, of the
    /// highest number. Those that divide their peers have other ranks for each. Below bit 31.
    #[inline(always)]
    pub(crate) fn rank(&self, number: u32, peer: SocketAddr, key: u32) -> u32 {
        /// The bits below those of what comes first.
        const ORDER: u32 = (1 << 29) - 1;
        let own = self.address.ip();
        let order = if self.sharing.port {
            mixed(number, peer, key)
        } else {
            number
        };
        u32::from(!own.is_unspecified()) << 30 | u32::from(own.is_ipv4()) << 29 | order & ORDER
    }

    /// Where its packets come from on a route whose own address is `routed`. None: it has no
    /// address of that family.
    pub(crate) fn source(&self, routed: IpAddr) -> Option<IpAddr> {
        let own = self.address.ip();
        if own.is_unspecified() {
            return self.covers(routed).then_some(routed);
        }
        (own.is_ipv4() == routed.is_ipv4()).then_some(own)
    }
}

/// A number that says nothing about the socket's or the peer's.
fn mixed(number: u32, peer: SocketAddr, key: u32) -> u32 {
    const ODD: u32 = 0x9e37_79b9;
    let ip = match peer.ip() {
        IpAddr::V4(ip) => ip.to_bits(),
        IpAddr::V6(ip) => ip.to_bits() as u32,
    };
    let once = (ip ^ u32::from(peer.port()) ^ number << 16 ^ key).wrapping_mul(ODD);
    (once ^ once >> 16).wrapping_mul(ODD)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binding(address: &str, only_v6: bool) -> Binding {
        let address: SocketAddr = address.parse().expect("an address");
        Binding {
            only_v6,
            ..address.into()
        }
    }

    #[test]
    fn two_sockets_share_a_port_if_no_packet_could_be_for_both() {
        for (one, other, overlap) in [
            (("0.0.0.0:1", false), ("0.0.0.0:1", false), true),
            (("0.0.0.0:1", false), ("0.0.0.0:2", false), false),
            (("0.0.0.0:1", false), ("10.0.0.1:1", false), true),
            (("10.0.0.2:1", false), ("10.0.0.1:1", false), false),
            (("[::]:1", false), ("0.0.0.0:1", false), true),
            (("[::]:1", true), ("0.0.0.0:1", false), false),
            (("[::]:1", false), ("10.0.0.1:1", false), true),
            (("[::]:1", true), ("10.0.0.1:1", false), false),
            (("[::]:1", true), ("[::1]:1", false), true),
            (("[::]:1", true), ("[::]:1", false), true),
            (("[::1]:1", false), ("0.0.0.0:1", false), false),
        ] {
            let (one, other) = (binding(one.0, one.1), binding(other.0, other.1));
            assert_eq!(one.overlaps(&other), overlap, "{one:?} {other:?}");
            assert_eq!(other.overlaps(&one), overlap, "{other:?} {one:?}");
        }
    }

    #[test]
    fn packets_come_from_an_address_of_the_route_or_the_sockets_own() {
        for (bound, routed, source) in [
            ("0.0.0.0:1", "10.0.0.1", Some("10.0.0.1")),
            ("0.0.0.0:1", "fd00::1", None),
            ("[::]:1", "10.0.0.1", Some("10.0.0.1")),
            ("[::]:1", "fd00::1", Some("fd00::1")),
            ("10.0.0.2:1", "10.0.0.1", Some("10.0.0.2")),
            ("10.0.0.2:1", "fd00::1", None),
            ("[fd00::2]:1", "10.0.0.1", None),
        ] {
            let found = binding(bound, false).source(routed.parse().expect("an address"));
            assert_eq!(found, source.map(|it| it.parse().expect("an address")));
        }
        let any = binding("[::]:1", true);
        assert_eq!(any.source([10, 0, 0, 1].into()), None);
    }
}
