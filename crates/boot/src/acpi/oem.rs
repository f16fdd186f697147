//! Who made the tables: in the header of each.

pub(super) const OEM_ID: [u8; 6] = *b"TARE  ";
pub(super) const OEM_TABLE_ID: [u8; 8] = *b"TAREVM  ";
pub(super) const OEM_REVISION: u32 = 1;
