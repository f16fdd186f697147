//! What sockets of every family share: addresses, kinds, what was received.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::SocketAddr;

use linux_raw_sys::net::{
    AF_INET, AF_INET6, AF_NETLINK, AF_UNIX, SOCK_DGRAM, SOCK_RAW, SOCK_SEQPACKET, SOCK_STREAM,
};

use crate::errno::{Errno, Result};

/// Bytes of `sockaddr_in`, `sockaddr_in6`, `sockaddr_un` and `sockaddr_nl`
/// (`include/uapi/linux/in.h`, `in6.h`, `un.h`, `netlink.h`).
const INET_BYTES: usize = 16;
const INET6_BYTES: usize = 28;
const UNIX_BYTES: usize = 110;
const NETLINK_BYTES: usize = 12;

/// A socket's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Ip(SocketAddr),
    Unix(Name),
    /// A port of AF_NETLINK, 0 for the kernel, and groups.
    Netlink {
        port: u32,
        groups: u32,
    },
}

/// A name of AF_UNIX: a path, an abstract name that begins with NUL, or empty for none.
pub(crate) type Name = Arc<[u8]>;

/// What a socket carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketKind {
    Stream,
    Datagram,
    /// Messages over a connection.
    Packets,
    /// As datagrams, of AF_NETLINK.
    Raw,
}

impl SocketKind {
    /// From the type word of `socket`, less its flags.
    pub(crate) const fn parse(word: u32) -> Option<Self> {
        match word {
            SOCK_STREAM => Some(Self::Stream),
            SOCK_DGRAM => Some(Self::Datagram),
            SOCK_SEQPACKET => Some(Self::Packets),
            SOCK_RAW => Some(Self::Raw),
            _ => None,
        }
    }

    /// As `SO_TYPE` gives it.
    pub(crate) const fn word(self) -> u32 {
        match self {
            Self::Stream => SOCK_STREAM,
            Self::Datagram => SOCK_DGRAM,
            Self::Packets => SOCK_SEQPACKET,
            Self::Raw => SOCK_RAW,
        }
    }
}

/// What was received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Received {
    /// Bytes that were copied.
    pub(crate) count: usize,
    /// Bytes of the whole message; of a stream what was copied.
    pub(crate) length: usize,
    /// Who sent it, of a datagram.
    pub(crate) from: Option<Address>,
}

/// Which half of a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    Read,
    Write,
    Both,
}

impl Address {
    /// The kernel's side of AF_NETLINK.
    pub(crate) const KERNEL: Self = Self::Netlink { port: 0, groups: 0 };

    /// Reads an address.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self> {
        let family: &[u8; 2] = bytes.first_chunk().ok_or(Errno::EINVAL)?;
        let port = |bytes: &[u8]| u16::from_be_bytes([bytes[2], bytes[3]]);
        match u32::from(u16::from_le_bytes(*family)) {
            AF_INET if bytes.len() >= INET_BYTES => {
                let ip: [u8; 4] = [bytes[4], bytes[5], bytes[6], bytes[7]];
                Ok(Self::Ip(SocketAddr::from((ip, port(bytes)))))
            }
            AF_INET6 if bytes.len() >= INET6_BYTES - 4 => {
                let ip: &[u8; 16] = bytes[8..].first_chunk().ok_or(Errno::EINVAL)?;
                Ok(Self::Ip(SocketAddr::from((*ip, port(bytes)))))
            }
            AF_UNIX if bytes.len() <= UNIX_BYTES => {
                let name = &bytes[2..];
                let end = match name.first() {
                    Some(0) | None => name.len(),
                    _ => name
                        .iter()
                        .position(|&byte| byte == 0)
                        .unwrap_or(name.len()),
                };
                Ok(Self::Unix(name[..end].into()))
            }
            AF_NETLINK if bytes.len() >= NETLINK_BYTES => {
                let word = |at: usize| {
                    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
                };
                Ok(Self::Netlink {
                    port: word(4),
                    groups: word(8),
                })
            }
            AF_INET | AF_INET6 | AF_UNIX | AF_NETLINK => Err(Errno::EINVAL),
            _ => Err(Errno::EAFNOSUPPORT),
        }
    }

    /// As the program reads it.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            Self::Ip(SocketAddr::V4(address)) => {
                bytes.extend_from_slice(&(AF_INET as u16).to_le_bytes());
                bytes.extend_from_slice(&address.port().to_be_bytes());
                bytes.extend_from_slice(&address.ip().octets());
                bytes.resize(INET_BYTES, 0);
            }
            Self::Ip(SocketAddr::V6(address)) => {
                bytes.extend_from_slice(&(AF_INET6 as u16).to_le_bytes());
                bytes.extend_from_slice(&address.port().to_be_bytes());
                bytes.extend_from_slice(&address.flowinfo().to_be_bytes());
                bytes.extend_from_slice(&address.ip().octets());
                bytes.extend_from_slice(&address.scope_id().to_le_bytes());
            }
            Self::Unix(name) => {
                bytes.extend_from_slice(&(AF_UNIX as u16).to_le_bytes());
                bytes.extend_from_slice(name);
                if name.first().is_some_and(|&first| first != 0) {
                    bytes.push(0);
                }
            }
            Self::Netlink { port, groups } => {
                bytes.extend_from_slice(&AF_NETLINK.to_le_bytes());
                bytes.extend_from_slice(&port.to_le_bytes());
                bytes.extend_from_slice(&groups.to_le_bytes());
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        let addresses = [
            Address::Ip(SocketAddr::from(([127, 0, 0, 1], 80))),
            Address::Ip(SocketAddr::from(([1_u16, 2, 3, 4, 5, 6, 7, 8], 443))),
            Address::Unix(b"/run/socket"[..].into()),
            Address::Unix(b"\0abstract\0name"[..].into()),
            Address::Unix([][..].into()),
            Address::Netlink { port: 7, groups: 3 },
        ];
        for address in addresses {
            assert_eq!(Address::parse(&address.to_bytes()), Ok(address));
        }
    }

    #[test]
    fn short_long_and_strange_addresses_are_refused() {
        let v4 = Address::Ip(SocketAddr::from(([127, 0, 0, 1], 80))).to_bytes();
        assert_eq!(Address::parse(&v4[..8]), Err(Errno::EINVAL));
        assert_eq!(Address::parse(&[1]), Err(Errno::EINVAL));
        assert_eq!(Address::parse(&[99; 16]), Err(Errno::EAFNOSUPPORT));
        let mut long = vec![1, 0];
        long.resize(UNIX_BYTES + 1, b'x');
        assert_eq!(Address::parse(&long), Err(Errno::EINVAL));
    }
}
