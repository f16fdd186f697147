//! [`Addresses`]: the IPv6 addresses of a port, the networks on its link, and its
//! routers. All lists are bounded, since any host on the link can announce.

use alloc::vec::Vec;
use core::net::Ipv6Addr;

use smoltcp::time::Instant;

use super::address::{LINK_LOCAL, is_within};

/// Most addresses of the port.
const ADDRESSES: usize = 8;
/// Most networks on the link beside those of the addresses.
const PREFIXES: usize = 8;
const ROUTERS: usize = 4;
/// The smallest MTU that a link may have (RFC 8200, 5).
pub(crate) const MTU_MIN: u16 = 1280;

/// Until when something counts; `None` is without end.
pub(crate) type Until = Option<Instant>;

pub(crate) fn has_ended(until: Until, now: Instant) -> bool {
    until.is_some_and(|until| until <= now)
}

/// An address of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Own {
    pub(crate) address: Ipv6Addr,
    pub(crate) prefix_len: u8,
    /// From when on it is not used for new connections.
    pub(crate) preferred: Until,
    pub(crate) valid: Until,
    /// When it was taken.
    pub(crate) taken: Instant,
    /// How often another one was tried before it.
    pub(crate) tries: u8,
}

#[derive(Clone, Copy, Debug)]
struct Prefix {
    network: Ipv6Addr,
    len: u8,
    valid: Until,
}

#[derive(Clone, Copy, Debug)]
struct Router {
    address: Ipv6Addr,
    valid: Until,
}

const LOOPBACK: Own = Own {
    address: Ipv6Addr::LOCALHOST,
    prefix_len: 128,
    preferred: None,
    valid: None,
    taken: Instant::ZERO,
    tries: 0,
};

/// What a port knows of its link.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    own: Vec<Own>,
    prefixes: Vec<Prefix>,
    routers: Vec<Router>,
    mtu: Option<u16>,
}

impl Addresses {
    pub(crate) fn own(&self) -> &[Own] {
        &self.own
    }

    pub(crate) fn own_mut(&mut self) -> impl Iterator<Item = &mut Own> {
        self.own.iter_mut()
    }

    pub(crate) fn has(&self, address: Ipv6Addr) -> bool {
        self.own.iter().any(|own| own.address == address)
    }

    /// The loopback's table: `::1`, and the addresses of the wire.
    pub(crate) fn mirror(&mut self, wire: &Self) {
        self.own.clear();
        self.own.push(LOOPBACK);
        self.own.extend(&wire.own);
    }

    /// Takes an address. `false` if there are too many.
    pub(crate) fn add(&mut self, own: Own) -> bool {
        let fits = self.own.len() < ADDRESSES && !self.has(own.address);
        if fits {
            self.own.push(own);
        }
        fits
    }

    /// Gives an address up.
    pub(crate) fn remove(&mut self, address: Ipv6Addr) -> Option<Own> {
        let at = self.own.iter().position(|own| own.address == address)?;
        Some(self.own.remove(at))
    }

    /// This host's address that counts on the link only.
    pub(crate) fn link_local(&self) -> Option<Ipv6Addr> {
        let addresses = self.own.iter().map(|own| own.address);
        addresses.into_iter().find(Ipv6Addr::is_unicast_link_local)
    }

    /// Whether there is an address that counts beyond the link.
    pub(crate) fn has_global(&self) -> bool {
        self.own
            .iter()
            .any(|own| !own.address.is_unicast_link_local())
    }

    /// Whether `address` is reached without a router.
    pub(crate) fn is_on_link(&self, address: Ipv6Addr) -> bool {
        is_within(address, LINK_LOCAL, 10)
            || self
                .prefixes
                .iter()
                .any(|prefix| is_within(address, prefix.network, prefix.len))
    }

    /// The router to other networks.
    pub(crate) fn router(&self) -> Option<Ipv6Addr> {
        self.routers.first().map(|router| router.address)
    }

    /// Whether `address` is a router that announces itself.
    pub(crate) fn is_router(&self, address: Ipv6Addr) -> bool {
        self.routers.iter().any(|router| router.address == address)
    }

    /// The address to send from to `remote` (RFC 6724, 5): one of the same reach,
    /// preferably not deprecated, then the one with most bits in common. `None` if
    /// there is none, or no way.
    pub(crate) fn source_for(&self, remote: Ipv6Addr, now: Instant) -> Option<Ipv6Addr> {
        let on_link_only = remote.is_unicast_link_local()
            || (remote.is_multicast() && remote.octets()[1] & 0x0f <= 2);
        if !remote.is_multicast() && !self.is_on_link(remote) && self.routers.is_empty() {
            return None;
        }
        let same_reach = |own: &&Own| own.address.is_unicast_link_local() == on_link_only;
        let rank = |own: &&Own| {
            let common = (own.address.to_bits() ^ remote.to_bits()).leading_zeros();
            (!has_ended(own.preferred, now), common)
        };
        let best = self.own.iter().filter(same_reach).max_by_key(rank);
        best.map(|own| own.address)
    }

