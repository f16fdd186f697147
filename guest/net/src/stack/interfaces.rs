//! [`Interface`]: what a program may know of the appliance's network.

use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use smoltcp::wire::IpAddress;

use super::config::LOCALHOST;
use super::{Link, Stack, Wake};
use crate::port::Port;

/// An address and the network that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// The appliance's own address.
    pub address: IpAddr,
    /// Leading bits that all addresses of the network share.
    pub prefix_len: u8,
}

/// An interface of the appliance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Hardware address of Ethernet; `None` of the loopback.
    pub mac: Option<[u8; 6]>,
    /// Largest IP packet, bytes.
    pub mtu: u16,
    /// Its addresses, those of IPv4 first.
    pub networks: Vec<Network>,
    /// Routers to all other networks: one of IPv4, one of IPv6 at most.
    pub routers: Vec<IpAddr>,
}

impl<L: Link, W: Wake> Stack<L, W> {
    /// The loopback, and the wire if there is one.
    pub fn interfaces(&mut self) -> Vec<Interface> {
        let localhost = Network {
            address: LOCALHOST.address().into(),
            prefix_len: LOCALHOST.prefix_len(),
        };
        let localhost_v6 = Network {
            address: Ipv6Addr::LOCALHOST.into(),
            prefix_len: 128,
        };
        let mut interfaces = vec![Interface {
            mac: None,
            mtu: self.loopback.link_properties().mtu,
            networks: vec![localhost, localhost_v6],
            routers: Vec::new(),
        }];
        if self.setup.has_network {
            interfaces.push(wire(&mut self.wire));
        }
        interfaces
    }
}

fn wire<L: Link>(port: &mut Port<L>) -> Interface {
    let properties = port.link_properties();
    let v4 = port.interface().ip_addrs().iter().map(|cidr| Network {
        address: match cidr.address() {
            IpAddress::Ipv4(address) => address.into(),
        },
        prefix_len: cidr.prefix_len(),
    });
    let mut networks: Vec<Network> = v4.collect();
    networks.extend(port.ipv6.own().iter().map(|own| Network {
        address: own.address.into(),
        prefix_len: own.prefix_len,
    }));
    let any = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    let routers = any.map(|any| port.router_to(any));
    Interface {
        mac: Some(properties.mac),
        mtu: port.ipv6.mtu(properties.mtu),
        networks,
        routers: routers.into_iter().flatten().collect(),
    }
}
