//! ELF notes: the PVH entry (`XEN_ELFNOTE_PHYS32_ENTRY`), the rings and options that an
//! image of the library OS supports ([`tare_abi::rings`], [`tare_abi::options`]), and where it
//! counts what ran out ([`tare_abi::expiries`]).
//!
//! Reference: System V ABI, chapter 5, Note Section; Xen `xen/include/public/elfnote.h`.

use tare_abi::expiries;
use tare_abi::options::{self, Options};
use tare_abi::rings::{NOTE_NAME, NOTE_TYPE, Rings};

use crate::error::LoadError;

const HEADER_BYTES: usize = 12;
const XEN: &[u8] = b"Xen\0";
const PHYS32_ENTRY: u32 = 18;

/// The PVH entry in a note segment of alignment `align`; `None` if it has none.
pub(crate) fn pvh_entry(notes: &[u8], align: u64) -> Result<Option<u64>, LoadError> {
    match find(notes, align, XEN, PHYS32_ENTRY)? {
        Some(note) => note.entry().map(Some).ok_or(LoadError::Notes),
        None => Ok(None),
    }
}

/// Whether a note segment has a PVH entry, valid or not.
pub(crate) fn has_pvh_entry(notes: &[u8], align: u64) -> bool {
    matches!(find(notes, align, XEN, PHYS32_ENTRY), Ok(Some(_)))
}

/// The rings that a note segment names; `None` if it has no such note.
pub(crate) fn rings(notes: &[u8], align: u64) -> Result<Option<Rings>, LoadError> {
    let Some(bits) = description(notes, align, NOTE_TYPE)? else {
        return Ok(None);
    };
    Rings::from_bits(u32::from_le_bytes(bits))
        .map(Some)
        .ok_or(LoadError::Notes)
}

/// The options that a note segment names; `None` if it has no such note.
pub(crate) fn options(notes: &[u8], align: u64) -> Result<Option<Options>, LoadError> {
    let bits = description(notes, align, options::NOTE_TYPE)?;
    Ok(bits.map(|bits| Options::from_bits(u32::from_le_bytes(bits))))
}

/// Guest-physical address of the table of expiries that a note segment names; `None` if it has no
/// such note.
pub(crate) fn expiries(notes: &[u8], align: u64) -> Result<Option<u64>, LoadError> {
    let address = description(notes, align, expiries::NOTE_TYPE)?;
    Ok(address.map(u64::from_le_bytes))
}

/// The description of a note of Tare's, which has this length.
fn description<const LEN: usize>(
    notes: &[u8],
    align: u64,
    kind: u32,
) -> Result<Option<[u8; LEN]>, LoadError> {
    let Some(note) = find(notes, align, &NOTE_NAME, kind)? else {
        return Ok(None);
    };
    let bytes = note.description.try_into().map_err(|_| LoadError::Notes)?;
    Ok(Some(bytes))
}

/// The first note of this owner and type.
fn find<'a>(
    mut notes: &'a [u8],
    align: u64,
    owner: &[u8],
    kind: u32,
) -> Result<Option<Note<'a>>, LoadError> {
    // Linkers give 8 only to segments whose notes are padded to 8.
    let align = if align == 8 { 8 } else { 4 };
    while notes.len() >= HEADER_BYTES {
        let (note, rest) = Note::split(notes, align).ok_or(LoadError::Notes)?;
        if note.kind == kind && note.owner == owner {
            return Ok(Some(note));
        }
        notes = rest;
    }
    Ok(None)
}

struct Note<'a> {
    kind: u32,
    owner: &'a [u8],
    description: &'a [u8],
}

impl<'a> Note<'a> {
    fn split(notes: &'a [u8], align: usize) -> Option<(Self, &'a [u8])> {
        let word = |index: usize| {
            let bytes = notes.get(4 * index..)?.first_chunk()?;
            Some(u32::from_le_bytes(*bytes))
        };
        let (owner_bytes, description_bytes) = (word(0)? as usize, word(1)? as usize);
        let owner_end = HEADER_BYTES.checked_add(owner_bytes)?;
        let description_at = owner_end.checked_next_multiple_of(align)?;
        let description_end = description_at.checked_add(description_bytes)?;
        let next = description_end.checked_next_multiple_of(align)?;
        let note = Self {
            kind: word(2)?,
            owner: notes.get(HEADER_BYTES..owner_end)?,
            description: notes.get(description_at..description_end)?,
        };
        // The last note may go without its padding.
        Some((note, notes.get(next..).unwrap_or_default()))
    }

