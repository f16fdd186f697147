//! Device status and feature bits (virtio 1.2, 2.1, 2.2, 3.1): which steps a
//! driver may take, and in which order.

use virtio_bindings::virtio_config::{
    VIRTIO_CONFIG_S_ACKNOWLEDGE, VIRTIO_CONFIG_S_DRIVER, VIRTIO_CONFIG_S_DRIVER_OK,
    VIRTIO_CONFIG_S_FAILED, VIRTIO_CONFIG_S_FEATURES_OK, VIRTIO_CONFIG_S_NEEDS_RESET,
    VIRTIO_F_VERSION_1,
};

pub(super) const ACKNOWLEDGE: u8 = VIRTIO_CONFIG_S_ACKNOWLEDGE as u8;
pub(super) const DRIVER: u8 = VIRTIO_CONFIG_S_DRIVER as u8;
pub(super) const DRIVER_OK: u8 = VIRTIO_CONFIG_S_DRIVER_OK as u8;
pub(super) const FEATURES_OK: u8 = VIRTIO_CONFIG_S_FEATURES_OK as u8;
pub(super) const NEEDS_RESET: u8 = VIRTIO_CONFIG_S_NEEDS_RESET as u8;
pub(super) const FAILED: u8 = VIRTIO_CONFIG_S_FAILED as u8;

/// The meaning of a write to the status register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Status 0.
    Reset,
    /// DRIVER_OK: the device starts.
    Start,
    /// FAILED: the device stops.
    Fail,
    /// FEATURES_OK was not granted.
    Refused,
    /// Bits were added, nothing to do.
    Noted,
    /// A step that the driver may not take now; nothing changed.
    Invalid,
}

/// Status and features of one device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Negotiation {
    status: u8,
    offered: u64,
    accepted: u64,
    /// The driver requested bits above the 64 that exist.
    beyond: bool,
    pub(super) offered_select: u32,
    pub(super) accepted_select: u32,
}

impl Negotiation {
    pub(super) fn new(offered: u64) -> Self {
        Self {
            status: 0,
            offered,
            accepted: 0,
            beyond: false,
            offered_select: 0,
            accepted_select: 0,
        }
    }

    pub(super) fn status(&self) -> u8 {
        self.status
    }

    pub(super) fn features(&self) -> u64 {
        self.accepted
    }

    /// The 32 offered bits that the driver selected.
    pub(super) fn offered_word(&self) -> u32 {
        word(self.offered, self.offered_select)
    }

    /// The 32 accepted bits that the driver selected.
    pub(super) fn accepted_word(&self) -> u32 {
        word(self.accepted, self.accepted_select)
    }

    /// Sets accepted feature bits; `false` if it is too late.
    pub(super) fn accept_word(&mut self, bits: u32) -> bool {
        if self.status & FEATURES_OK != 0 {
            return false;
        }
        match self.accepted_select {
            0 => self.accepted = self.accepted & !0xffff_ffff | u64::from(bits),
            1 => self.accepted = self.accepted & 0xffff_ffff | u64::from(bits) << 32,
            _ => self.beyond |= bits != 0,
        }
        true
    }

    /// Sets DEVICE_NEEDS_RESET.
    pub(super) fn set_needs_reset(&mut self) {
        self.status |= NEEDS_RESET;
    }

    /// Writes the status register; `sensible` checks the selected features.
    pub(super) fn write_status(&mut self, value: u8, sensible: impl Fn(u64) -> bool) -> Step {
        if value == 0 {
            *self = Self::new(self.offered);
            return Step::Reset;
        }
        let added = value & !self.status;
        if self.status & !NEEDS_RESET & !value != 0 || added & NEEDS_RESET != 0 {
            return Step::Invalid;
        }
        if added & FAILED != 0 {
            self.status |= FAILED;
            return Step::Fail;
        }
        if self.status & (FAILED | NEEDS_RESET) != 0 || !in_order(value) {
            return Step::Invalid;
        }
        if added & FEATURES_OK != 0 && !self.features_fit(sensible) {
            self.status |= value & (ACKNOWLEDGE | DRIVER);
            return Step::Refused;
        }
        self.status |= value & (ACKNOWLEDGE | DRIVER | FEATURES_OK | DRIVER_OK);
        if added & DRIVER_OK != 0 {
            Step::Start
        } else {
            Step::Noted
        }
    }

    fn features_fit(&self, sensible: impl Fn(u64) -> bool) -> bool {
        let modern = self.accepted & 1 << VIRTIO_F_VERSION_1 != 0;
        let offered = self.accepted & !self.offered == 0 && !self.beyond;
        modern && offered && sensible(self.accepted)
    }
}

/// Each step includes the ones before it.
fn in_order(status: u8) -> bool {
    let steps = [ACKNOWLEDGE, DRIVER, FEATURES_OK, DRIVER_OK];
    let taken = steps.map(|step| status & step != 0);
    taken.is_sorted_by(|before, after| before >= after)
}

fn word(bits: u64, select: u32) -> u32 {
    match select {
        0 => bits as u32,
        1 => (bits >> 32) as u32,
        _ => 0,
    }
}
