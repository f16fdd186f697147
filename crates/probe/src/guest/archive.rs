//! Named pieces of bytes on a disk: `TAREFIND`, then for each piece the length of
//! its name, the length of its bytes (both 64 bits, little-endian), the name, the
//! bytes; a name of no length ends it.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

const MAGIC: &[u8; 8] = b"TAREFIND";
/// Longest name, bytes.
const NAME_MAX: u64 = 64;
/// Longest piece, bytes.
pub const PIECE_MAX: u64 = 96 << 20;
/// Most pieces.
const PIECES_MAX: usize = 16;

/// A archive that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The guest wrote nothing, or something else.
    #[error("the guest wrote no results")]
    None,
    /// A length beyond what is allowed, or too many pieces.
    #[error("the guest wrote results beyond the limits (16 pieces of 96 MiB)")]
    TooLarge,
    /// An invalid name.
    #[error("the guest wrote a result with an invalid name")]
    Name,
    /// It ends early, or the disk cannot be read.
    #[error("cannot read the results that the guest wrote")]
    Io(#[from] io::Error),
}

/// Writes all pieces.
pub fn write(pieces: &[(&str, &[u8])], to: &mut impl Write) -> io::Result<()> {
    to.write_all(MAGIC)?;
    for (name, bytes) in pieces {
        to.write_all(&(name.len() as u64).to_le_bytes())?;
        to.write_all(&(bytes.len() as u64).to_le_bytes())?;
        to.write_all(name.as_bytes())?;
        to.write_all(bytes)?;
    }
    to.write_all(&[0; 16])?;
    to.flush()
}

/// Reads all pieces.
pub fn read(from: &mut impl Read) -> Result<BTreeMap<String, Vec<u8>>, ArchiveError> {
    if take(from, 8)? != MAGIC {
        return Err(ArchiveError::None);
    }
    let mut pieces = BTreeMap::new();
    loop {
        let (name, bytes) = (length(from)?, length(from)?);
        if name == 0 {
            return Ok(pieces);
        }
        if name > NAME_MAX || bytes > PIECE_MAX || pieces.len() == PIECES_MAX {
            return Err(ArchiveError::TooLarge);
        }
        let name = String::from_utf8(take(from, name)?).map_err(|_| ArchiveError::Name)?;
        pieces.insert(name, take(from, bytes)?);
    }
}

fn length(from: &mut impl Read) -> Result<u64, ArchiveError> {
    let mut bytes = [0; 8];
    from.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// Reads `bytes` bytes; memory grows as they arrive.
fn take(from: &mut impl Read, bytes: u64) -> Result<Vec<u8>, ArchiveError> {
    let mut taken = Vec::new();
    from.take(bytes).read_to_end(&mut taken)?;
    if taken.len() as u64 == bytes {
        Ok(taken)
    } else {
        Err(io::Error::from(io::ErrorKind::UnexpectedEof).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive() -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&[("a", b"one"), ("b", b"")], &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn pieces_come_back_and_what_follows_is_ignored() {
        let mut bytes = archive();
        bytes.extend([0xff; 512]);
        let pieces = read(&mut bytes.as_slice()).unwrap();
        assert_eq!(pieces["a"], b"one");
        assert_eq!(pieces["b"], b"");
    }

    #[test]
    fn every_cut_and_nonsense_are_refused() {
        let whole = archive();
        for end in 0..whole.len() {
            assert!(read(&mut &whole[..end]).is_err(), "{end}");
        }
        assert!(matches!(
            read(&mut [0; 64].as_slice()),
            Err(ArchiveError::None)
        ));
        let mut huge = whole;
        huge[16..24].fill(0xff);
        assert!(matches!(
            read(&mut huge.as_slice()),
            Err(ArchiveError::TooLarge)
        ));
    }
}
