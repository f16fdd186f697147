//! The DHCP client (RFC 2131): smoltcp's, and what becomes of its leases.

use core::net::Ipv4Addr;

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::socket::dhcpv4;
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{
    DhcpMessageType, DhcpPacket, DhcpRepr, EthernetAddress, IpProtocol, Ipv4Packet, Ipv4Repr,
    UdpPacket, UdpRepr,
};

use super::config::is_host;
use super::lease::{CLIENT_PORT, Lease};
use super::{Stack, Wake};
use crate::link::Link;
use crate::port::Egress;

const SERVER_PORT: u16 = 67;
/// When the link could not take a DHCP packet, try again then.
const LINK_RETRY: Duration = Duration::from_millis(100);
/// After a lease that was of no use the client waits so long (RFC 2131, 3.1.5).
const HOLD_OFF: Duration = Duration::from_secs(10);
const HEADERS_BYTES: usize = 14 + 20 + 8;

impl<L: Link, W: Wake> Stack<L, W> {
    pub(super) fn ingress_dhcp(&mut self, frame: &[u8], now: Instant) {
        if let Some(client) = &mut self.setup.client
            && !client.holds_off(now)
        {
            self.wire.ingress(frame, &mut client.set, now);
        }
        self.drive_setup(now);
    }

    /// Lets the DHCP client speak and takes over what it learned.
    pub(super) fn drive_setup(&mut self, now: Instant) {
        let Some(client) = &mut self.setup.client else {
            return;
        };
        if client.holds_off(now) {
            self.setup.deadline = client.hold_until;
            return;
        }
        client.hold_until = None;
        let offered = match client.socket().poll() {
            None => return self.drive_dhcp(now),
            Some(dhcpv4::Event::Deconfigured) => None,
            Some(dhcpv4::Event::Configured(config)) => {
                let servers = config.dns_servers.iter().copied();
                self.setup.name_servers = servers.filter(|server| is_host(*server)).collect();
                Some(Lease {
                    address: config.address,
                    router: config.router.filter(|router| is_host(*router)),
                    server: config.server.identifier,
                    since: now,
                })
            }
        };
        match offered {
            None => self.lose_lease(now),
            Some(lease) => self.take_lease(lease, now),
        }
        self.drive_dhcp(now);
    }

    fn take_lease(&mut self, lease: Lease, now: Instant) {
        let Some(client) = &mut self.setup.client else {
            return;
        };
        let before = client.lease.replace(lease);
        if !is_host(lease.address.address()) {
            return self.decline_lease(lease.address.address(), now);
        }
        let unchanged =
            before.is_some_and(|old| (old.address, old.router) == (lease.address, lease.router));
        if unchanged {
            return;
        }
        self.set_address(Some(lease.address), lease.router);
        if before.map(|old| old.address.address()) != Some(lease.address.address()) {
            self.claim_address(lease.address.address(), now);
        }
    }

    /// The lease has ended. One that ended at once is not asked for at once again.
    fn lose_lease(&mut self, now: Instant) {
        if let Some(client) = &mut self.setup.client
            && let Some(lease) = client.lease.take()
            && now < lease.since + HOLD_OFF
        {
            client.hold_until = Some(now + HOLD_OFF);
        }
        self.set_address(None, None);
    }

    /// Refuses the lease: its address is another host's, or invalid.
    pub(super) fn decline_lease(&mut self, address: Ipv4Addr, now: Instant) {
        self.counters.leases_declined += 1;
        let Some(client) = &mut self.setup.client else {
            return;
        };
        let server = client.lease.take().map(|lease| lease.server);
        client.socket().reset();
        client.hold_until = Some(now + HOLD_OFF);
        self.setup.deadline = Some(now + HOLD_OFF);
        self.set_address(None, None);
        self.send_decline(address, server, now);
    }

    fn send_decline(&mut self, address: Ipv4Addr, server: Option<Ipv4Addr>, now: Instant) {
        if !self.wire.link.send_ready() {
            return;
        }
        let mac = self.wire.link.properties().mac;
        let decline = DhcpRepr {
            message_type: DhcpMessageType::Decline,
            transaction_id: now.total_micros() as u32,
            secs: 0,
            client_hardware_address: EthernetAddress(mac),
            client_ip: Ipv4Addr::UNSPECIFIED,
            your_ip: Ipv4Addr::UNSPECIFIED,
            server_ip: Ipv4Addr::UNSPECIFIED,
            router: None,
            subnet_mask: None,
            relay_agent_ip: Ipv4Addr::UNSPECIFIED,
            broadcast: false,
            requested_ip: Some(address),
            client_identifier: Some(EthernetAddress(mac)),
            server_identifier: server,
            parameter_request_list: None,
            dns_servers: None,
            max_size: None,
            lease_duration: None,
            renew_duration: None,
            rebind_duration: None,
            additional_options: &[],
        };
        let len = HEADERS_BYTES + decline.buffer_len();
        self.wire
            .link
            .send(len, 0, |frame| write_broadcast(frame, mac, &decline));
    }

    fn drive_dhcp(&mut self, now: Instant) {
        if let Some(client) = &mut self.setup.client {
            self.setup.deadline = match client.hold_until {
                Some(until) => Some(until),
                None => match self.wire.egress(&mut client.set, now) {
                    Egress::Done(deadline) | Egress::Unresolved(deadline) => deadline,
                    Egress::LinkFull => Some(now + LINK_RETRY),
                },
            };
        }
    }
}

/// Writes a client's message to all servers.
fn write_broadcast(frame: &mut [u8], mac: [u8; 6], message: &DhcpRepr<'_>) {
    let checksums = ChecksumCapabilities::default();
    let udp = UdpRepr {
        src_port: CLIENT_PORT,
        dst_port: SERVER_PORT,
    };
    let ip = Ipv4Repr {
        src_addr: Ipv4Addr::UNSPECIFIED,
        dst_addr: Ipv4Addr::BROADCAST,
        next_header: IpProtocol::Udp,
        payload_len: 8 + message.buffer_len(),
        hop_limit: 64,
    };
    frame[..6].fill(0xff);
    frame[6..12].copy_from_slice(&mac);
    frame[12..14].copy_from_slice(&[8, 0]);
    ip.emit(&mut Ipv4Packet::new_unchecked(&mut frame[14..]), &checksums);
    udp.emit(
        &mut UdpPacket::new_unchecked(&mut frame[34..]),
        &Ipv4Addr::UNSPECIFIED.into(),
        &Ipv4Addr::BROADCAST.into(),
        message.buffer_len(),
        |payload| {
            // There is room: the length is the message's own.
            let _ = message.emit(&mut DhcpPacket::new_unchecked(payload));
        },
        &checksums,
    );
}
