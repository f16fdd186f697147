//! ICMPv6 messages of neighbour discovery (RFC 4861), multicast listener discovery
//! (RFC 3810), and about packets of this host (RFC 4443). The frame's parser has
//! verified lengths and checksum.

use alloc::vec::Vec;
use core::net::Ipv6Addr;

use super::address::solicited_node;
use crate::neighbours::Mac;

pub(crate) const UNREACHABLE: u8 = 1;
pub(crate) const PACKET_TOO_BIG: u8 = 2;
pub(crate) const ECHO_REQUEST: u8 = 128;
pub(crate) const ECHO_REPLY: u8 = 129;
const MLD_QUERY: u8 = 130;
const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;
const NEIGHBOR_SOLICITATION: u8 = 135;
const NEIGHBOR_ADVERTISEMENT: u8 = 136;
const MLD_REPORT: u8 = 143;

const OPTION_SOURCE_MAC: u8 = 1;
const OPTION_TARGET_MAC: u8 = 2;
const OPTION_PREFIX: u8 = 3;
const OPTION_MTU: u8 = 5;
/// Name servers (RFC 8106, 5.1).
const OPTION_NAME_SERVERS: u8 = 25;

/// Flags of a neighbour advertisement.
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;
/// Most options of one kind that are looked at.
const OPTIONS_MAX: usize = 8;

/// A message about the link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// Who has `target`?
    Solicitation {
        target: Ipv6Addr,
        sender: Option<Mac>,
    },
    /// A neighbour is here.
    Advertisement(Advertisement),
    /// A router says what the link is like.
    Router(RouterAdvertisement),
    /// Which groups are listened to?
    GroupQuery,
}

/// A neighbour says where it is, or that it is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Advertisement {
    pub(crate) target: Ipv6Addr,
    pub(crate) mac: Option<Mac>,
    /// It answers a solicitation.
    pub(crate) is_solicited: bool,
    pub(crate) overrides: bool,
}

/// What a router says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RouterAdvertisement {
    /// How many seconds it is a router for others; 0 is never.
    pub(crate) lifetime_s: u16,
    /// DHCPv6 has more to say.
    pub(crate) ask_dhcp: bool,
    pub(crate) mac: Option<Mac>,
    pub(crate) mtu: Option<u32>,
    pub(crate) prefixes: Vec<PrefixInformation>,
    /// Name servers, with how many seconds they count; all ones are without end.
    pub(crate) name_servers: Vec<(Vec<Ipv6Addr>, u32)>,
}

/// A network that a router announces (RFC 4861, 4.6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PrefixInformation {
    pub(crate) network: Ipv6Addr,
    pub(crate) len: u8,
    pub(crate) is_on_link: bool,
    /// Hosts make themselves addresses in it.
    pub(crate) is_autonomous: bool,
    pub(crate) valid_s: u32,
    pub(crate) preferred_s: u32,
}

impl Message {
    /// Reads a message that came with `hop_limit`. `None` for another message,
    /// makes no sense, or has passed a router (RFC 4861, 6.1 and 7.1).
    pub(crate) fn parse(message: &[u8], hop_limit: u8) -> Option<Self> {
        let [kind, code, ..] = *message else {
            return None;
        };
        if kind == MLD_QUERY {
            // Of the link alone, too (RFC 3810, 5.1).
            return (hop_limit == 1).then_some(Self::GroupQuery);
        }
        if hop_limit != 255 || code != 0 {
            return None;
        }
        match kind {
            NEIGHBOR_SOLICITATION => Some(Self::Solicitation {
                target: target(message)?,
                sender: mac_in(message.get(24..)?, OPTION_SOURCE_MAC)?,
            }),
            NEIGHBOR_ADVERTISEMENT => Some(Self::Advertisement(Advertisement {
                target: target(message)?,
                mac: mac_in(message.get(24..)?, OPTION_TARGET_MAC)?,
                is_solicited: message[4] & SOLICITED != 0,
                overrides: message[4] & OVERRIDE != 0,
            })),
            ROUTER_ADVERTISEMENT => RouterAdvertisement::parse(message).map(Self::Router),
            _ => None,
        }
    }
}

fn target(message: &[u8]) -> Option<Ipv6Addr> {
    let octets = message.get(8..)?.first_chunk::<16>()?;
    let target = Ipv6Addr::from_octets(*octets);
    (!target.is_multicast()).then_some(target)
}

