//! The common configuration structure (virtio 1.2, 4.1.4.3): which register is
//! at which offset, and its width. Registers are accessed by their own width;
//! 64-bit ones also by halves.

/// A register of the structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Register {
    OfferedSelect,
    Offered,
    AcceptedSelect,
    Accepted,
    ConfigVector,
    QueueCount,
    Status,
    Generation,
    QueueSelect,
    QueueSize,
    QueueVector,
    QueueEnable,
    QueueNotifyOffset,
    QueueNotifyData,
    QueueReset,
    Ring(Ring, Part),
}

/// One of a queue's three addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ring {
    Descriptors,
    Available,
    Used,
}

/// The part of a 64-bit register that an access addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Low,
    High,
    Whole,
}

impl Part {
    /// `whole` with this part replaced.
    pub(super) fn replace(self, whole: u64, value: u64) -> u64 {
        match self {
            Self::Low => whole & !0xffff_ffff | value & 0xffff_ffff,
            Self::High => whole & 0xffff_ffff | value << 32,
            Self::Whole => value,
        }
    }

    /// This part of `whole`.
    pub(super) fn of(self, whole: u64) -> u64 {
        match self {
            Self::Low => whole & 0xffff_ffff,
            Self::High => whole >> 32,
            Self::Whole => whole,
        }
    }
}

impl Register {
    /// The register that an access of `len` bytes at `offset` addresses.
    pub(super) fn at(offset: usize, len: usize) -> Option<Self> {
        Some(match (offset, len) {
            (0x00, 4) => Self::OfferedSelect,
            (0x04, 4) => Self::Offered,
            (0x08, 4) => Self::AcceptedSelect,
            (0x0c, 4) => Self::Accepted,
            (0x10, 2) => Self::ConfigVector,
            (0x12, 2) => Self::QueueCount,
            (0x14, 1) => Self::Status,
            (0x15, 1) => Self::Generation,
            (0x16, 2) => Self::QueueSelect,
            (0x18, 2) => Self::QueueSize,
            (0x1a, 2) => Self::QueueVector,
            (0x1c, 2) => Self::QueueEnable,
            (0x1e, 2) => Self::QueueNotifyOffset,
            (0x20..0x38, 4 | 8) => return Self::ring_at(offset, len),
            (0x38, 2) => Self::QueueNotifyData,
            (0x3a, 2) => Self::QueueReset,
            _ => return None,
        })
    }

    fn ring_at(offset: usize, len: usize) -> Option<Self> {
        let ring = match offset & !7 {
            0x20 => Ring::Descriptors,
            0x28 => Ring::Available,
            _ => Ring::Used,
        };
        let part = match (offset % 8, len) {
            (0, 4) => Part::Low,
            (4, 4) => Part::High,
            (0, 8) => Part::Whole,
            _ => return None,
        };
        Some(Self::Ring(ring, part))
    }
}

/// A little-endian value of up to eight bytes.
pub(super) fn value_of(data: &[u8]) -> u64 {
    let bytes = data.iter().take(8).rev();
    bytes.fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// Stores `value` in `data`, little-endian, as far as it goes.
pub(super) fn store(data: &mut [u8], value: u64) {
    let bytes = value.to_le_bytes().into_iter().chain(std::iter::repeat(0));
    for (byte, value) in data.iter_mut().zip(bytes) {
        *byte = value;
    }
}
