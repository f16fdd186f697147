//! [`ToSocketAddrs`]: what `bind` and `connect` take as an address.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use crate::io::{Error, ErrorKind, Result};

/// An address and a port, or a host name and a port. Only text is looked up, so
/// that an image without names has no resolver.
pub trait ToSocketAddrs {
    /// The addresses, the one to try first at the front; at least one.
    fn to_socket_addrs(&self) -> Result<Addresses>;
}

/// Addresses in the order to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    first: SocketAddr,
    more: Vec<SocketAddr>,
}

impl Addresses {
    /// The one to try first.
    pub fn first(&self) -> SocketAddr {
        self.first
    }

    /// The address, if there is one alone.
    pub(super) fn only(&self) -> Option<SocketAddr> {
        self.more.is_empty().then_some(self.first)
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = SocketAddr> {
        core::iter::once(self.first).chain(self.more.iter().copied())
    }

    /// Those of `list`, if there is one.
    pub(super) fn from_list(mut list: impl Iterator<Item = SocketAddr>) -> Option<Self> {
        let first = list.next()?;
        let more = list.collect();
        Some(Self { first, more })
    }

    /// Calls `attempt` for each until one succeeds or would block; the last error if none does.
    pub(crate) fn try_each<T>(
        &self,
        mut attempt: impl FnMut(SocketAddr) -> Result<T>,
    ) -> Result<T> {
        let mut result = attempt(self.first);
        for address in &self.more {
            // An attempt that would block was not refused.
            let is_blocked = |error: &Error| error.kind() == ErrorKind::WouldBlock;
            if result.as_ref().err().is_none_or(is_blocked) {
                break;
            }
            result = attempt(*address);
        }
        result
    }
}

impl From<SocketAddr> for Addresses {
    fn from(first: SocketAddr) -> Self {
        Self {
            first,
            more: Vec::new(),
        }
    }
}

impl ToSocketAddrs for SocketAddr {
    fn to_socket_addrs(&self) -> Result<Addresses> {
        Ok(Addresses::from(*self))
    }
}

impl ToSocketAddrs for SocketAddrV4 {
    fn to_socket_addrs(&self) -> Result<Addresses> {
        Ok(SocketAddr::from(*self).into())
    }
}

impl ToSocketAddrs for SocketAddrV6 {
    fn to_socket_addrs(&self) -> Result<Addresses> {
        Ok(SocketAddr::from(*self).into())
    }
}

impl ToSocketAddrs for (IpAddr, u16) {
    fn to_socket_addrs(&self) -> Result<Addresses> {
        Ok(SocketAddr::from(*self).into())
    }
}

impl ToSocketAddrs for (Ipv4Addr, u16) {
    fn to_socket_addrs(&self) -> Result<Addresses> {
        Ok(SocketAddr::from(*self).into())
    }
}

impl ToSocketAddrs for (Ipv6Addr, u16) {
    fn to_socket_addrs(&self) -> Result<Addresses> {
        Ok(SocketAddr::from(*self).into())
    }
}

impl ToSocketAddrs for ([u8; 4], u16) {
    fn to_socket_addrs(&self) -> Result<Addresses> {
        Ok(SocketAddr::from(*self).into())
    }
}

impl<T: ToSocketAddrs + ?Sized> ToSocketAddrs for &T {
    fn to_socket_addrs(&self) -> Result<Addresses> {
        (**self).to_socket_addrs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_is_tried_until_one_works() {
        let addresses = Addresses {
            first: SocketAddr::from(([192, 0, 2, 1], 1)),
            more: [2, 3].map(|n| SocketAddr::from(([192, 0, 2, n], 1))).into(),
        };
        let mut tried = 0;
        let second = addresses.try_each(|address| {
            tried += 1;
            let works = address.ip() == Ipv4Addr::new(192, 0, 2, 2);
            works.then_some(address).ok_or(ErrorKind::TimedOut.into())
        });
        assert_eq!((second.is_ok(), tried), (true, 2));
        let mut tried = 0;
        let blocked = addresses.try_each(|_| {
            tried += 1;
            Err::<(), _>(ErrorKind::WouldBlock.into())
        });
        assert_eq!((blocked.is_err(), tried), (true, 1));
        let none = addresses.try_each(|_| Err::<(), _>(ErrorKind::TimedOut.into()));
        assert_eq!(none, Err(ErrorKind::TimedOut.into()));
    }
}
