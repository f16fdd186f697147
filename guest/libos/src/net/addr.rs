//! [`ToSocketAddrs`]: what `bind` and `connect` take as an address.

use core::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

use crate::io::{Error, ErrorKind, Result};

/// An IPv4 address and a port. There is no name service: names other than
/// `localhost` are not understood.
pub trait ToSocketAddrs {
    /// The address.
    fn to_socket_addr(&self) -> Result<SocketAddrV4>;
}

impl ToSocketAddrs for SocketAddrV4 {
    fn to_socket_addr(&self) -> Result<SocketAddrV4> {
        Ok(*self)
    }
}

impl ToSocketAddrs for SocketAddr {
    fn to_socket_addr(&self) -> Result<SocketAddrV4> {
        match self {
            Self::V4(address) => Ok(*address),
            Self::V6(_) => Err(Error::new(
                ErrorKind::Unsupported,
                "IPv6 is not spoken here",
            )),
        }
    }
}

impl ToSocketAddrs for (Ipv4Addr, u16) {
    fn to_socket_addr(&self) -> Result<SocketAddrV4> {
        Ok(SocketAddrV4::new(self.0, self.1))
    }
}

impl ToSocketAddrs for (IpAddr, u16) {
    fn to_socket_addr(&self) -> Result<SocketAddrV4> {
        SocketAddr::new(self.0, self.1).to_socket_addr()
    }
}

impl ToSocketAddrs for ([u8; 4], u16) {
    fn to_socket_addr(&self) -> Result<SocketAddrV4> {
        (Ipv4Addr::from_octets(self.0), self.1).to_socket_addr()
    }
}

impl ToSocketAddrs for (&str, u16) {
    fn to_socket_addr(&self) -> Result<SocketAddrV4> {
        let bad = Error::new(ErrorKind::InvalidInput, "not an IP address");
        let address = match self.0 {
            "localhost" => IpAddr::V4(Ipv4Addr::LOCALHOST),
            text => text.parse().map_err(|_| bad)?,
        };
        (address, self.1).to_socket_addr()
    }
}

impl ToSocketAddrs for str {
    fn to_socket_addr(&self) -> Result<SocketAddrV4> {
        let bad = Error::new(ErrorKind::InvalidInput, "not an address and a port");
        let (address, port) = self.rsplit_once(':').ok_or(bad)?;
        let address = address.trim_start_matches('[').trim_end_matches(']');
        (address, port.parse().map_err(|_| bad)?).to_socket_addr()
    }
}

impl<T: ToSocketAddrs + ?Sized> ToSocketAddrs for &T {
    fn to_socket_addr(&self) -> Result<SocketAddrV4> {
        (**self).to_socket_addr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_for_std() {
        let expected = Ok(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 80));
        assert_eq!("127.0.0.1:80".to_socket_addr(), expected);
        assert_eq!("localhost:80".to_socket_addr(), expected);
        assert_eq!(("127.0.0.1", 80).to_socket_addr(), expected);
        assert_eq!(([127, 0, 0, 1], 80).to_socket_addr(), expected);
        for bad in [
            "127.0.0.1",
            "1.2.3:80",
            "x:80",
            "1.2.3.4:65536",
            "[::1]:80",
            "",
        ] {
            assert!(bad.to_socket_addr().is_err(), "{bad}");
        }
    }
}
