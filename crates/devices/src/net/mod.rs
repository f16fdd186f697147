//! virtio-net
mod header;
mod link;
pub use header::*;
pub use link::{Link, LinkError, LinkFeatures, LinkOffload, RxFrame, RxOffload};

/// A network device over a link. Queue 0 receives, queue 1 transmits.
pub struct Net<L> { link: L }
/// How a network device looks to the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetSettings { /// Hardware address.
    pub mac: [u8; 6], /// Largest IP packet.
    pub mtu: u16 }
impl<L: Link> Net<L> {
    /// A device with `mac` and `mtu` over `link`.
    pub fn new(settings: NetSettings, link: L) -> Self { let _ = settings; Self { link } }
    /// The link.
    pub fn link(&self) -> &L { &self.link }
}
impl<L: Link> crate::virtio::VirtioDevice for Net<L> {}