    /// A 32-bit address, in a description of 4 or 8 bytes.
    fn entry(&self) -> Option<u64> {
        match self.description.len() {
            4 => {
                let bytes = self.description.first_chunk()?;
                Some(u64::from(u32::from_le_bytes(*bytes)))
            }
            8 => {
                let entry = u64::from_le_bytes(*self.description.first_chunk()?);
                u32::try_from(entry).ok().map(u64::from)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(owner: &[u8], kind: u32, description: &[u8], align: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for word in [owner.len() as u32, description.len() as u32, kind] {
            bytes.extend(word.to_le_bytes());
        }
        for part in [owner, description] {
            bytes.extend(part);
            bytes.resize(bytes.len().next_multiple_of(align), 0);
        }
        bytes
    }

    #[test]
    fn the_entry_is_found_behind_other_notes() {
        let mut notes = note(b"GNU\0", 3, &[1; 19], 4);
        notes.extend(note(b"GNU\0", PHYS32_ENTRY, &[9; 4], 4));
        notes.extend(note(XEN, PHYS32_ENTRY, &0x10_0000_u32.to_le_bytes(), 4));
        assert_eq!(pvh_entry(&notes, 4).unwrap(), Some(0x10_0000));
    }

    #[test]
    fn notes_padded_to_eight_are_walked() {
        let mut notes = note(b"GNU\0", 5, &[1; 12], 8);
        notes.extend(note(XEN, PHYS32_ENTRY, &0x20_0000_u64.to_le_bytes(), 8));
        assert_eq!(pvh_entry(&notes, 8).unwrap(), Some(0x20_0000));
    }

    #[test]
    fn an_image_without_a_note_has_no_entry() {
        assert_eq!(pvh_entry(&[], 4).unwrap(), None);
        assert_eq!(pvh_entry(&note(XEN, 1, &[0; 4], 4), 4).unwrap(), None);
    }

    #[test]
    fn lengths_beyond_the_segment_are_malformed() {
        for (at, byte) in [(0, 0xff), (4, 0xff), (3, 0xff), (7, 0xff)] {
            let mut notes = note(b"GNU\0", 3, &[1; 4], 4);
            notes[at] = byte;
            assert!(matches!(pvh_entry(&notes, 4), Err(LoadError::Notes)));
        }
    }

    #[test]
    fn an_entry_above_4_gib_or_of_odd_size_is_malformed() {
        let far = note(XEN, PHYS32_ENTRY, &(1_u64 << 32).to_le_bytes(), 4);
        let odd = note(XEN, PHYS32_ENTRY, &[1, 2], 4);
        assert!(matches!(pvh_entry(&far, 4), Err(LoadError::Notes)));
        assert!(matches!(pvh_entry(&odd, 4), Err(LoadError::Notes)));
    }

    #[test]
    fn the_rings_of_an_image_are_read_beside_its_entry() {
        let mut notes = note(XEN, PHYS32_ENTRY, &[0; 4], 4);
        notes.extend(note(&NOTE_NAME, NOTE_TYPE, &8_u32.to_le_bytes(), 4));
        assert_eq!(rings(&notes, 4).unwrap(), Some(Rings::THREE));
        assert_eq!(
            rings(&note(XEN, NOTE_TYPE, &[8, 0, 0, 0], 4), 4).unwrap(),
            None
        );
    }

    #[test]
    fn the_options_of_an_image_are_read_beside_its_rings() {
        let rings = note(&NOTE_NAME, NOTE_TYPE, &8_u32.to_le_bytes(), 4);
        assert_eq!(options(&rings, 4).unwrap(), None);
        let of = |description: &[u8]| note(&NOTE_NAME, options::NOTE_TYPE, description, 4);
        let both = [rings, of(&[1, 0, 0, 0])].concat();
        assert_eq!(options(&both, 4).unwrap(), Some(Options::SITE));
        assert!(matches!(options(&of(&[1]), 4), Err(LoadError::Notes)));
    }

    #[test]
    fn the_table_of_expiries_is_read_beside_the_rings() {
        let rings = note(&NOTE_NAME, NOTE_TYPE, &8_u32.to_le_bytes(), 4);
        assert_eq!(expiries(&rings, 4).unwrap(), None);
        let of = |description: &[u8]| note(&NOTE_NAME, expiries::NOTE_TYPE, description, 4);
        let both = [rings, of(&0x20_1000_u64.to_le_bytes())].concat();
        assert_eq!(expiries(&both, 4).unwrap(), Some(0x20_1000));
        assert!(matches!(expiries(&of(&[1; 4]), 4), Err(LoadError::Notes)));
    }

    #[test]
    fn rings_that_do_not_exist_are_malformed() {
        for description in [&[0; 4][..], &[2, 0, 0, 0], &[8], &[9; 8]] {
            let notes = note(&NOTE_NAME, NOTE_TYPE, description, 4);
            assert!(matches!(rings(&notes, 4), Err(LoadError::Notes)));
        }
    }
}
