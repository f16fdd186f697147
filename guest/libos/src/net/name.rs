//! Text as an address: a host name or an address, and a port.

use core::net::SocketAddr;

use super::addr::{Addresses, ToSocketAddrs};
use super::dns::lookup_host;
use crate::io::{Error, ErrorKind, Result};

impl ToSocketAddrs for (&str, u16) {
    fn to_socket_addrs(&self) -> Result<Addresses> {
        let found = lookup_host(self.0)?;
        let addresses = found.into_iter().map(|ip| SocketAddr::new(ip, self.1));
        Addresses::from_list(addresses).ok_or(ErrorKind::NotFound.into())
    }
}

impl ToSocketAddrs for str {
    fn to_socket_addrs(&self) -> Result<Addresses> {
        let bad = Error::new(ErrorKind::InvalidInput, "not a host and a port");
        if let Ok(address) = self.parse::<SocketAddr>() {
            return Ok(address.into());
        }
        let (host, port) = self.rsplit_once(':').ok_or(bad)?;
        (host, port.parse::<u16>().map_err(|_| bad)?).to_socket_addrs()
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv6Addr;

    use super::*;

    #[test]
    fn addresses_are_written_as_for_std() {
        let expected = SocketAddr::from(([127, 0, 0, 1], 80));
        let first = |address: Result<Addresses>| address.unwrap().first();
        assert_eq!(first("127.0.0.1:80".to_socket_addrs()), expected);
        assert_eq!(first("localhost:80".to_socket_addrs()), expected);
        assert_eq!(first(("127.0.0.1", 80).to_socket_addrs()), expected);
        assert_eq!(first(([127, 0, 0, 1], 80).to_socket_addrs()), expected);
        let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, 80));
        assert_eq!(first("[::1]:80".to_socket_addrs()), v6);
        assert_eq!(first(("::1", 80).to_socket_addrs()), v6);
        for bad in ["127.0.0.1", "a b:80", "1.2.3.4:65536", ":80", ""] {
            assert!(bad.to_socket_addrs().is_err(), "{bad}");
        }
    }
}
