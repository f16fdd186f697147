//! The address of the appliance: given on the command line, or by DHCP (`dhcp`).

use core::net::{Ipv4Addr, Ipv6Addr};

use smoltcp::wire::Ipv4Cidr;

use crate::ipv6::address;

/// 127.0.0.1/8.
pub(super) const LOCALHOST: Ipv4Cidr = Ipv4Cidr::new(Ipv4Addr::LOCALHOST, 8);

/// Where the address comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Setup {
    /// A DHCP server.
    #[default]
    Dhcp,
    /// The command line.
    Static {
        /// Address and prefix.
        address: Ipv4Cidr,
        /// Default gateway.
        gateway: Option<Ipv4Addr>,
    },
    /// No address but the loopback's.
    LoopbackOnly,
}

impl Setup {
    /// Parses the value of `ip=ADDRESS/PREFIX[,GATEWAY]`.
    ///
    /// ```
    /// use tare_net::stack::Setup;
    /// assert!(Setup::from_word("10.0.2.15/24,10.0.2.2").is_some());
    /// assert!(Setup::from_word("10.0.2.15").is_none());
    /// ```
    pub fn from_word(word: &str) -> Option<Self> {
        let (cidr, gateway) = match word.split_once(',') {
            Some((cidr, gateway)) => (cidr, Some(gateway.parse::<Ipv4Addr>().ok()?)),
            None => (word, None),
        };
        let (address, prefix) = cidr.split_once('/')?;
        let address = address.parse::<Ipv4Addr>().ok()?;
        let prefix = prefix.parse::<u8>().ok().filter(|prefix| *prefix <= 32)?;
        if !is_host(address) || !gateway.is_none_or(is_host) {
            return None;
        }
        Some(Self::Static {
            address: Ipv4Cidr::new(address, prefix),
            gateway,
        })
    }
}

/// Where IPv6 addresses come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ipv6Setup {
    /// Routers announce networks, this host makes an address in each.
    #[default]
    Auto,
    /// The command line.
    Static {
        /// The address.
        address: Ipv6Addr,
        /// Bits of its network.
        prefix_len: u8,
        /// Default router.
        gateway: Option<Ipv6Addr>,
    },
    /// No IPv6 but the loopback's.
    Off,
}

impl Ipv6Setup {
    /// Parses the value of `ip6=auto|off|ADDRESS/PREFIX[,GATEWAY]`.
    ///
    /// ```
    /// use tare_net::stack::Ipv6Setup;
    /// assert_eq!(Ipv6Setup::from_word("off"), Some(Ipv6Setup::Off));
    /// assert!(Ipv6Setup::from_word("2001:db8::2/64,fe80::1").is_some());
    /// assert!(Ipv6Setup::from_word("2001:db8::2").is_none());
    /// ```
    pub fn from_word(word: &str) -> Option<Self> {
        match word {
            "auto" => return Some(Self::Auto),
            "off" => return Some(Self::Off),
            _ => {}
        }
        let (cidr, gateway) = match word.split_once(',') {
            Some((cidr, gateway)) => (cidr, Some(gateway.parse::<Ipv6Addr>().ok()?)),
            None => (word, None),
        };
        let (address, prefix) = cidr.split_once('/')?;
        let address = address.parse::<Ipv6Addr>().ok()?;
        let prefix_len = prefix.parse::<u8>().ok().filter(|prefix| *prefix <= 128)?;
        if !address::is_host(address) || !gateway.is_none_or(address::is_host) {
            return None;
        }
        Some(Self::Static {
            address,
            prefix_len,
            gateway,
        })
    }
}

/// Whether a host may have this address.
pub(super) fn is_host(address: Ipv4Addr) -> bool {
    !(address.is_unspecified()
        || address.is_broadcast()
        || address.is_multicast()
        || address.is_loopback())
}
