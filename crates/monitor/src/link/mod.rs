//! The other ends of a network device: a stream socket (passt) or a tap.

mod announce;
mod dropped;
mod stream;
mod tap;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use tare_control::config::{Descriptor, NetBackend, NetConfig};
use tare_devices::CounterSource;
use tare_devices::net::{Link, LinkError, LinkFeatures, NetHeader, RxFrame, RxOffload};

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
    /// It is no connected stream socket.
    #[error("the network's stream socket cannot be used")]
    Stream(#[source] std::io::Error),
    /// It is no tap with a virtio header, or gone.
    #[error("the tap interface {name} cannot be used")]
    Tap {
        /// The interface.
        name: String,
        /// Why.
        source: std::io::Error,
    },
}

/// Any link.
pub enum AnyLink {
    /// A stream socket.
    Stream(StreamLink),
    /// A tap.
    Tap(TapLink),
}

impl AnyLink {
    /// Opens what the configuration names.
    pub fn open(config: &NetConfig, inherited: &mut Inherited) -> Result<Self, OpenLinkError> {
        let mut take = |fd: Descriptor| -> Result<OwnedFd, InheritError> { inherited.take(fd) };
        match &config.backend {
            NetBackend::Stream { fd, filter } => {
                let max_frame = usize::from(config.mtu) + ETHERNET_HEADER;
                let mut link = StreamLink::new(take(*fd)?, max_frame, filter.clone())
                    .map_err(OpenLinkError::Stream)?;
                // A peer that is gone shows when the guest uses the link.
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

    /// Counts what the link itself drops.
    pub(crate) fn counters(&self) -> Option<Arc<dyn CounterSource>> {
        match self {
            Self::Stream(link) => Some(link.dropped()),
            Self::Tap(_) => None,
        }
    }

    fn link(&self) -> &dyn Link {
        match self {
            Self::Stream(link) => link,
            Self::Tap(link) => link,
        }
    }

    fn link_mut(&mut self) -> &mut dyn Link {
        match self {
            Self::Stream(link) => link,
            Self::Tap(link) => link,
        }
    }
}

impl AsFd for AnyLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Stream(link) => link.as_fd(),
            Self::Tap(link) => link.as_fd(),
        }
    }
}

impl Link for AnyLink {
    fn features(&self) -> LinkFeatures {
        self.link().features()
    }

    fn set_offload(&mut self, accepted: RxOffload) -> Result<(), LinkError> {
        self.link_mut().set_offload(accepted)
    }

    fn peek(&mut self) -> Result<Option<RxFrame<'_>>, LinkError> {
        self.link_mut().peek()
    }

    fn consume(&mut self) {
        self.link_mut().consume();
    }

    fn reserve(&mut self, len: usize) -> Result<Option<&mut [u8]>, LinkError> {
        self.link_mut().reserve(len)
    }

    fn commit(&mut self, header: &NetHeader) -> Result<(), LinkError> {
        self.link_mut().commit(header)
    }

    fn flush(&mut self) -> Result<(), LinkError> {
        self.link_mut().flush()
    }

    fn has_unsent(&self) -> bool {
        self.link().has_unsent()
    }
}
