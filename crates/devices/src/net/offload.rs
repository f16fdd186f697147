//! Which offloads are offered over which link, and which headers the negotiated features allow
//! (virtio 1.2, 5.1.3, 5.1.6.2, 5.1.6.4).

use virtio_bindings::virtio_net::{
    VIRTIO_NET_F_CSUM, VIRTIO_NET_F_GUEST_CSUM, VIRTIO_NET_F_GUEST_TSO4, VIRTIO_NET_F_GUEST_TSO6,
    VIRTIO_NET_F_HOST_TSO4, VIRTIO_NET_F_HOST_TSO6, VIRTIO_NET_F_MAC, VIRTIO_NET_F_MRG_RXBUF,
    VIRTIO_NET_F_MTU, VIRTIO_NET_F_STATUS,
};

use super::{
    FLAG_DATA_VALID, FLAG_NEEDS_CSUM, GSO_ECN, GSO_NONE, GSO_TCPV4, GSO_TCPV6, LinkOffload,
    NetHeader, RxOffload,
};

/// Offered over every link: the device completes checksums if the link cannot.
const ALWAYS: u64 = 1 << VIRTIO_NET_F_MAC
    | 1 << VIRTIO_NET_F_MTU
    | 1 << VIRTIO_NET_F_STATUS
    | 1 << VIRTIO_NET_F_CSUM
    | 1 << VIRTIO_NET_F_MRG_RXBUF;

/// Feature bits offered over a link.
pub(super) fn offered(link: LinkOffload) -> u64 {
    let guest_csum = 1 << VIRTIO_NET_F_GUEST_CSUM;
    match link {
        LinkOffload::None => ALWAYS,
        LinkOffload::TrustedRx => ALWAYS | guest_csum,
        LinkOffload::VnetHeader => {
            let segmentation = 1 << VIRTIO_NET_F_HOST_TSO4
                | 1 << VIRTIO_NET_F_HOST_TSO6
                | 1 << VIRTIO_NET_F_GUEST_TSO4
                | 1 << VIRTIO_NET_F_GUEST_TSO6;
            ALWAYS | guest_csum | segmentation
        }
    }
}

/// Segmentation needs checksums (5.1.3.1).
pub(super) fn consistent(features: u64) -> bool {
    let has = |bit: u32| features & 1 << bit != 0;
    let host = has(VIRTIO_NET_F_HOST_TSO4) || has(VIRTIO_NET_F_HOST_TSO6);
    let guest = has(VIRTIO_NET_F_GUEST_TSO4) || has(VIRTIO_NET_F_GUEST_TSO6);
    (!host || has(VIRTIO_NET_F_CSUM)) && (!guest || has(VIRTIO_NET_F_GUEST_CSUM))
}

/// Negotiated features, as far as frames are concerned.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Negotiated(u64);

impl Negotiated {
    pub(super) fn new(features: u64) -> Self {
        Self(features)
    }

    fn has(self, bit: u32) -> bool {
        self.0 & 1 << bit != 0
    }

    pub(super) fn merges_buffers(self) -> bool {
        self.has(VIRTIO_NET_F_MRG_RXBUF)
    }

    /// Offloads that the link may use towards the guest.
    pub(super) fn rx(self) -> RxOffload {
        RxOffload {
            csum: self.has(VIRTIO_NET_F_GUEST_CSUM),
            tso4: self.has(VIRTIO_NET_F_GUEST_TSO4),
            tso6: self.has(VIRTIO_NET_F_GUEST_TSO6),
        }
    }

    /// The guest's header, reduced to what it means; `None` if it requests what was not negotiated,
    /// or contradicts itself.
    pub(super) fn tx_header(self, header: NetHeader, frame_len: usize) -> Option<NetHeader> {
        let header = NetHeader {
            flags: header.flags & FLAG_NEEDS_CSUM,
            num_buffers: 0,
            ..header
        };
        let segments = match header.gso_type {
            GSO_NONE => true,
            GSO_TCPV4 => self.has(VIRTIO_NET_F_HOST_TSO4) && segmentable(&header),
            GSO_TCPV6 => self.has(VIRTIO_NET_F_HOST_TSO6) && segmentable(&header),
            _ => false,
        };
        let field = usize::from(header.csum_start) + usize::from(header.csum_offset) + 2;
        let sums = self.has(VIRTIO_NET_F_CSUM) && field <= frame_len;
        (segments && (sums || !header.needs_csum())).then_some(header)
    }

    /// The header of a received frame as the driver may see it; `None` if it
    /// needs what the driver did not accept (a frame that was queued before
    /// [`super::Link::set_offload`]).
    pub(super) fn rx_header(self, header: NetHeader, link: LinkOffload) -> Option<NetHeader> {
        let accepted = self.rx();
        let whole = match header.gso_type & !GSO_ECN {
            GSO_NONE => true,
            GSO_TCPV4 => accepted.tso4,
            GSO_TCPV6 => accepted.tso6,
            _ => false,
        };
        let summed = accepted.csum || !header.needs_csum();
        let flags = match link {
            _ if !accepted.csum => 0,
            // One whose checksum is yet to be made is not valid (virtio 1.2, 5.1.6.4).
            LinkOffload::TrustedRx if !header.needs_csum() => FLAG_DATA_VALID,
            _ => header.flags & (FLAG_NEEDS_CSUM | FLAG_DATA_VALID),
        };
        (whole && summed).then_some(NetHeader {
            flags,
            gso_type: header.gso_type & !GSO_ECN,
            num_buffers: 1,
            ..header
        })
    }
}

fn segmentable(header: &NetHeader) -> bool {
    header.needs_csum() && header.gso_size != 0
}
