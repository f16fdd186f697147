//! The layout of a virtio function's BAR 0, and the capabilities that describe it (virtio 1.2,
//! 4.1.4).

use crate::pci::{CAPABILITY_MSIX, CAPABILITY_VENDOR, ConfigSpace, MsixControl};

/// Bytes of BAR 0. Each structure has its own page.
pub(super) const BAR_LEN: u32 = 0x8000;
/// Length of the common configuration (with the two fields of virtio 1.2).
pub(super) const COMMON_LEN: u32 = 0x3c;
/// Bytes between two queues' notification addresses.
pub(super) const NOTIFY_MULTIPLIER: u32 = 4;

const COMMON: u32 = 0x0000;
const ISR: u32 = 0x1000;
const DEVICE: u32 = 0x2000;
pub(super) const NOTIFY: u32 = 0x3000;
const TABLE: u32 = 0x4000;
const PBA: u32 = 0x5000;
const PAGE: u32 = 0x1000;

const CFG_COMMON: u8 = 1;
const CFG_NOTIFY: u8 = 2;
const CFG_ISR: u8 = 3;
const CFG_DEVICE: u8 = 4;
const CFG_PCI: u8 = 5;

/// A structure in BAR 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Region {
    Common,
    Isr,
    Device,
    Notify,
    Table,
    Pba,
    Nothing,
}

impl Region {
    /// The structure that holds BAR offset `offset`, and the offset in it.
    pub(super) fn at(offset: u64) -> (Self, usize) {
        let region = match u32::try_from(offset).unwrap_or(BAR_LEN) & !(PAGE - 1) {
            COMMON => Self::Common,
            ISR => Self::Isr,
            DEVICE => Self::Device,
            NOTIFY => Self::Notify,
            TABLE => Self::Table,
            PBA => Self::Pba,
            _ => Self::Nothing,
        };
        (region, (offset % u64::from(PAGE)) as usize)
    }
}

/// Offsets in configuration space of the capabilities that act on writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Capabilities {
    /// MSI-X message control.
    pub(super) msix_control: u16,
    /// `struct virtio_pci_cfg_cap`.
    pub(super) window: u16,
}

/// Adds all capabilities of a device with `queues` queues.
pub(super) fn add_capabilities(config: &mut ConfigSpace, queues: u16) -> Capabilities {
    let msix = config.add_capability(CAPABILITY_MSIX, &msix_body(queues + 1), &msix_writable());
    for (kind, offset, len) in [
        (CFG_COMMON, COMMON, COMMON_LEN),
        (CFG_ISR, ISR, 1),
        (CFG_DEVICE, DEVICE, PAGE),
    ] {
        config.add_capability(CAPABILITY_VENDOR, &body(kind, offset, len, &[]), &[]);
    }
    let notify = body(
        CFG_NOTIFY,
        NOTIFY,
        u32::from(queues) * NOTIFY_MULTIPLIER,
        &NOTIFY_MULTIPLIER.to_le_bytes(),
    );
    config.add_capability(CAPABILITY_VENDOR, &notify, &[]);
    let window = config.add_capability(
        CAPABILITY_VENDOR,
        &body(CFG_PCI, 0, 0, &[0; 4]),
        &window_writable(),
    );
    Capabilities {
        msix_control: msix + 2,
        window,
    }
}

/// `struct virtio_pci_cap` after its first two bytes: length of the capability,
/// type, BAR, identifier, padding, offset, length, and what follows.
fn body(kind: u8, offset: u32, len: u32, rest: &[u8]) -> Vec<u8> {
    let mut body = vec![16 + rest.len() as u8, kind, 0, 0, 0, 0];
    body.extend_from_slice(&offset.to_le_bytes());
    body.extend_from_slice(&len.to_le_bytes());
    body.extend_from_slice(rest);
    body
}

/// BAR, offset, length and data of the configuration window.
fn window_writable() -> Vec<u8> {
    let mut mask = vec![0, 0, 0xff, 0, 0, 0];
    mask.extend_from_slice(&[0xff; 12]);
    mask
}

fn msix_body(vectors: u16) -> Vec<u8> {
    let mut body = (vectors - 1).to_le_bytes().to_vec();
    body.extend_from_slice(&TABLE.to_le_bytes());
    body.extend_from_slice(&PBA.to_le_bytes());
    body
}

fn msix_writable() -> [u8; 2] {
    MsixControl::WRITABLE.to_le_bytes()
}
