//! Datagrams of a UDP socket that is bound to all addresses of the host, each with the one that it was sent to
//! (`IP_PKTINFO` of ip(7), `IPV6_RECVPKTINFO` of ipv6(7)): a client takes an answer only from the address that it asked.

use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::cmsg_space;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg,
};
use rustix::io::Errno;

use super::ports::Received;

/// Receives one; it is cut where the buffer ends.
pub(super) fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> Result<Received, Errno> {
    let mut control = cmsg_space!(libc::in6_pktinfo);
    let mut buffers = [IoSliceMut::new(buffer)];
    let received = recvmsg::<SockaddrStorage>(
        socket.as_raw_fd(),
        &mut buffers,
        Some(&mut control),
        MsgFlags::MSG_DONTWAIT,
    );
    let received = received.map_err(errno)?;
    Ok(Received {
        length: received.bytes,
        host: received.cmsgs().map_err(errno)?.find_map(host),
        client: received.address.as_ref().and_then(address),
    })
}

/// Sends one from an address of the host; whether the socket took it.
pub(super) fn send(socket: &OwnedFd, bytes: &[u8], from: IpAddr, to: SocketAddr) -> bool {
    let (v4, v6);
    let source = match from {
        IpAddr::V4(from) => {
            v4 = libc::in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: libc::in_addr {
                    s_addr: u32::from_ne_bytes(from.octets()),
                },
                ipi_addr: libc::in_addr { s_addr: 0 },
            };
            ControlMessage::Ipv4PacketInfo(&v4)
        }
        IpAddr::V6(from) => {
            v6 = libc::in6_pktinfo {
                ipi6_addr: libc::in6_addr {
                    s6_addr: from.octets(),
                },
                // A link-local client's address says which link.
                ipi6_ifindex: 0,
            };
            ControlMessage::Ipv6PacketInfo(&v6)
        }
    };
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    let to = SockaddrStorage::from(to);
    sendmsg(
        socket.as_raw_fd(),
        &[IoSlice::new(bytes)],
        &[source],
        flags,
        Some(&to),
    )
    .is_ok()
}

/// The address that answers come from. For a datagram to many it is one of the interface that it came by, by IPv6
/// the route's.
fn host(message: ControlMessageOwned) -> Option<IpAddr> {
    match message {
        ControlMessageOwned::Ipv4PacketInfo(info) => {
            Some(Ipv4Addr::from(info.ipi_spec_dst.s_addr.to_ne_bytes()).into())
        }
        ControlMessageOwned::Ipv6PacketInfo(info) => {
            let to = Ipv6Addr::from(info.ipi6_addr.s6_addr);
            (!to.is_multicast()).then_some(to.into())
        }
        _ => None,
    }
}

fn address(from: &SockaddrStorage) -> Option<SocketAddr> {
    if let Some(v4) = from.as_sockaddr_in() {
        return Some(SocketAddr::V4((*v4).into()));
    }
    Some(SocketAddr::V6((*from.as_sockaddr_in6()?).into()))
}

fn errno(errno: nix::errno::Errno) -> Errno {
    Errno::from_raw_os_error(errno as i32)
}