/// The options of a message; `None` in place of one that makes no sense.
fn options(mut rest: &[u8]) -> impl Iterator<Item = Option<(u8, &[u8])>> {
    core::iter::from_fn(move || {
        let [kind, eights, ..] = *rest else {
            return (!rest.is_empty()).then(|| {
                rest = &[];
                None
            });
        };
        let len = usize::from(eights) * 8;
        let Some((option, after)) = rest.split_at_checked(len).filter(|_| len > 0) else {
            rest = &[];
            return Some(None);
        };
        rest = after;
        Some(Some((kind, option)))
    })
}

/// The hardware address in an option; `None` outside if the options are damaged.
fn mac_in(rest: &[u8], wanted: u8) -> Option<Option<Mac>> {
    let mut mac = None;
    for option in options(rest) {
        let (kind, option) = option?;
        if kind == wanted {
            mac = mac.or(option.get(2..).and_then(|it| it.first_chunk().copied()));
        }
    }
    Some(mac)
}

impl RouterAdvertisement {
    fn parse(message: &[u8]) -> Option<Self> {
        const MANAGED_OR_OTHER: u8 = 0xc0;
        let fixed = message.first_chunk::<16>()?;
        let mut found = Self {
            lifetime_s: u16::from_be_bytes([fixed[6], fixed[7]]),
            ask_dhcp: fixed[5] & MANAGED_OR_OTHER != 0,
            ..Self::default()
        };
        for option in options(&message[16..]) {
            let (kind, option) = option?;
            match kind {
                OPTION_SOURCE_MAC => found.mac = option[2..].first_chunk().copied(),
                OPTION_MTU => found.mtu = word(option, 4),
                OPTION_PREFIX if found.prefixes.len() < OPTIONS_MAX => {
                    found.prefixes.extend(prefix(option));
                }
                OPTION_NAME_SERVERS if found.name_servers.len() < OPTIONS_MAX => {
                    let (octets, _) = option[8..].as_chunks::<16>();
                    let addresses = octets
                        .iter()
                        .map(|octets| Ipv6Addr::from_octets(*octets))
                        .take(OPTIONS_MAX)
                        .collect();
                    found
                        .name_servers
                        .extend(word(option, 4).map(|life| (addresses, life)));
                }
                _ => {}
            }
        }
        Some(found)
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_be_bytes(*word))
}

fn prefix(option: &[u8]) -> Option<PrefixInformation> {
    let option = option.first_chunk::<32>()?;
    let information = PrefixInformation {
        network: Ipv6Addr::from_octets(*option[16..].first_chunk()?),
        len: option[2],
        is_on_link: option[3] & 0x80 != 0,
        is_autonomous: option[3] & 0x40 != 0,
        valid_s: word(option, 4)?,
        preferred_s: word(option, 8)?,
    };
    let is_sound = information.len <= 128
        && information.preferred_s <= information.valid_s
        && !information.network.is_multicast()
        && !information.network.is_unicast_link_local();
    is_sound.then_some(information)
}

fn with_mac(mut message: Vec<u8>, option: u8, mac: Mac) -> Vec<u8> {
    message.extend([option, 1]);
    message.extend(mac);
    message
}

/// Asks for routers. Without an address a host does not say its
/// hardware address (RFC 4861, 4.1).
pub(crate) fn router_solicitation(mac: Mac) -> Vec<u8> {
    let message = Vec::from([ROUTER_SOLICITATION, 0, 0, 0, 0, 0, 0, 0]);
    with_mac(message, OPTION_SOURCE_MAC, mac)
}

/// Asks who has `target`.
pub(crate) fn solicitation(target: Ipv6Addr, mac: Mac) -> Vec<u8> {
    with_mac(probe(target), OPTION_SOURCE_MAC, mac)
}

/// Asks whether another host has `target` (RFC 4862, 5.4.2).
pub(crate) fn probe(target: Ipv6Addr) -> Vec<u8> {
    let mut message = Vec::from([NEIGHBOR_SOLICITATION, 0, 0, 0, 0, 0, 0, 0]);
    message.extend(target.octets());
    message
}

/// Why an advertisement is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Occasion {
    /// A neighbour asked.
    Asked,
    /// To tell all.
    Announcement,
}

