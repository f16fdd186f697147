//! Headers of the newc format. Names are bytes, as Linux takes them.

use std::io::{self, Write};

use crate::tree::S_IFREG;

/// Bytes of a header.
pub(super) const HEADER: u64 = 110;
/// Name of the last entry.
pub(super) const TRAILER: &str = "TRAILER!!!";

/// What a header says besides the length of the name.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Header {
    pub(super) inode: u32,
    /// Type and permissions.
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) links: u32,
    pub(super) modified_s: u32,
    /// Bytes behind the name.
    pub(super) bytes: u32,
    /// The numbers of a device, or where the content of `Layout::Pages` is.
    pub(super) rdev: (u32, u32),
}

impl Header {
    /// Of an entry without a name, which means no path.
    pub(super) fn nameless(bytes: u32) -> Self {
        Self {
            mode: S_IFREG,
            links: 1,
            bytes,
            ..Self::default()
        }
    }

    /// Writes it with a name, up to where the content begins.
    pub(super) fn write(&self, name: &[u8], to: &mut impl Write) -> io::Result<()> {
        let name_bytes = u32::try_from(name.len() + 1).map_err(io::Error::other)?;
        let fields = [
            self.inode,
            self.mode,
            self.uid,
            self.gid,
            self.links,
            self.modified_s,
            self.bytes,
            0,
            0,
            self.rdev.0,
            self.rdev.1,
            name_bytes,
            0,
        ];
        to.write_all(b"070701")?;
        for field in fields {
            write!(to, "{field:08x}")?;
        }
        to.write_all(name)?;
        to.write_all(&[0])?;
        pad(HEADER + u64::from(name_bytes), to)
    }
}

/// Writes zeros behind `bytes` of an entry, up to a multiple of four.
pub(super) fn pad(bytes: u64, to: &mut impl Write) -> io::Result<()> {
    let zeros = bytes.next_multiple_of(4) - bytes;
    to.write_all(&[0; 3][..zeros as usize])
}

/// Writes the end of an archive.
pub(super) fn trailer(to: &mut impl Write) -> io::Result<()> {
    let header = Header {
        links: 1,
        ..Header::default()
    };
    header.write(TRAILER.as_bytes(), to)
}
