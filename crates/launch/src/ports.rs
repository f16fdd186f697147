//! Checks before the start that the forwarded ports are free, and listens at those that the monitor
//! serves.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{Ipv4PacketInfo, Ipv6RecvPacketInfo};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};
use tare_control::exit::ExitCode;

use crate::failure::Explain;
use crate::publish::{Protocol, Publish};

/// A port that cannot be forwarded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PortError {
    /// A program listens there.
    #[error("port {} of {} is in use", forward.host, forward.address)]
    InUse {
        /// The forward.
        forward: Publish,
    },
    /// The same port twice in one command.
    #[error("port {} of {} is forwarded twice", .0.host, .0.address)]
    Twice(Publish),
    /// A low port without the privilege for it.
    #[error("port {} needs privileges", .0.host)]
    Privileged(Publish),
    /// An address that this host does not have.
    #[error("{} is not an address of this host", .0.address)]
    NotOurs(Publish),
    /// Anything else.
    #[error("cannot listen at port {} of {}", forward.host, forward.address)]
    Bind {
        /// The forward.
        forward: Publish,
        /// Why.
        source: io::Error,
    },
}

impl Explain for PortError {
    fn code(&self) -> ExitCode {
        match self {
            Self::Twice(_) => ExitCode::Usage,
            _ => ExitCode::PortInUse,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::InUse { forward } => Some(format!(
                "stop what listens there (ss -lpn 'sport = :{}'), or forward another port",
                forward.host
            )),
            Self::Privileged(_) => Some(
                "use a port from 1024 on, or lower the sysctl net.ipv4.ip_unprivileged_port_start"
                    .to_owned(),
            ),
            _ => None,
        }
    }
}

/// How often a port in use is tried again, and the pause before each try.
const TRIES: u32 = 25;
const PAUSE: Duration = Duration::from_millis(10);

/// Connections that wait until they are accepted: as many as the kernel allows
/// (`net.core.somaxconn`) up to this.
const BACKLOG: i32 = 4096;
/// When an idle client is probed, how often, and how many probes it may leave unanswered: a client that
/// has vanished must not hold a connection of the guest forever.
const KEEP_ALIVE_IDLE: Duration = Duration::from_secs(300);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEP_ALIVE_PROBES: u32 = 5;

/// A socket for a port of the guest.
#[derive(Debug)]
pub(crate) struct PortSocket {
    /// The socket. One for TCP listens, and what it accepts has its options.
    pub(crate) socket: OwnedFd,
    /// What it is for.
    pub(crate) protocol: Protocol,
    /// The guest's port.
    pub(crate) guest: u16,
    /// For UDP: at all addresses of this host, and each datagram says which it was sent to.
    pub(crate) all_addresses: bool,
}

/// Listens at the ports of forwards that were [checked](check).
pub(crate) fn listen(forwards: &[Publish]) -> Result<Vec<PortSocket>, PortError> {
    let sockets = forwards.iter().map(|forward| {
        let all_addresses = forward.protocol == Protocol::Udp && forward.address.is_unspecified();
        let socket = soon(|| match forward.protocol {
            Protocol::Tcp => listen_at(forward),
            Protocol::Udp if all_addresses => bind_to_all(forward),
            Protocol::Udp => bind(forward),
        });
        Ok(PortSocket {
            socket: socket.map_err(|source| explain(*forward, source))?,
            protocol: forward.protocol,
            guest: forward.guest,
            all_addresses,
        })
    });
    sockets.collect()
}

