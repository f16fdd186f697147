//! A request's header and status (virtio 1.2, 5.2.6).

use crate::block::{BlockError, Operation};

const IN: u32 = 0;
const OUT: u32 = 1;
const FLUSH: u32 = 4;
const GET_ID: u32 = 8;
const DISCARD: u32 = 11;
const WRITE_ZEROES: u32 = 13;

const OK: u8 = 0;
const UNSUPPORTED: u8 = 2;
/// What the status is before the device has written it.
pub(super) const UNWRITTEN: u8 = 0xff;

/// Length of a header.
pub(super) const LEN: usize = 16;
/// Length of a range of sectors.
const RANGE_LEN: usize = 16;
/// Length of a serial number.
pub(super) const SERIAL_LEN: usize = 20;

/// The header of an operation.
pub(super) fn of(operation: &Operation<'_>) -> [u8; LEN] {
    match operation {
        Operation::Read { sector, .. } => header(IN, *sector),
        Operation::Write { sector, .. } => header(OUT, *sector),
        Operation::Flush => header(FLUSH, 0),
        // The sectors are in the data.
        Operation::Discard { .. } => header(DISCARD, 0),
        Operation::WriteZeroes { .. } => header(WRITE_ZEROES, 0),
    }
}

/// The data of an operation that names its sectors there: first sector, number,
/// no flags.
pub(super) fn range(operation: &Operation<'_>) -> [u8; RANGE_LEN] {
    let (Operation::Discard { sector, sectors } | Operation::WriteZeroes { sector, sectors }) =
        operation
    else {
        return [0; RANGE_LEN];
    };
    let mut range = [0; RANGE_LEN];
    range[..8].copy_from_slice(&sector.to_le_bytes());
    range[8..12].copy_from_slice(&sectors.to_le_bytes());
    range
}

/// The header of a request for the serial number.
pub(super) fn get_id() -> [u8; LEN] {
    header(GET_ID, 0)
}

fn header(kind: u32, sector: u64) -> [u8; LEN] {
    let mut header = [0; LEN];
    header[..4].copy_from_slice(&kind.to_le_bytes());
    header[8..].copy_from_slice(&sector.to_le_bytes());
    header
}

/// What a status means.
pub(super) fn judge(status: u8) -> Result<(), BlockError> {
    match status {
        OK => Ok(()),
        UNSUPPORTED => Err(BlockError::Unsupported),
        _ => Err(BlockError::Io),
    }
}

/// A serial number as text: up to the first zero, what prints of it.
pub(super) fn serial(bytes: &[u8; SERIAL_LEN]) -> alloc::string::String {
    let end = bytes.iter().position(|byte| *byte == 0);
    let text = &bytes[..end.unwrap_or(SERIAL_LEN)];
    let printable = text.iter().filter(|byte| byte.is_ascii_graphic());
    printable.map(|byte| char::from(*byte)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_as_the_specification_has_them() {
        let mut into = [0; 512];
        let read = Operation::Read {
            sector: 0x0102_0304_0506_0708,
            into: &mut into,
        };
        let expected = [0, 0, 0, 0, 0, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1];
        assert_eq!(of(&read), expected);
        let write = Operation::Write {
            sector: 1,
            from: &[],
        };
        assert_eq!(of(&write)[..9], [1, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(of(&Operation::Flush)[0], 4);
        assert_eq!(get_id()[0], 8);
        let (sector, sectors) = (0x0102, 0x0304);
        let discard = Operation::Discard { sector, sectors };
        let zeroes = Operation::WriteZeroes { sector, sectors };
        let expected = [2, 1, 0, 0, 0, 0, 0, 0, 4, 3, 0, 0, 0, 0, 0, 0];
        for (operation, kind) in [(discard, 11), (zeroes, 13)] {
            assert_eq!(of(&operation)[0], kind);
            assert_eq!(of(&operation)[1..], [0; 15]);
            assert_eq!(range(&operation), expected);
        }
    }

    #[test]
    fn every_status_but_ok_is_an_error() {
        assert_eq!(judge(0), Ok(()));
        assert_eq!(judge(2), Err(BlockError::Unsupported));
        for status in [1, 3, UNWRITTEN] {
            assert_eq!(judge(status), Err(BlockError::Io));
        }
    }

    #[test]
    fn a_serial_number_is_what_prints_before_the_first_zero() {
        let mut bytes = *b"tare-disk0\0garbage\0\0";
        assert_eq!(serial(&bytes), "tare-disk0");
        bytes = *b"01234567890123456789";
        assert_eq!(serial(&bytes), "01234567890123456789");
        bytes = *b"a\x01 b\xff\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
        assert_eq!(serial(&bytes), "ab");
    }
}
