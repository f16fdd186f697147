//! The other ends of a network device: a stream socket (passt), a tap, or clients of
//! published ports.

mod all_addresses;
mod announce;
mod dropped;
mod forward;
mod ports;
mod stream;
mod tap;

use std::os::fd::OwnedFd;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tare_control::config::{
    Descriptor, ForwardConfig, NetBackend, NetConfig, PasstConfig, PasstStart, Protocol,
    StreamConfig,
};
use tare_forward::{Beside, Ends, Limits, Settings};

use crate::inherit::{InheritError, Inherited};

use announce::announce;
pub use forward::ForwardLink;
use ports::{DatagramPorts, PortSocket};
pub use stream::StreamLink;
pub use tap::TapLink;

/// Connections to published ports at a time.
const CONNECTIONS: usize = 4096;
/// Bytes of their buffers, all together.
const BUFFERS: usize = 8 << 20;
/// Descriptors for everything else.
const OTHER_DESCRIPTORS: usize = 256;
/// Bytes of an Ethernet header.
const ETHERNET_HEADER: usize = 14;

/// Why a link cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenLinkError {
    /// The descriptor is not there.
    #[error(transparent)]
    Descriptor(#[from] InheritError),
    /// It is not a connected stream socket.
    #[error("the network's stream socket cannot be used")]
    Stream(#[source] std::io::Error),
    /// Published ports cannot be served.
    #[error("the published ports' sockets cannot be used")]
    Forward(#[source] std::io::Error),
    /// It is not a tap with a virtio header, or it is gone.
    #[error("the tap interface {name} cannot be used")]
    Tap {
        /// The interface.
        name: String,
        /// Why.
        source: std::io::Error,
    },
}

/// Any link.
pub(crate) enum AnyLink {
    /// A stream socket.
    Stream(StreamLink),
    /// A tap.
    Tap(TapLink),
    /// Clients of published ports.
    Forward(Box<ForwardLink>),
}

impl AnyLink {
    /// Opens what the configuration names.
    pub(crate) fn open(
        config: &NetConfig,
        inherited: &mut Inherited,
    ) -> Result<Self, OpenLinkError> {
        let mut take = |fd: Descriptor| -> Result<OwnedFd, InheritError> { inherited.take(fd) };
        match &config.backend {
            NetBackend::Stream(passt) => stream(config, passt, take(passt.fd)?).map(Self::Stream),
            NetBackend::Forward(ports) => {
                let link = forward(config, ports, &mut take)?;
                Ok(Self::Forward(Box::new(link)))
            }
            NetBackend::Tap { fd, name } => {
                let fd = take(*fd)?;
                let tap = TapLink::new(fd).map(Self::Tap);
                tap.map_err(|source| OpenLinkError::Tap {
                    name: name.clone(),
                    source,
                })
            }
        }
    }
}

/// The link to passt.
pub(crate) fn stream(
    config: &NetConfig,
    passt: &StreamConfig,
    socket: OwnedFd,
) -> Result<StreamLink, OpenLinkError> {
    let mut link = open(config, passt, socket)?;
    // That the peer is gone shows when the guest uses the link.
    let _ = announce(&mut link, config.mac);
    Ok(link)
}

/// passt beside published ports. One that waits is not woken: it learns the guest's hardware address from
/// the frame that starts it.
fn beside(
    config: &NetConfig,
    passt: &PasstConfig,
    socket: OwnedFd,
) -> Result<(StreamLink, Beside), OpenLinkError> {
    let (link, beside) = match passt.start {
        PasstStart::Started => (stream(config, &passt.stream, socket)?, Beside::Passt),
        PasstStart::WhenNeeded => (open(config, &passt.stream, socket)?, Beside::WaitingPasst),
    };
    Ok((link.beside_ports(), beside))
}

fn open(
    config: &NetConfig,
    passt: &StreamConfig,
    socket: OwnedFd,
) -> Result<StreamLink, OpenLinkError> {
    let max_frame = usize::from(config.mtu) + ETHERNET_HEADER;
    StreamLink::new(socket, max_frame, passt.filter.clone()).map_err(OpenLinkError::Stream)
}

/// The link of published ports.
pub(crate) fn forward(
    config: &NetConfig,
    ports: &ForwardConfig,
    take: &mut impl FnMut(Descriptor) -> Result<OwnedFd, InheritError>,
) -> Result<ForwardLink, OpenLinkError> {
    let (mut listeners, mut datagrams) = (Vec::new(), Vec::new());
    for port in &ports.ports {
        let of_protocol = match port.protocol {
            Protocol::Tcp => &mut listeners,
            Protocol::Udp => &mut datagrams,
        };
        of_protocol.push(PortSocket {
            socket: take(port.fd)?,
            port: port.guest,
            all_addresses: port.all_addresses,
        });
    }
    let datagrams = DatagramPorts::new(datagrams);
    let (passt, beside) = match &ports.passt {
        Some(passt) => {
            let (link, beside) = beside(config, passt, take(passt.stream.fd)?)?;
            (Some(link), beside)
        }
        None => (None, Beside::Nothing),
    };
    let mut secret = [0; 16];
    let mut settings = || {
        rustix::rand::getrandom(&mut secret, rustix::rand::GetRandomFlags::empty())?;
        Ok(Settings {
            guest_mac: config.mac,
            gateway_mac: ports.gateway_mac,
            v4: Ends {
                guest: ports.guest,
                gateway: ports.gateway,
            },
            v6: ports.v6.map(|(guest, gateway)| Ends { guest, gateway }),
            mtu: config.mtu,
            beside,
            limits: Limits {
                connections: raise_descriptors()?,
                buffers: BUFFERS,
            },
            secret,
        })
    };
    let link =
        settings().and_then(|settings| ForwardLink::new(settings, listeners, datagrams, passt));
    link.map_err(OpenLinkError::Forward)
}

/// Lets this process have as many descriptors as it may; how many of them are for connections.
fn raise_descriptors() -> std::io::Result<usize> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, raised)?;
    let most = limit.maximum.unwrap_or(u64::MAX);
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    Ok(most.saturating_sub(OTHER_DESCRIPTORS).clamp(1, CONNECTIONS))
}