fn listen_at(forward: &Publish) -> io::Result<OwnedFd> {
    let socket = TcpListener::from(bind(forward)?);
    sockopt::set_tcp_nodelay(&socket, true)?;
    sockopt::set_socket_keepalive(&socket, true)?;
    sockopt::set_tcp_keepidle(&socket, KEEP_ALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(&socket, KEEP_ALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(&socket, KEEP_ALIVE_PROBES)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

fn bind_to_all(forward: &Publish) -> io::Result<OwnedFd> {
    let socket = bind(forward)?;
    match forward.address {
        IpAddr::V4(_) => setsockopt(&socket, Ipv4PacketInfo, &true)?,
        IpAddr::V6(_) => setsockopt(&socket, Ipv6RecvPacketInfo, &true)?,
    }
    Ok(socket)
}

/// Binds each port and releases it again; refuses a port that is named twice.
pub(crate) fn check(forwards: &[Publish]) -> Result<(), PortError> {
    let mut later = forwards.iter().enumerate();
    let is_again = |(at, it): &(usize, &Publish)| forwards[..*at].iter().any(|a| overlap(a, it));
    if let Some((_, twice)) = later.find(is_again) {
        return Err(PortError::Twice(*twice));
    }
    forwards.iter().try_for_each(|forward| {
        let bound = soon(|| bind(forward));
        bound.map(drop).map_err(|source| explain(*forward, source))
    })
}

/// Whether the socket of one keeps the other from its port: one at every address of its family does.
fn overlap(a: &Publish, b: &Publish) -> bool {
    (a.host, a.protocol) == (b.host, b.protocol)
        && a.address.is_ipv4() == b.address.is_ipv4()
        && (a.address == b.address || a.address.is_unspecified() || b.address.is_unspecified())
}

/// Binds with retries: a machine that has just ended holds its ports for some milliseconds.
fn soon<T>(bind: impl Fn() -> io::Result<T>) -> io::Result<T> {
    for _ in 0..TRIES {
        match bind() {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => thread::sleep(PAUSE),
            other => return other,
        }
    }
    bind()
}

fn bind(forward: &Publish) -> io::Result<OwnedFd> {
    bound((forward.address, forward.host).into(), forward.protocol)
}

/// A socket at that address; one for TCP listens.
///
/// `[::]` is every IPv6 address and leaves those of IPv4 to another socket, as with passt. By default the
/// kernel would bind it to both (`net.ipv6.bindv6only`, ipv6(7)).
pub(crate) fn bound(address: SocketAddr, protocol: Protocol) -> io::Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let kind = match protocol {
        Protocol::Tcp => SocketType::STREAM,
        Protocol::Udp => SocketType::DGRAM,
    };
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    if protocol == Protocol::Tcp {
        // Connections of an earlier listener that still wait for their end do not hold the port.
        sockopt::set_socket_reuseaddr(&socket, true)?;
    }
    rustix::net::bind(&socket, &address)?;
    if protocol == Protocol::Tcp {
        rustix::net::listen(&socket, BACKLOG)?;
    }
    Ok(socket)
}

fn explain(forward: Publish, source: io::Error) -> PortError {
    match source.kind() {
        io::ErrorKind::AddrInUse => PortError::InUse { forward },
        io::ErrorKind::PermissionDenied => PortError::Privileged(forward),
        io::ErrorKind::AddrNotAvailable => PortError::NotOurs(forward),
        _ => PortError::Bind { forward, source },
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr, TcpStream, UdpSocket};

    use super::*;

    fn forward(host: u16, protocol: Protocol) -> Publish {
        Publish {
            address: Ipv4Addr::LOCALHOST.into(),
            host,
            guest: 80,
            protocol,
        }
    }

    #[test]
    fn a_port_that_becomes_free_soon_is_waited_for() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("its address").port();
        let holder = thread::spawn(move || {
            thread::sleep(PAUSE * 3);
            drop(listener);
        });
        assert!(check(&[forward(port, Protocol::Tcp)]).is_ok());
        holder.join().expect("the holder");
    }

    #[test]
    fn a_port_in_use_is_named() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("its address").port();
        let error = check(&[forward(port, Protocol::Tcp)]).expect_err("in use");
        assert_eq!(error.code(), ExitCode::PortInUse);
        assert!(error.to_string().contains(&port.to_string()), "{error}");
        drop(listener);
    }

    #[test]
    fn a_free_port_is_taken() {
        // Another program may have taken the port that was just released.
        let free = (0..20).any(|_| {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
            let port = listener.local_addr().expect("its address").port();
            drop(listener);
            check(&[forward(port, Protocol::Tcp)]).is_ok()
        });
        assert!(free);
    }

    #[test]
    fn a_port_forwarded_twice_is_a_wrong_command_line() {
        // Whether or not the port is free: the command line is checked first.
        let listener = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("its address").port();
        let twice = [forward(port, Protocol::Udp), forward(port, Protocol::Udp)];
        assert_eq!(check(&twice).expect_err("twice").code(), ExitCode::Usage);
    }

    #[test]
    fn a_foreign_address_is_refused() {
        let mut forward = forward(18_999, Protocol::Tcp);
        forward.address = Ipv4Addr::new(198, 51, 100, 7).into();
        assert!(matches!(check(&[forward]), Err(PortError::NotOurs(_))));
    }

    fn at(text: &str, port: u16) -> Publish {
        let text = text.replace("PORT", &port.to_string());
        text.parse().expect("a forward")
    }

    /// Whether this host has IPv6.
    fn has_ipv6() -> bool {
        let has = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
        if !has {
            tare_vmtest::lacks("this host has no IPv6");
        }
        has
    }

    #[test]
    fn all_addresses_of_both_families_share_a_port() {
        if !has_ipv6() {
            return;
        }
        let port = tare_vmtest::free_port();
        let both = ["0.0.0.0:PORT:80", "[::]:PORT:80"].map(|text| at(text, port));
        check(&both).expect("a free port");
        let listeners = listen(&both).expect("a port at all addresses");
        assert_eq!(listeners.len(), 2);
        // A program at all addresses of one family leaves the other's.
        for (held, free) in [(0, 1), (1, 0)] {
            let port = tare_vmtest::free_port();
            for end in ["", "/udp"] {
                let both = ["0.0.0.0:PORT:80", "[::]:PORT:80"];
                let both = both.map(|text| at(&format!("{text}{end}"), port));
                let _held = bind(&both[held]).expect("a free port");
                check(&both[free..=free]).expect("the other family's port");
            }
        }
    }

    #[test]
    fn all_ipv6_addresses_are_none_of_ipv4() {
        if !has_ipv6() {
            return;
        }
        let port = tare_vmtest::free_port();
        let _listeners = listen(&[at("[::]:PORT:80", port)]).expect("a free port");
        TcpStream::connect((Ipv6Addr::LOCALHOST, port)).expect("a connection");
        let refused = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect_err("not by IPv4");
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }
}
