//! Sparse files of PAX form 1.0, as GNU tar (`--format=posix --sparse`) and libarchive write them: a
//! regular file of another name, whose content begins with a map of the pieces that follow.
//!
//! Reference: GNU tar manual, "PAX Format, Version 1.0". The forms 0.0 and 0.1 are refused.

use std::io::{self, Read};
use std::ops::Range;

/// Unit of tar archives, bytes.
const BLOCK: u64 = 512;
/// Bytes of a map at most: some 50,000 pieces.
const MAP_MAX: u64 = 1 << 20;

/// What an entry's headers say of a sparse file.
#[derive(Debug)]
pub(super) struct Sparse {
    /// Its name.
    pub(super) name: Option<Vec<u8>>,
    /// Its length with its holes.
    pub(super) bytes: u64,
}

impl Sparse {
    /// Of an entry; `None` for another one.
    pub(super) fn of(entry: &mut tar::Entry<'_, impl Read>) -> io::Result<Option<Self>> {
        let (mut form, mut is_sparse) = (None, false);
        let mut sparse = Self {
            name: None,
            bytes: 0,
        };
        let Ok(Some(headers)) = entry.pax_extensions() else {
            return Ok(None);
        };
        for header in headers.flatten() {
            let Some(key) = header.key_bytes().strip_prefix(b"GNU.sparse.") else {
                continue;
            };
            is_sparse = true;
            let value = header.value_bytes();
            match key {
                b"major" => form = Some(value.to_vec()),
                b"name" => sparse.name = Some(value.to_vec()),
                b"realsize" => sparse.bytes = number(value)?,
                _ => {}
            }
        }
        match (is_sparse, form.as_deref()) {
            (false, _) => Ok(None),
            (true, Some(b"1")) => Ok(Some(sparse)),
            (true, _) => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a sparse file of a form before 1.0",
            )),
        }
    }
}

fn number(text: &[u8]) -> io::Result<u64> {
    let text = std::str::from_utf8(text).map_err(io::Error::other)?;
    text.parse().map_err(io::Error::other)
}

/// The map: where the pieces are that follow it, in the order in which they do.
pub(super) fn map(from: &mut impl Read) -> io::Result<Vec<Range<u64>>> {
    let mut lines = Lines { from, read: 0 };
    let count = lines.number()?;
    let mut pieces = Vec::new();
    for _ in 0..count {
        let start = lines.number()?;
        let end = start.checked_add(lines.number()?);
        pieces.push(start..end.ok_or(io::ErrorKind::InvalidData)?);
    }
    let padding = lines.read.next_multiple_of(BLOCK) - lines.read;
    io::copy(&mut lines.from.take(padding), &mut io::sink())?;
    Ok(pieces)
}

/// Numbers, a line each.
struct Lines<'a, R> {
    from: &'a mut R,
    read: u64,
}

impl<R: Read> Lines<'_, R> {
    fn number(&mut self) -> io::Result<u64> {
        let mut line = Vec::new();
        loop {
            let mut byte = [0];
            self.from.read_exact(&mut byte)?;
            self.read += 1;
            match byte[0] {
                b'\n' => return number(&line),
                _ if self.read > MAP_MAX => return Err(io::ErrorKind::InvalidData.into()),
                digit => line.push(digit),
            }
        }
    }
}
