//! What the DHCP client keeps: its socket, its lease, what came with it.

use alloc::vec;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::dhcpv4;
use smoltcp::time::Instant;
use smoltcp::wire::Ipv4Cidr;

use super::config::Setup;

/// Where DHCP servers answer to (RFC 2131, 4.1).
pub(super) const CLIENT_PORT: u16 = 68;

/// What the server gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) address: Ipv4Cidr,
    pub(super) router: Option<Ipv4Addr>,
    pub(super) server: Ipv4Addr,
    pub(super) since: Instant,
}

pub(super) struct Client {
    pub(super) set: SocketSet<'static>,
    pub(super) handle: SocketHandle,
    pub(super) lease: Option<Lease>,
    pub(super) hold_until: Option<Instant>,
}

/// The set-up's state.
pub(super) struct State {
    pub(super) client: Option<Client>,
    pub(super) name_servers: Vec<Ipv4Addr>,
    /// When the DHCP client wants to speak.
    pub(super) deadline: Option<Instant>,
    /// There is more than the loopback.
    pub(super) has_network: bool,
}

impl State {
    pub(super) fn new(setup: Setup) -> Self {
        let client = (setup == Setup::Dhcp).then(|| {
            let mut set = SocketSet::new(vec![]);
            let handle = set.add(dhcpv4::Socket::new());
            Client {
                set,
                handle,
                lease: None,
                hold_until: None,
            }
        });
        Self {
            client,
            name_servers: Vec::new(),
            deadline: None,
            has_network: setup != Setup::LoopbackOnly,
        }
    }

    /// Name servers that came with the lease.
    pub(super) fn name_servers(&self) -> &[Ipv4Addr] {
        &self.name_servers
    }

    pub(super) fn is_dhcp(&self) -> bool {
        self.client.is_some()
    }
}

impl Client {
    pub(super) fn socket(&mut self) -> &mut dhcpv4::Socket<'static> {
        self.set.get_mut(self.handle)
    }

    pub(super) fn holds_off(&self, now: Instant) -> bool {
        self.hold_until.is_some_and(|until| now < until)
    }
}
