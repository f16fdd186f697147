//! The decision about each frame.

use std::net::{IpAddr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use crate::address::{embedded, special};
use crate::flows::Flows;
use crate::packet::{HOP_BY_HOP, ICMPV6, Ip, Packet, Ports, UDP};
use crate::{Prefix, Reason};

const DHCP_CLIENT: u16 = 68;
const DHCP_SERVER: u16 = 67;
/// Port of name servers.
const DNS: u16 = 53;
const DHCPV6: Ports = Ports {
    source: 546,
    destination: 547,
};
/// All DHCPv6 servers of the link (RFC 8415, 7.1).
const DHCPV6_SERVERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);
/// The routers that keep account of groups (RFC 3810, 5.2.14).
const MLD_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);

/// What is closed and open beyond the special addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// The host's own addresses.
    pub host: Vec<Prefix>,
    /// Addresses that are open all the same.
    pub allow: Vec<Prefix>,
    /// The guest's gateways, by which passt may mean the host's loopback: a guest finds their hardware addresses,
    /// asks them for names and for its own address, and answers; nothing else, whatever `allow` says.
    pub gateways: Vec<IpAddr>,
}

/// What happens to a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    Pass,
    /// It goes no further.
    Drop(Reason),
}

/// The filter of one network interface.
#[derive(Debug)]
pub struct Filter {
    rules: Rules,
    flows: Flows,
}

impl Filter {
    /// A filter by `rules`.
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            flows: Flows::new(),
        }
    }

    /// Decides about a frame from the guest.
    pub fn check_outgoing(&self, frame: &[u8]) -> Verdict {
        match Packet::parse(frame).and_then(|packet| self.check_packet(&packet)) {
            Ok(()) => Verdict::Pass,
            Err(reason) => Verdict::Drop(reason),
        }
    }

    /// Notes a frame to the guest: it may be answered.
    pub fn note_incoming(&mut self, frame: &[u8]) {
        if let Ok(Packet::Ip(ip)) = Packet::parse(frame)
            && self.destination(ip.source).is_err()
        {
            self.flows.record(&ip);
        }
    }

    fn check_packet(&self, packet: &Packet) -> Result<(), Reason> {
        match packet {
            Packet::Rarp => Ok(()),
            Packet::Arp { sender, target } => {
                // A probe (RFC 5227) has no sender yet.
                if !sender.is_unspecified() {
                    self.source((*sender).into())?;
                }
                if self.is_gateway((*target).into()) {
                    return Ok(());
                }
                self.destination((*target).into())
            }
            Packet::Ip(ip) if starts_up(ip) || self.flows.answers(ip) => Ok(()),
            Packet::Ip(ip) => {
                self.source(ip.source)?;
                if self.is_gateway(ip.destination) && serves(ip) {
                    return Ok(());
                }
                self.destination(ip.destination)
            }
        }
    }

    /// The host may have the guest's address too, in its own network, so
    /// the host's addresses are not looked for here.
    fn source(&self, address: IpAddr) -> Result<(), Reason> {
        match special(address) {
            Some(reason) if !self.allows(address) => Err(reason),
            _ => Ok(()),
        }
    }

    fn destination(&self, address: IpAddr) -> Result<(), Reason> {
        if self.is_gateway(address) {
            return Err(Reason::Host);
        }
        if self.allows(address) {
            return Ok(());
        }
        if let Some(reason) = special(address) {
            return Err(reason);
        }
        if self.is_hosts(address) {
            return Err(Reason::Host);
        }
        Ok(())
    }

    fn is_gateway(&self, address: IpAddr) -> bool {
        self.rules.gateways.contains(&address)
    }

    fn allows(&self, address: IpAddr) -> bool {
        self.rules.allow.iter().any(|range| range.contains(address))
    }

    fn is_hosts(&self, address: IpAddr) -> bool {
        let embedded = match address {
            IpAddr::V6(address) => embedded(address).map(IpAddr::V4),
            IpAddr::V4(_) => None,
        };
        let mut addresses = std::iter::once(address).chain(embedded);
        addresses.any(|address| self.rules.host.iter().any(|range| range.contains(address)))
    }
}

/// Whether passt itself takes the packet for a gateway: names (which it sends on to the host's resolver), DHCP and
/// neighbour discovery. Names by TCP are not among them: Debian 12's passt connects to the host's loopback.
fn serves(ip: &Ip) -> bool {
    match ip.ports {
        Some(ports) => ip.protocol == UDP && [DNS, DHCP_SERVER].contains(&ports.destination),
        None => ip.protocol == ICMPV6 && matches!(ip.icmpv6, Some(135 | 136)),
    }
}

/// What a guest says before it has an address, or to find its router: DHCP
/// (RFC 2131), neighbour discovery (RFC 4861, 4) and DHCPv6 (RFC 8415), which passt
/// answers itself, and reports of multicast groups, which it ignores.
fn starts_up(ip: &Ip) -> bool {
    let dhcp = Ports {
        source: DHCP_CLIENT,
        destination: DHCP_SERVER,
    };
    match ip.destination {
        IpAddr::V4(to) => to.is_broadcast() && ip.protocol == UDP && ip.ports == Some(dhcp),
        IpAddr::V6(to) => {
            let on_link = to.is_multicast() || to.is_unicast_link_local();
            let source = match ip.source {
                IpAddr::V6(from) => from.is_unspecified() || from.is_unicast_link_local(),
                IpAddr::V4(_) => false,
            };
            // Solicitations and advertisements that a host sends: passt forwards an echo request to
            // the host's own links.
            let discovery =
                on_link && ip.protocol == ICMPV6 && matches!(ip.icmpv6, Some(133 | 135 | 136));
            let dhcp = to == DHCPV6_SERVERS && ip.protocol == UDP && ip.ports == Some(DHCPV6);
            // RFC 2710, 3; RFC 3810, 5.2.
            let groups = to == MLD_ROUTERS
                && ip.protocol == HOP_BY_HOP
                && matches!(ip.icmpv6, Some(131 | 132 | 143));
            source && (discovery || dhcp || groups)
        }
    }
}

#[cfg(test)]
mod tests;
