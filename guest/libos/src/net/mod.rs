//! Sockets that read like `std::net`, on virtio-net: IPv4 with ARP and DHCP, IPv6
//! with neighbour discovery and router advertisements, TCP, UDP, ICMP echo, name
//! resolution, and a loopback interface.
//!
//! Applications use [`TcpListener`], [`TcpStream`] and [`UdpSocket`]; calls
//! that wait park their thread, and a core with nothing to do halts. One thread
//! waits for many sockets with [`poll`]. The
//! address comes from `ip=ADDRESS/PREFIX[,GATEWAY]` on the command line, else
//! from DHCP; that of IPv6 from `ip6=`, else from routers. [`addresses`] has them.
//!
//! Below them are `virtio`, the device as a link; `tare_net`, the stack as a state machine; and
//! `system`, the one stack of the appliance with its lock, its thread and those who wait.

pub mod addr;
pub(crate) mod boot;
mod device;
mod dns;
mod later;
mod name;
mod race;
mod ready;
mod system;
mod tcp;
mod udp;
mod virtio;
mod waiter;

use core::time::Duration;

pub use addr::{Addresses, ToSocketAddrs};
pub use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
pub use dns::lookup_host;
pub use later::{has_written, send_written, written_due};
pub use ready::{PollItem, Source, poll};
pub use tare_net::binding::{Binding, Sharing};
pub use tare_net::readiness::{Interests, Readiness};
pub use tare_net::stack::{Counters, Interface, Network, Sending, Take};
pub use tcp::{KeepAlive, Shutdown, TcpListener, TcpStream};
pub use udp::UdpSocket;
pub use waiter::Observer;

use crate::io::{ErrorKind, Result};

/// The appliance's IPv4 address on the network; none before DHCP has given one.
pub fn address() -> Option<Ipv4Addr> {
    system::lock().address()
}

/// All addresses of the appliance on the network.
pub fn addresses() -> alloc::vec::Vec<IpAddr> {
    system::lock().addresses()
}

/// The loopback, and the network's interface if there is one, as they are now.
pub fn interfaces() -> alloc::vec::Vec<Interface> {
    system::lock().interfaces()
}

/// The name servers that [`lookup_host`] asks.
pub fn name_servers() -> alloc::vec::Vec<IpAddr> {
    system::lock().name_servers(system::now())
}

/// Waits for an address, which listening on `0.0.0.0` need not.
pub fn wait_configured(timeout: Option<Duration>) -> Result<Ipv4Addr> {
    system::wait_for(timeout, Configured)
}

/// What the network has seen.
pub fn stats() -> Counters {
    system::lock().counters()
}

struct Configured;

impl system::Attempt for Configured {
    type Output = Ipv4Addr;

    fn attempt(
        &mut self,
        stack: &mut system::SystemStack,
        _: tare_net::stack::Instant,
    ) -> Result<Ipv4Addr> {
        stack.address().ok_or(ErrorKind::WouldBlock.into())
    }

    fn register(&self, stack: &mut system::SystemStack, waiter: waiter::Waiter) {
        stack.wait_address(waiter);
    }

    fn cancel(&self, stack: &mut system::SystemStack, waiter: &waiter::Waiter) {
        stack.cancel_address(waiter);
    }
}

#[cfg(test)]
mod tests;
