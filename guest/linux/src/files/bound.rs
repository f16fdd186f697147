//! Addresses that stream sockets are bound to: a second one is refused when it is bound, not when it
//! listens.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};
use core::ops::Range;

use tare_libos::net::Binding;
use tare_libos::sync::SpinLock;

use crate::errno::{Errno, Result};

/// Ports for sockets that ask for any.
const EPHEMERAL: Range<u16> = 32_768..49_152;

/// Those of the program.
pub(super) static BOUND: SpinLock<BoundAddresses> = SpinLock::new(BoundAddresses::new());

pub(super) struct BoundAddresses {
    all: Vec<Binding>,
    /// Where the search for a port begins in [`EPHEMERAL`]. A port is given again as late as can be: to
    /// the same peer it cannot be used while its last connection waits for old segments.
    next: usize,
}

impl BoundAddresses {
    const fn new() -> Self {
        Self {
            all: Vec::new(),
            next: 0,
        }
    }

    /// Takes an address, with a free port if it has none.
    pub(super) fn take(&mut self, wanted: Binding) -> Result<Binding> {
        let is_free = |wanted: &Binding| self.all.iter().all(|other| !other.overlaps(wanted));
        let bound = if wanted.address.port() == 0 {
            let count = EPHEMERAL.len();
            let ports = EPHEMERAL.cycle().skip(self.next).take(count);
            let mut ports = ports.map(|port| wanted.with_port(port));
            let free = ports.find(is_free).ok_or(Errno::EADDRINUSE)?;
            let place = usize::from(free.address.port() - EPHEMERAL.start);
            self.next = (place + 1) % count;
            free
        } else {
            Some(wanted).filter(is_free).ok_or(Errno::EADDRINUSE)?
        };
        self.all.push(bound);
        Ok(bound)
    }

    pub(super) fn give(&mut self, back: Binding) {
        if let Some(at) = self.all.iter().position(|one| *one == back) {
            self.all.swap_remove(at);
        }
    }
}

/// EADDRNOTAVAIL for another host's address (`inet_addr_valid_or_nonlocal` in include/net/inet_sock.h).
pub(super) fn expect_here(ip: IpAddr) -> Result<()> {
    let is_of_many = ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST);
    let is_here = ip.is_unspecified()
        || ip.is_loopback()
        || is_of_many
        || tare_libos::net::addresses().contains(&ip);
    is_here.then_some(()).ok_or(Errno::EADDRNOTAVAIL)
}

#[cfg(test)]
mod tests {
    use core::net::SocketAddr;

    use super::*;

    #[test]
    fn a_port_is_given_again_when_all_others_were() {
        let mut bound = BoundAddresses::new();
        let any = Binding::from(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
        for round in 0..3 {
            for port in EPHEMERAL {
                let taken = bound.take(any).unwrap();
                assert_eq!(taken.address.port(), port, "round {round}");
                bound.give(taken);
            }
        }
        for _ in EPHEMERAL {
            bound.take(any).unwrap();
        }
        assert_eq!(bound.take(any), Err(Errno::EADDRINUSE));
        bound.give(any.with_port(40_000));
        assert_eq!(bound.take(any), Ok(any.with_port(40_000)));
        assert_eq!(bound.take(any.with_port(40_000)), Err(Errno::EADDRINUSE));
    }
}
