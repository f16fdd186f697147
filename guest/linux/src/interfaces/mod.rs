//! Network interfaces as Linux shows them (`netdevice(7)`, `rtnetlink(7)`): `lo`, and `eth0` where the
//! machine has a network. A program reads them and changes none.

pub(crate) mod route;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write as _;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use linux_raw_sys::if_arp::{ARPHRD_ETHER, ARPHRD_LOOPBACK};
use linux_raw_sys::net::net_device_flags as flag;
use tare_libos::net::{self, Network};

/// Frames that wait for being sent, as Linux says of a network card.
pub(crate) const QUEUE_LENGTH: u32 = 1000;

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    /// From 1.
    pub(crate) index: u32,
    pub(crate) name: &'static str,
    pub(crate) inner: net::Interface,
}

/// How far an address reaches (`rt_scope_t` of `include/uapi/linux/rtnetlink.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Scope {
    Universe = 0,
    Link = 253,
    Host = 254,
}

/// Those of the machine, as they are now.
#[cfg(target_os = "none")]
pub(crate) fn all() -> Vec<Interface> {
    numbered(net::interfaces())
}

/// The host, where the tests run, has none of the stack's.
#[cfg(not(target_os = "none"))]
pub(crate) fn all() -> Vec<Interface> {
    Vec::new()
}

fn numbered(interfaces: Vec<net::Interface>) -> Vec<Interface> {
    let interfaces = (1..).zip(["lo", "eth0"]).zip(interfaces);
    let interfaces = interfaces.map(|((index, name), inner)| Interface { index, name, inner });
    interfaces.collect()
}

impl Interface {
    pub(crate) fn is_loopback(&self) -> bool {
        self.inner.mac.is_none()
    }

    /// Its flags (`include/uapi/linux/if.h`).
    pub(crate) fn flags(&self) -> u32 {
        let kind = if self.is_loopback() {
            flag::IFF_LOOPBACK as u32
        } else {
            flag::IFF_BROADCAST as u32 | flag::IFF_MULTICAST as u32
        };
        let up = flag::IFF_UP as u32 | flag::IFF_RUNNING as u32 | flag::IFF_LOWER_UP as u32;
        up | kind
    }

    /// Its kind of hardware (`include/uapi/linux/if_arp.h`).
    pub(crate) fn hardware(&self) -> u16 {
        let hardware = if self.is_loopback() {
            ARPHRD_LOOPBACK
        } else {
            ARPHRD_ETHER
        };
        hardware as u16
    }

    /// Its hardware address; zeros of the loopback.
    pub(crate) fn mac(&self) -> [u8; 6] {
        self.inner.mac.unwrap_or_default()
    }

    /// Addresses of IPv4, with their networks.
    pub(crate) fn v4(&self) -> impl Iterator<Item = (Ipv4Addr, u8)> {
        self.inner
            .networks
            .iter()
            .filter_map(|it| match it.address {
                IpAddr::V4(address) => Some((address, it.prefix_len)),
                IpAddr::V6(_) => None,
            })
    }

    pub(crate) fn scope(&self, network: &Network) -> Scope {
        match network.address {
            _ if self.is_loopback() => Scope::Host,
            IpAddr::V6(address) if address.is_unicast_link_local() => Scope::Link,
            _ => Scope::Universe,
        }
    }
}

/// The mask of a network of IPv4.
pub(crate) fn mask(prefix_len: u8) -> Ipv4Addr {
    let bits = u32::MAX.checked_shl(32 - u32::from(prefix_len.min(32)));
    Ipv4Addr::from_bits(bits.unwrap_or(0))
}

/// The broadcast address of a network of IPv4.
pub(crate) fn broadcast(address: Ipv4Addr, prefix_len: u8) -> Ipv4Addr {
    Ipv4Addr::from_bits(address.to_bits() | !mask(prefix_len).to_bits())
}

/// The network of an address, its other bits zero.
fn network(address: IpAddr, prefix_len: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            Ipv4Addr::from_bits(address.to_bits() & mask(prefix_len).to_bits()).into()
        }
        IpAddr::V6(address) => {
            let bits = u128::MAX.checked_shl(128 - u32::from(prefix_len.min(128)));
            Ipv6Addr::from_bits(address.to_bits() & bits.unwrap_or(0)).into()
        }
    }
}

/// `/proc/net/if_inet6` (`if6_seq_show` of kernel net/ipv6/addrconf.c).
pub(crate) fn if_inet6(interfaces: &[Interface]) -> String {
    /// `IFA_F_PERMANENT`.
    const PERMANENT: u8 = 0x80;
    let mut text = String::new();
    for interface in interfaces {
        for it in &interface.inner.networks {
            let IpAddr::V6(address) = it.address else {
                continue;
            };
            let (index, name) = (interface.index, interface.name);
            // Scopes of addresses here are those of `include/net/ipv6.h`.
            let scope = match interface.scope(it) {
                Scope::Universe => 0,
                Scope::Link => 0x20,
                Scope::Host => 0x10,
            };
            let (bits, len) = (address.to_bits(), it.prefix_len);
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "{bits:032x} {index:02x} {len:02x} {scope:02x} {PERMANENT:02x} {name:>8}"
            );
        }
    }
    text
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use alloc::vec;

    /// The loopback, and 10.0.2.15/24 behind 10.0.2.2 with an address of each reach of IPv6.
    pub(crate) fn two() -> Vec<Interface> {
        let network = |address: &str, prefix_len| Network {
            address: address.parse().unwrap(),
            prefix_len,
        };
        numbered(vec![
            net::Interface {
                mac: None,
                mtu: 16_384,
                networks: vec![network("127.0.0.1", 8), network("::1", 128)],
                routers: vec![],
            },
            net::Interface {
                mac: Some([2, 0, 0, 0, 0, 5]),
                mtu: 1500,
                networks: vec![
                    network("10.0.2.15", 24),
                    network("fe80::5", 64),
                    network("2001:db8::5", 64),
                ],
                routers: vec!["10.0.2.2".parse().unwrap(), "fe80::1".parse().unwrap()],
            },
        ])
    }

    #[test]
    fn masks_and_broadcasts_of_any_length() {
        let address = Ipv4Addr::new(10, 1, 2, 3);
        let text = |len| (mask(len).to_bits(), broadcast(address, len).to_bits());
        assert_eq!(text(0), (0, u32::MAX));
        assert_eq!(text(24), (0xffff_ff00, 0x0a01_02ff));
        assert_eq!(text(32), (u32::MAX, 0x0a01_0203));
        let own = "2001:db8::5".parse().unwrap();
        assert_eq!(network(own, 64), "2001:db8::".parse::<IpAddr>().unwrap());
        assert_eq!(network(own, 0), "::".parse::<IpAddr>().unwrap());
        assert_eq!(network(own, 128), own);
    }

    #[test]
    fn addresses_of_ipv6_are_listed_as_in_proc() {
        let text = if_inet6(&two());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "00000000000000000000000000000001 01 80 10 80       lo",
                "fe800000000000000000000000000005 02 40 20 80     eth0",
                "20010db8000000000000000000000005 02 40 00 80     eth0",
            ]
        );
    }
}
