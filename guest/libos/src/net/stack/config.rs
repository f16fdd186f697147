//! The address of the appliance: given on the command line or by DHCP.

use alloc::vec;
use core::net::Ipv4Addr;

use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::dhcpv4;
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::Ipv4Cidr;

use super::{Stack, Wake};
use crate::net::link::Link;
use crate::net::port::Egress;

/// 127.0.0.1/8.
pub(super) const LOCALHOST: Ipv4Cidr = Ipv4Cidr::new(Ipv4Addr::LOCALHOST, 8);
/// Where DHCP servers answer to (RFC 2131, 4.1).
pub(super) const DHCP_CLIENT_PORT: u16 = 68;
/// When the link could not take a DHCP packet, try again then.
const LINK_RETRY: Duration = Duration::from_millis(100);

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
    /// use tare_libos::net::stack::Setup;
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

fn is_host(address: Ipv4Addr) -> bool {
    !(address.is_unspecified()
        || address.is_broadcast()
        || address.is_multicast()
        || address.is_loopback())
}

/// The set-up's state.
pub(super) struct State {
    dhcp: Option<(SocketSet<'static>, SocketHandle)>,
    /// When the DHCP client wants to speak.
    pub(super) deadline: Option<Instant>,
}

impl State {
    pub(super) fn new(setup: Setup) -> Self {
        let dhcp = (setup == Setup::Dhcp).then(|| {
            let mut set = SocketSet::new(vec![]);
            let handle = set.add(dhcpv4::Socket::new());
            (set, handle)
        });
        Self {
            dhcp,
            deadline: None,
        }
    }

    pub(super) fn is_dhcp(&self) -> bool {
        self.dhcp.is_some()
    }
}

impl<L: Link, W: Wake> Stack<L, W> {
    pub(super) fn ingress_dhcp(&mut self, frame: &[u8], now: Instant) {
        if let Some((set, _)) = &mut self.setup.dhcp {
            self.wire.ingress(frame, set, now);
        }
        self.drive_setup(now);
    }

    /// Lets the DHCP client speak and takes over what it learned.
    pub(super) fn drive_setup(&mut self, now: Instant) {
        let Some((set, handle)) = &mut self.setup.dhcp else {
            return;
        };
        let (address, gateway) = match set.get_mut::<dhcpv4::Socket<'_>>(*handle).poll() {
            None => return self.drive_dhcp(now),
            Some(dhcpv4::Event::Deconfigured) => (None, None),
            Some(dhcpv4::Event::Configured(lease)) => (Some(lease.address), lease.router),
        };
        let address = address.filter(|cidr| is_host(cidr.address()));
        if address.map(|cidr| cidr.address()) != self.wire.address() || address.is_none() {
            self.set_address(address, gateway.filter(|gateway| is_host(*gateway)));
        }
        self.drive_dhcp(now);
    }

    fn drive_dhcp(&mut self, now: Instant) {
        if let Some((set, _)) = &mut self.setup.dhcp {
            self.setup.deadline = match self.wire.egress(set, now) {
                Egress::Done(deadline) | Egress::Unresolved(deadline) => deadline,
                Egress::LinkFull => Some(now + LINK_RETRY),
            };
        }
    }
}
