//! Options of a machine that an image takes and most ignore, as an ELF note that the host
//! reads before it starts the image (gABI, "Note Section"), so that an option without effect
//! is an error.
//!
//! ```text
//! name  "Tare\0" (5 bytes, padded to 8), as for the rings
//! type  NOTE_TYPE
//! desc  4 bytes, little-endian: bit 0 set if the image takes a site's table (`tare run --site`),
//!       bit 1 if it takes another root while it runs (`--reload`)
//! ```
//!
//! An image without the note takes none.

use crate::rings;

/// Type of the note, in the name space of [`rings::NOTE_NAME`].
pub const NOTE_TYPE: u32 = 2;

/// The options that an image takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options(u32);

impl Options {
    /// A site's table.
    pub const SITE: Self = Self(1 << 0);
    /// Another root while it runs.
    pub const RELOAD: Self = Self(1 << 1);

    /// From the note's descriptor. Bits of later versions name options that this host does not
    /// have.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// These and `more`.
    pub const fn and(self, more: Self) -> Self {
        Self(self.0 | more.0)
    }

    /// Whether the image takes all of `options`.
    pub const fn contain(self, options: Self) -> bool {
        self.0 & options.0 == options.0
    }
}

/// The note as an image carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Note(rings::Words<u32>);

impl Note {
    /// The note of an image that takes `options`.
    pub const fn new(options: Options) -> Self {
        Self(rings::Words::new(NOTE_TYPE, options.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_takes_the_options_that_it_names() {
        assert!(Options::from_bits(1).contain(Options::SITE));
        assert!(Options::from_bits(7).contain(Options::SITE));
        assert!(!Options::from_bits(2).contain(Options::SITE));
        assert!(!Options::default().contain(Options::SITE));
        let both = Options::SITE.and(Options::RELOAD);
        assert_eq!(both, Options::from_bits(3));
        assert!(!Options::SITE.contain(both));
        assert_eq!(size_of::<Note>(), 24);
    }
}
