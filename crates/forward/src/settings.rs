//! [`Settings`]: the two ends of the wire, and how much a guest and its clients can make the table
//! hold.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tare_devices::net::RxOffload;
use tare_tcp::{Config, FourTuple, time::Duration};

use crate::frame::{IPV4_HEADER, IPV6_HEADER, UDP_HEADER};

/// Bytes of IPv4's and TCP's header.
const HEADERS_V4: u16 = 40;
/// Bytes of IPv6's and TCP's header.
const HEADERS_V6: u16 = 60;

/// Most payload of a frame with several segments, for a guest that accepts such frames. The library OS's 64 buffers of
/// one Ethernet frame each hold six.
const TOGETHER: u16 = 16 << 10;

/// Addresses of one version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends<A> {
    /// The guest's.
    pub guest: A,
    /// The host's: clients whose own address the guest could not answer come from here.
    pub gateway: A,
}

/// Who else is on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// No process: requests for the gateway's hardware address are answered here, and connections that
    /// the guest opens are refused.
    Nothing,
    /// passt: it gets every frame that belongs to no connection of the table.
    Passt,
    /// passt, which starts with the first frame that it gets: a connection that the guest opens, a
    /// datagram, an echo request. Requests for hardware addresses are answered here, and the rest is as
    /// without it.
    WaitingPasst,
}

/// Bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at a time.
    pub connections: usize,
    /// Bytes of all buffers.
    pub buffers: usize,
}

/// What a table is made with.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The guest's hardware address.
    pub guest_mac: [u8; 6],
    /// The host's hardware address.
    pub gateway_mac: [u8; 6],
    /// IPv4 addresses.
    pub v4: Ends<Ipv4Addr>,
    /// IPv6 addresses, if the guest has one.
    pub v6: Option<Ends<Ipv6Addr>>,
    /// Largest IP packet.
    pub mtu: u16,
    /// Who else is on the wire.
    pub beside: Beside,
    /// Bounds.
    pub limits: Limits,
    /// Random: sequence numbers come from it.
    pub secret: [u8; 16],
}

impl Settings {
    /// The ends of a connection to the guest's `port` as the guest sees it; `None` if the guest has no
    /// address of the client's kind. A client keeps its address, unless that means another host to
    /// the guest (loopback, link-local, the guest's own).
    pub(crate) fn tuple(&self, client: SocketAddr, port: u16) -> Option<FourTuple> {
        let (guest, host): (IpAddr, IpAddr) = match client.ip().to_canonical() {
            IpAddr::V4(ip) => {
                let kept = !(ip.is_loopback() || ip.is_unspecified() || ip.is_link_local())
                    && ip != self.v4.guest;
                let host = if kept { ip } else { self.v4.gateway };
                (self.v4.guest.into(), host.into())
            }
            IpAddr::V6(ip) => {
                let v6 = self.v6?;
                let kept = !(ip.is_loopback() || ip.is_unspecified() || ip.is_unicast_link_local())
                    && ip != v6.guest;
                let host = if kept { ip } else { v6.gateway };
                (v6.guest.into(), host.into())
            }
        };
        Some(FourTuple {
            local: SocketAddr::new(host, client.port()),
            remote: SocketAddr::new(guest, port),
        })
    }

    /// Most bytes of a datagram from an address of this kind: in fragments, but by IPv6 in one packet.
    pub(crate) fn longest_datagram(&self, client: IpAddr) -> usize {
        match client.to_canonical() {
            IpAddr::V4(_) => usize::from(u16::MAX) - IPV4_HEADER - UDP_HEADER,
            IpAddr::V6(_) => usize::from(self.mtu).saturating_sub(IPV6_HEADER + UDP_HEADER),
        }
    }

    /// Whether the guest reaches addresses of this kind.
    pub(crate) fn reaches(&self, address: IpAddr) -> bool {
        address.is_ipv4() || self.v6.is_some()
    }

    /// How a connection to the guest begins, which accepts these offloads.
    pub(crate) fn tcp(&self, tuple: &FourTuple, accepted: RxOffload) -> Config {
        let (headers, takes_long) = match tuple.remote {
            SocketAddr::V4(_) => (HEADERS_V4, accepted.tso4),
            SocketAddr::V6(_) => (HEADERS_V6, accepted.tso6),
        };
        Config {
            mss: self.mtu.saturating_sub(headers),
            together: if takes_long { TOGETHER } else { 0 },
            receive_initial: 64 << 10,
            receive_max: 512 << 10,
            send_max: 512 << 10,
            user_timeout: Duration::from_secs(120),
            handshake_retries: 7,
            ..Config::default()
        }
    }
}
