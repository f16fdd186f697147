//! Port forwards as users write them: `[ADDR:]HOST:GUEST[/tcp|/udp]`, where an IPv6 address is in
//! brackets.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

pub use tare_control::config::Protocol;

/// One forward from a port of the host to a port of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publish {
    /// Address of the host to listen at.
    pub address: IpAddr,
    /// Port of the host; for [`crate::jailed_guest`] 0 is any that is free.
    pub host: u16,
    /// Port of the guest.
    pub guest: u16,
    /// Protocol.
    pub protocol: Protocol,
}

impl Publish {
    /// To a TCP port of the guest, from any free port on the loopback interface.
    pub const fn from_any(guest: u16) -> Self {
        Self {
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            host: 0,
            guest,
            protocol: Protocol::Tcp,
        }
    }
}

impl fmt::Display for Publish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}/{}",
            SocketAddr::from((self.address, self.host)),
            self.guest,
            self.protocol
        )
    }
}

/// A forward that cannot be parsed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// Wrong number of parts.
    #[error("invalid port forward: use [ADDR:]HOST:GUEST[/tcp|/udp], such as 8080:80")]
    Form,
    /// Not a port.
    #[error("invalid port {0}: use 1 to 65535")]
    Port(String),
    /// Not an address.
    #[error("{0} is not an IP address: use 127.0.0.1 or [::1]")]
    Address(String),
    /// Not a protocol.
    #[error("unknown protocol {0}: use tcp or udp")]
    Protocol(String),
}

impl FromStr for Publish {
    type Err = PublishError;

    fn from_str(text: &str) -> Result<Self, PublishError> {
        let (ports, protocol) = match text.split_once('/') {
            None => (text, Protocol::Tcp),
            Some((ports, "tcp")) => (ports, Protocol::Tcp),
            Some((ports, "udp")) => (ports, Protocol::Udp),
            Some((_, other)) => return Err(PublishError::Protocol(other.to_owned())),
        };
        let (address, host, guest) = parts(ports)?;
        Ok(Self {
            address: address.map_or(Ok(Ipv4Addr::LOCALHOST.into()), parse_address)?,
            host: port(host)?,
            guest: port(guest)?,
            protocol,
        })
    }
}

/// Splits from the right, so that the colons of an address remain its own.
fn parts(text: &str) -> Result<(Option<&str>, &str, &str), PublishError> {
    let (rest, guest) = text.rsplit_once(':').ok_or(PublishError::Form)?;
    Ok(match rest.rsplit_once(':') {
        Some((address, host)) => (Some(address), host, guest),
        None => (None, rest, guest),
    })
}

fn parse_address(text: &str) -> Result<IpAddr, PublishError> {
    let bracketed = text.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let address = match bracketed {
        // An IPv4 address in IPv6 form is one of IPv4: a socket for IPv6 alone cannot have it.
        Some(inner) => inner.parse().map(|it: Ipv6Addr| it.to_canonical()),
        None => text.parse().map(IpAddr::V4),
    };
    address.map_err(|_| PublishError::Address(text.to_owned()))
}

fn port(text: &str) -> Result<u16, PublishError> {
    match text.parse() {
        Ok(port) if port != 0 => Ok(port),
        _ => Err(PublishError::Port(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwards_listen_on_loopback_by_default() {
        let publish: Publish = "8080:80".parse().expect("a forward");
        assert_eq!(publish.to_string(), "127.0.0.1:8080:80/tcp");
        let publish: Publish = "0.0.0.0:53:5353/udp".parse().expect("a forward");
        assert_eq!(publish.to_string(), "0.0.0.0:53:5353/udp");
        for text in ["[::1]:8080:80/tcp", "[2001:db8::5]:53:53/udp"] {
            let publish: Publish = text.parse().expect("a forward");
            assert_eq!(publish.to_string(), text);
        }
        let publish: Publish = "[::ffff:192.0.2.1]:80:80".parse().expect("a forward");
        assert_eq!(publish.to_string(), "192.0.2.1:80:80/tcp");
    }

    #[test]
    fn each_wrong_part_is_named() {
        let error = |text: &str| text.parse::<Publish>().expect_err("refused");
        assert_eq!(error("80"), PublishError::Form);
        assert_eq!(error("0:80"), PublishError::Port("0".to_owned()));
        assert_eq!(error("80:65536"), PublishError::Port("65536".to_owned()));
        assert_eq!(error("80:"), PublishError::Port(String::new()));
        for address in ["::1", "[10.0.0.1]", "[::1", "localhost"] {
            let refused = PublishError::Address(address.to_owned());
            assert_eq!(error(&format!("{address}:80:80")), refused);
        }
        assert_eq!(
            error("80:80/sctp"),
            PublishError::Protocol("sctp".to_owned())
        );
    }
}
