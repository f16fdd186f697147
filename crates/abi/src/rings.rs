//! Which processor rings an image can run in, as an ELF note that a monitor reads
//! before it starts the image (gABI, "Note Section").
//!
//! ```text
//! name  "Tare\0" (5 bytes, padded to 8)
//! type  NOTE_TYPE
//! desc  4 bytes, little-endian: bit N set if the image runs in ring N
//! ```
//!
//! An image without the note runs in either ring.

/// Name of the note, with its NUL.
pub const NOTE_NAME: [u8; 5] = *b"Tare\0";
/// Type of the note, in the name space of [`NOTE_NAME`].
pub const NOTE_TYPE: u32 = 1;

/// The rings that an image supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rings(u32);

impl Rings {
    /// Ring 0 only: the image executes privileged instructions itself.
    pub const ZERO: Self = Self(1 << 0);
    /// Ring 3 only: the image uses vector registers or runs other programs.
    pub const THREE: Self = Self(1 << 3);
    /// Either.
    pub const EITHER: Self = Self(1 << 0 | 1 << 3);

    /// From the note's descriptor; `None` if it names no ring, or one besides 0 and 3.
    pub const fn from_bits(bits: u32) -> Option<Self> {
        if bits == 0 || bits & !Self::EITHER.0 != 0 {
            return None;
        }
        Some(Self(bits))
    }

    /// The note's descriptor.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether the image runs in `ring`, 0 or 3.
    pub const fn contain(self, ring: u8) -> bool {
        ring < 32 && self.0 & 1 << ring != 0
    }
}

/// The note as an image carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Note(Words<u32>);

impl Note {
    /// The note of an image that supports `rings`.
    pub const fn new(rings: Rings) -> Self {
        Self(Words::new(NOTE_TYPE, rings.0))
    }
}

/// A note of this name space with a descriptor. Linkers align notes to 4 bytes, whatever the descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, packed(4))]
pub(crate) struct Words<D: Copy> {
    name_bytes: u32,
    descriptor_bytes: u32,
    kind: u32,
    name: [u8; 8],
    descriptor: D,
}

impl<D: Copy> Words<D> {
    pub(crate) const fn new(kind: u32, descriptor: D) -> Self {
        let [a, b, c, d, nul] = NOTE_NAME;
        Self {
            name_bytes: NOTE_NAME.len() as u32,
            descriptor_bytes: size_of::<D>() as u32,
            kind,
            name: [a, b, c, d, nul, 0, 0, 0],
            descriptor,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_has_header_name_and_rings() {
        let Note(note) = Note::new(Rings::EITHER);
        assert_eq!(
            (note.name_bytes, note.descriptor_bytes, note.kind),
            (5, 4, 1)
        );
        assert_eq!(&note.name, b"Tare\0\0\0\0");
        assert_eq!(note.descriptor, 0b1001);
        assert_eq!(size_of::<Note>(), 24);
    }

    #[test]
    fn bits_of_other_rings_are_refused() {
        assert_eq!(Rings::from_bits(0), None);
        assert_eq!(Rings::from_bits(2), None);
        assert_eq!(Rings::from_bits(1 << 31 | 1), None);
        assert_eq!(Rings::from_bits(8), Some(Rings::THREE));
        assert!(Rings::THREE.contain(3) && !Rings::THREE.contain(0) && !Rings::ZERO.contain(40));
    }
}