/// Says that `target` is here.
pub(crate) fn advertisement(target: Ipv6Addr, mac: Mac, occasion: Occasion) -> Vec<u8> {
    let flags = match occasion {
        Occasion::Asked => SOLICITED | OVERRIDE,
        Occasion::Announcement => OVERRIDE,
    };
    let mut message = Vec::from([NEIGHBOR_ADVERTISEMENT, 0, 0, 0, flags, 0, 0, 0]);
    message.extend(target.octets());
    with_mac(message, OPTION_TARGET_MAC, mac)
}

/// Says that this host listens to the groups of its addresses.
pub(crate) fn group_report(addresses: impl Iterator<Item = Ipv6Addr>) -> Vec<u8> {
    /// To exclude none is to listen to all.
    const CHANGE_TO_EXCLUDE: [u8; 4] = [4, 0, 0, 0];
    let mut message = Vec::from([MLD_REPORT, 0, 0, 0, 0, 0, 0, 0]);
    for address in addresses {
        message.extend(CHANGE_TO_EXCLUDE);
        message.extend(solicited_node(address).octets());
        message[7] += 1;
    }
    message
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAC: Mac = [2, 0, 0, 0, 0, 9];

    /// A router advertisement with these options.
    pub(crate) fn advertise(flags: u8, lifetime: u16, options: &[u8]) -> Vec<u8> {
        let mut message = Vec::from([ROUTER_ADVERTISEMENT, 0, 0, 0, 64, flags]);
        message.extend(lifetime.to_be_bytes());
        message.extend([0; 8]);
        message.extend(options);
        message
    }

    #[test]
    fn what_is_written_is_read() {
        let target: Ipv6Addr = "2001:db8::1".parse().unwrap();
        assert_eq!(
            Message::parse(&solicitation(target, MAC), 255),
            Some(Message::Solicitation {
                target,
                sender: Some(MAC)
            })
        );
        assert_eq!(
            Message::parse(&probe(target), 255),
            Some(Message::Solicitation {
                target,
                sender: None
            })
        );
        assert_eq!(
            Message::parse(&advertisement(target, MAC, Occasion::Asked), 255),
            Some(Message::Advertisement(Advertisement {
                target,
                mac: Some(MAC),
                is_solicited: true,
                overrides: true
            }))
        );
    }

    #[test]
    fn what_has_passed_a_router_is_nothing() {
        let target: Ipv6Addr = "2001:db8::1".parse().unwrap();
        assert_eq!(Message::parse(&solicitation(target, MAC), 254), None);
        let group = solicitation("ff02::1".parse().unwrap(), MAC);
        assert_eq!(Message::parse(&group, 255), None);
        let query = [MLD_QUERY, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(Message::parse(&query, 1), Some(Message::GroupQuery));
        assert_eq!(Message::parse(&query, 64), None);
        let mut empty_option = solicitation(target, MAC);
        empty_option[25] = 0;
        assert_eq!(Message::parse(&empty_option, 255), None);
    }

    #[test]
    fn a_routers_options_are_read() {
        let mut options = Vec::from([3, 4, 64, 0xc0, 0, 0, 0x0e, 0x10, 0, 0, 0x07, 0x08]);
        options.extend([0; 4]);
        let network: Ipv6Addr = "2001:db8:5::".parse().unwrap();
        options.extend(network.octets());
        options.extend([5, 1, 0, 0, 0, 0, 5, 0xdc]);
        let server: Ipv6Addr = "2001:db8:5::53".parse().unwrap();
        options.extend([25, 3, 0, 0, 0, 0, 0, 60]);
        options.extend(server.octets());
        options.extend([1, 1]);
        options.extend(MAC);
        let Some(Message::Router(found)) = Message::parse(&advertise(0x40, 1800, &options), 255)
        else {
            panic!("a good advertisement");
        };
        let prefix = PrefixInformation {
            network,
            len: 64,
            is_on_link: true,
            is_autonomous: true,
            valid_s: 3600,
            preferred_s: 1800,
        };
        assert_eq!((found.lifetime_s, found.ask_dhcp), (1800, true));
        assert_eq!((found.mac, found.mtu), (Some(MAC), Some(1500)));
        assert_eq!(found.prefixes, [prefix]);
        assert_eq!(found.name_servers, [(Vec::from([server]), 60)]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(
            kind in prop_oneof![Just(134u8), Just(135), Just(136), any::<u8>()],
            rest in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut message = Vec::from([kind, 0]);
            message.extend(rest);
            Message::parse(&message, 255);
        }
    }
}
