//! Addresses that stream sockets are bound to: who may share one, when it is bound and when it listens.

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
    all: Vec<Bound>,
    /// Of the socket that is bound next.
    number: u32,
    /// Where the search for a port begins in [`EPHEMERAL`]. A port is given again as late as can be: to
    /// the same peer it cannot be used while its last connection waits for old segments.
    next: usize,
}

/// A socket's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bound {
    pub(super) at: Binding,
    number: u32,
    is_listening: bool,
}

impl Bound {
    /// Whether this one, which is bound already, keeps a socket from `wanted` (`inet_bind_conflict`
    /// in net/ipv4/inet_connection_sock.c).
    fn excludes(&self, wanted: &Binding) -> bool {
        let (own, other) = (self.at.sharing, wanted.sharing);
        let shares = own.address & other.address & !self.is_listening | own.port & other.port;
        !shares && self.at.overlaps(wanted)
    }
}

impl BoundAddresses {
    const fn new() -> Self {
        Self {
            all: Vec::new(),
            number: 0,
            next: 0,
        }
    }

    /// Takes an address, with a free port if it has none.
    pub(super) fn take(&mut self, wanted: Binding) -> Result<Bound> {
        let at = if wanted.address.port() == 0 {
            // None that another socket shares.
            let is_free = |at: &Binding| self.all.iter().all(|other| !other.at.overlaps(at));
            let count = EPHEMERAL.len();
            let ports = EPHEMERAL.cycle().skip(self.next).take(count);
            let mut ports = ports.map(|port| wanted.with_port(port));
            let free = ports.find(is_free).ok_or(Errno::EADDRINUSE)?;
            let place = usize::from(free.address.port() - EPHEMERAL.start);
            self.next = (place + 1) % count;
            free
        } else if self.all.iter().any(|other| other.excludes(&wanted)) {
            return Err(Errno::EADDRINUSE);
        } else {
            wanted
        };
        let bound = Bound {
            at,
            number: self.number,
            is_listening: false,
        };
        self.number = self.number.wrapping_add(1);
        self.all.push(bound);
        Ok(bound)
    }

    /// A socket begins to listen, if none that may not share its address does.
    pub(super) fn listen(&mut self, bound: Bound) -> Result<()> {
        let mut others = self.all.iter().filter(|one| one.number != bound.number);
        if others.any(|other| other.excludes(&bound.at)) {
            return Err(Errno::EADDRINUSE);
        }
        self.set_listening(bound, true);
        Ok(())
    }

    /// A socket listens no more.
    pub(super) fn end_listening(&mut self, bound: Bound) {
        self.set_listening(bound, false);
    }

    fn set_listening(&mut self, bound: Bound, is_listening: bool) {
        let mut all = self.all.iter_mut();
        if let Some(one) = all.find(|one| one.number == bound.number) {
            one.is_listening = is_listening;
        }
    }

    pub(super) fn give(&mut self, back: Bound) {
        if let Some(at) = self.all.iter().position(|one| one.number == back.number) {
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
                assert_eq!(taken.at.address.port(), port, "round {round}");
                bound.give(taken);
            }
        }
        let all: Vec<_> = EPHEMERAL.map(|_| bound.take(any).unwrap()).collect();
        assert_eq!(bound.take(any), Err(Errno::EADDRINUSE));
        let one = all[usize::from(40_000 - EPHEMERAL.start)];
        bound.give(one);
        assert_eq!(bound.take(any).unwrap().at, any.with_port(40_000));
        assert_eq!(bound.take(any.with_port(40_000)), Err(Errno::EADDRINUSE));
    }
}
