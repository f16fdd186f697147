//! The other ends of a network device: a stream socket (passt) or a tap.

mod announce;
mod dropped;
mod stream;
mod tap;

use std::os::fd::OwnedFd;

use tare_control::config::{Descriptor, NetBackend, NetConfig};

use crate::inherit::{InheritError, Inherited};

use announce::announce;
pub use stream::StreamLink;
pub use tap::TapLink;

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
}

impl AnyLink {
    /// Opens what the configuration names.
    pub(crate) fn open(
        config: &NetConfig,
        inherited: &mut Inherited,
    ) -> Result<Self, OpenLinkError> {
        let mut take = |fd: Descriptor| -> Result<OwnedFd, InheritError> { inherited.take(fd) };
        match &config.backend {
            NetBackend::Stream { fd, filter } => {
                let max_frame = usize::from(config.mtu) + ETHERNET_HEADER;
                let mut link = StreamLink::new(take(*fd)?, max_frame, filter.clone())
                    .map_err(OpenLinkError::Stream)?;
                // That the peer is gone shows when the guest uses the link.
                let _ = announce(&mut link, config.mac);
                Ok(Self::Stream(link))
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