    /// Notes a network on the link, or that it is not any more.
    pub(crate) fn note_prefix(&mut self, network: Ipv6Addr, len: u8, valid: Until, now: Instant) {
        self.prefixes
            .retain(|prefix| (prefix.network, prefix.len) != (network, len));
        if !has_ended(valid, now) && self.prefixes.len() < PREFIXES {
            self.prefixes.push(Prefix {
                network,
                len,
                valid,
            });
        }
    }

    /// Notes a router, or that it is no longer one.
    pub(crate) fn note_router(&mut self, address: Ipv6Addr, valid: Until, now: Instant) {
        let known = self.routers.iter().position(|it| it.address == address);
        if has_ended(valid, now) {
            self.routers.retain(|it| it.address != address);
        } else if let Some(at) = known {
            self.routers[at].valid = valid;
        } else if self.routers.len() < ROUTERS {
            self.routers.push(Router { address, valid });
        }
    }

    /// The MTU that a router announced, within what the link takes.
    pub(crate) fn note_mtu(&mut self, mtu: u32) {
        let mtu = u16::try_from(mtu).ok().filter(|mtu| *mtu >= MTU_MIN);
        self.mtu = mtu.or(self.mtu);
    }

    /// Largest packet on a link that takes `link_mtu`.
    pub(crate) fn mtu(&self, link_mtu: u16) -> u16 {
        self.mtu.map_or(link_mtu, |mtu| mtu.min(link_mtu))
    }

    /// Forgets what has ended.
    pub(crate) fn expire(&mut self, now: Instant) {
        self.own.retain(|own| !has_ended(own.valid, now));
        self.prefixes.retain(|prefix| !has_ended(prefix.valid, now));
        self.routers.retain(|router| !has_ended(router.valid, now));
    }

    /// When the next thing ends.
    pub(crate) fn next_end(&self) -> Option<Instant> {
        let own = self.own.iter().filter_map(|own| own.valid);
        let prefixes = self.prefixes.iter().filter_map(|prefix| prefix.valid);
        let routers = self.routers.iter().filter_map(|router| router.valid);
        own.chain(prefixes).chain(routers).min()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn own(address: &str, preferred: Until) -> Own {
        Own {
            address: address.parse().unwrap(),
            prefix_len: 64,
            preferred,
            valid: None,
            taken: Instant::ZERO,
            tries: 0,
        }
    }

    #[test]
    fn the_source_has_the_reach_and_the_prefix_of_the_destination() {
        let mut table = Addresses::default();
        let now = Instant::from_secs(10);
        for (address, preferred) in [
            ("fe80::1", None),
            ("2001:db8:1::1", None),
            ("2001:db8:2::1", None),
            ("2001:db8:2:1::1", Some(Instant::from_secs(5))),
        ] {
            assert!(table.add(own(address, preferred)));
        }
        table.note_router("fe80::ff".parse().unwrap(), None, now);
        for (remote, source) in [
            ("fe80::2", "fe80::1"),
            ("ff02::1:2", "fe80::1"),
            ("2001:db8:1::9", "2001:db8:1::1"),
            ("2001:db8:2:1::9", "2001:db8:2::1"),
        ] {
            let source: Ipv6Addr = source.parse().unwrap();
            let found = table.source_for(remote.parse().unwrap(), now);
            assert_eq!(found, Some(source), "{remote}");
        }
        table.note_router("fe80::ff".parse().unwrap(), Some(now), now);
        assert_eq!(
            table.source_for("2001:db8:9::9".parse().unwrap(), now),
            None
        );
    }

    #[test]
    fn announcements_cannot_fill_the_memory_and_end() {
        let mut table = Addresses::default();
        let until = Some(Instant::from_secs(100));
        let now = Instant::ZERO;
        for n in 0..1000 {
            let address = Ipv6Addr::new(0x2001, 0xdb8, n, 0, 0, 0, 0, 1);
            table.note_prefix(address, 64, until, now);
            table.note_router(address, until, now);
            table.add(Own {
                valid: until,
                ..own(&alloc::format!("2001:db8:{n:x}::1"), None)
            });
        }
        let lens = vec![table.own.len(), table.prefixes.len(), table.routers.len()];
        assert_eq!(lens, [ADDRESSES, PREFIXES, ROUTERS]);
        assert_eq!(table.next_end(), until);
        table.expire(Instant::from_secs(100));
        assert_eq!(table.next_end(), None);
        assert!(table.own.is_empty() && table.router().is_none());
    }
}
