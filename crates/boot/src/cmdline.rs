//! The guest's command line: printable ASCII, NUL terminated.

use tare_abi::layout::{CMDLINE, CMDLINE_MAX, LINUX_CMDLINE_MAX};
use vm_memory::{Bytes, GuestAddress};

use crate::GuestMemoryMmap;
use crate::error::LoadError;
use crate::protocol::Protocol;

pub(crate) fn check(line: &str, protocol: Protocol) -> Result<(), LoadError> {
    let most = match protocol {
        Protocol::Linux => LINUX_CMDLINE_MAX,
        Protocol::Pvh => CMDLINE_MAX,
    };
    check_length(line, most - 1)?;
    let unprintable = |byte: u8| !(b' '..=b'~').contains(&byte);
    match line.bytes().position(unprintable) {
        None => Ok(()),
        Some(position) => Err(LoadError::CmdlineNotPrintable {
            byte: line.as_bytes()[position],
            position,
        }),
    }
}

/// Linux cuts a longer line at its end, where the user's words are.
pub(crate) fn check_length(line: &str, most: usize) -> Result<(), LoadError> {
    match line.len() {
        bytes if bytes > most => Err(LoadError::CmdlineTooLong { bytes, most }),
        _ => Ok(()),
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
        for (protocol, room) in [
            (Protocol::Pvh, CMDLINE_MAX),
            (Protocol::Linux, LINUX_CMDLINE_MAX),
        ] {
            assert!(check(&"x".repeat(room - 1), protocol).is_ok());
            assert!(matches!(
                check(&"x".repeat(room), protocol),
                Err(LoadError::CmdlineTooLong { bytes, most }) if (bytes, most) == (room, room - 1)
            ));
        }
    }

    #[test]
    fn unprintable_bytes_are_pointed_at() {
        for (line, byte, position) in [("a\nb", 0x0a, 1), ("\0", 0, 0), ("ab\u{e9}", 0xc3, 2)] {
            assert!(matches!(
                check(line, Protocol::Pvh),
                Err(LoadError::CmdlineNotPrintable { byte: b, position: p }) if (b, p) == (byte, position)
            ));
        }
    }
}
