//! The guest's command line: printable ASCII, NUL terminated.

use tare_abi::layout::{CMDLINE, CMDLINE_MAX};
use vm_memory::{Bytes, GuestAddress};

use crate::GuestMemoryMmap;
use crate::error::LoadError;

pub(crate) fn check(line: &str) -> Result<(), LoadError> {
    let bytes = line.len();
    if bytes >= CMDLINE_MAX {
        return Err(LoadError::CmdlineTooLong { bytes });
    }
    let unprintable = |byte: u8| !(b' '..=b'~').contains(&byte);
    match line.bytes().position(unprintable) {
        None => Ok(()),
        Some(position) => Err(LoadError::CmdlineNotPrintable {
            byte: line.as_bytes()[position],
            position,
        }),
    }
}

pub(crate) fn write(line: &str, memory: &GuestMemoryMmap) -> Result<(), LoadError> {
    memory.write_slice(line.as_bytes(), GuestAddress(CMDLINE))?;
    Ok(memory.write_slice(&[0], GuestAddress(CMDLINE + line.len() as u64))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_line_leaves_room_for_its_nul() {
        assert!(check(&"x".repeat(CMDLINE_MAX - 1)).is_ok());
        assert!(matches!(
            check(&"x".repeat(CMDLINE_MAX)),
            Err(LoadError::CmdlineTooLong { bytes: CMDLINE_MAX })
        ));
    }

    #[test]
    fn unprintable_bytes_are_pointed_at() {
        for (line, byte, position) in [("a\nb", 0x0a, 1), ("\0", 0, 0), ("ab\u{e9}", 0xc3, 2)] {
            assert!(matches!(
                check(line),
                Err(LoadError::CmdlineNotPrintable { byte: b, position: p }) if (b, p) == (byte, position)
            ));
        }
    }
}
