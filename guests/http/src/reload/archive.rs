//! An archive on a disk, read from its first byte to its last into files, each with its own memory.
//!
//! It is hostile: each length is checked against what is left, paths come in ascending order as
//! the host packs them, and what does not parse refuses the whole.

use alloc::vec::Vec;

use tare_libos::block::{Disk, SECTOR_BYTES};
use tare_libos::fs::Content;
use tare_libos::fs::cpio::{self, EntryKind, HEADER_LEN, Header, TRAILER};
use tare_libos::heap;
use tare_site::reload::{ARCHIVE_SECTOR, Refusal, Request};
use tare_site::{FILE, MOST_BYTES};

use crate::root::{AddError, Loaded};
use crate::site::Node;

/// Bytes read at once, whole sectors.
const WINDOW: usize = 64 * 1024;
/// Longest name with its NUL (Linux's `PATH_MAX`).
const LONGEST_NAME: usize = 4096;

/// What an archive has.
pub(super) struct Archive {
    pub(super) files: Loaded,
    /// The site's table, which is not a file.
    pub(super) table: Option<Vec<u8>>,
}

/// Reads the archive that `request` names.
#[cold]
#[inline(never)]
pub(super) fn read(disk: &Disk, request: &Request) -> Result<Archive, Refusal> {
    let mut bytes = Bytes::new(disk, request.bytes)?;
    let mut archive = Archive {
        files: Loaded::default(),
        table: None,
    };
    let mut name = Vec::new();
    for _ in 0..request.entries {
        let header = bytes.entry(&mut name)?;
        let path = cpio::path(&name).ok_or(Refusal::Archive)?;
        if path == FILE && request.has_site && header.len <= MOST_BYTES {
            archive.table = Some(bytes.content(header.len)?);
            continue;
        }
        let node = match header.kind() {
            EntryKind::Directory => Node::Directory,
            EntryKind::File => Node::File {
                bytes: Content::loaded(bytes.content(header.len)?),
                modified_s: header.modified_s.into(),
            },
            // Not served, as in an initramfs.
            EntryKind::Link | EntryKind::Other => {
                bytes.skip(header.len)?;
                continue;
            }
        };
        archive.files.add(path, node).map_err(|error| match error {
            AddError::Order => Refusal::Archive,
            AddError::NoMemory => missing(path.len()),
        })?;
    }
    bytes.entry(&mut name)?;
    let is_end = name.strip_suffix(b"\0") == Some(TRAILER.as_bytes());
    let is_whole = is_end && bytes.at() == request.bytes;
    let has_site = archive.table.is_some();
    if is_whole && has_site == request.has_site {
        Ok(archive)
    } else {
        Err(Refusal::Archive)
    }
}

/// The allocator has less than it seemed.
fn missing(bytes: usize) -> Refusal {
    Refusal::Memory {
        missing_bytes: bytes.max(1) as u64,
    }
}

/// Zeros in memory that may be refused: peers take some meanwhile.
#[cold]
#[inline(never)]
fn zeroed(bytes: usize) -> Result<Vec<u8>, Refusal> {
    if !heap::has_room(bytes) {
        return Err(missing(bytes));
    }
    let mut room = Vec::new();
    let reserved = room.try_reserve_exact(bytes);
    reserved.map_err(|_| missing(bytes))?;
    room.resize(bytes, 0);
    Ok(room)
}

/// The archive's bytes in order.
struct Bytes<'d> {
    disk: &'d Disk,
    /// The sector behind the window.
    next: u64,
    window: Vec<u8>,
    /// Bytes of the window that are read, and those of them that were taken.
    filled: usize,
    taken: usize,
    /// Bytes of the archive before the window's begin, and all of it.
    before: u64,
    len: u64,
}

impl<'d> Bytes<'d> {
    fn new(disk: &'d Disk, len: u64) -> Result<Self, Refusal> {
        Ok(Self {
            disk,
            next: ARCHIVE_SECTOR,
            window: zeroed(WINDOW)?,
            filled: 0,
            taken: 0,
            before: 0,
            len,
        })
    }

    /// Bytes of the archive that were taken.
    fn at(&self) -> u64 {
        self.before + self.taken as u64
    }

    /// Header and name of the next entry; its content is next.
    #[cold]
    #[inline(never)]
    fn entry(&mut self, name: &mut Vec<u8>) -> Result<Header, Refusal> {
        let mut header = [0; HEADER_LEN];
        self.fill(&mut header)?;
        let header = Header::parse(&header).ok_or(Refusal::Archive)?;
        if header.name_len > LONGEST_NAME {
            return Err(Refusal::Archive);
        }
        name.clear();
        let reserved = name.try_reserve(header.name_len);
        reserved.map_err(|_| missing(header.name_len))?;
        name.resize(header.name_len, 0);
        self.fill(name)?;
        self.align()?;
        Ok(header)
    }

    /// The next `len` bytes. No memory is taken for more than the archive has.
    #[cold]
    #[inline(never)]
    fn content(&mut self, len: usize) -> Result<Vec<u8>, Refusal> {
        if len as u64 > self.len - self.at() {
            return Err(Refusal::Archive);
        }
        let mut content = zeroed(len)?;
        self.fill(&mut content)?;
        self.align()?;
        Ok(content)
    }

    fn skip(&mut self, len: usize) -> Result<(), Refusal> {
        let mut left = len;
        while left > 0 {
            left -= self.take(left)?.len();
        }
        self.align()
    }

    /// Entries and contents begin at multiples of four bytes.
    fn align(&mut self) -> Result<(), Refusal> {
        let padding = self.at().next_multiple_of(4) - self.at();
        self.fill(&mut [0; 4][..padding as usize])
    }

    #[cold]
    #[inline(never)]
    fn fill(&mut self, mut into: &mut [u8]) -> Result<(), Refusal> {
        while !into.is_empty() {
            let bytes = self.take(into.len())?;
            let (filled, rest) = into.split_at_mut(bytes.len());
            filled.copy_from_slice(bytes);
            into = rest;
        }
        Ok(())
    }

    /// Some of the next bytes, at most `most`.
    fn take(&mut self, most: usize) -> Result<&[u8], Refusal> {
        if self.taken == self.filled {
            self.read()?;
        }
        let start = self.taken;
        self.taken += most.min(self.filled - start);
        Ok(&self.window[start..self.taken])
    }

    /// Reads the next window.
    #[cold]
    #[inline(never)]
    fn read(&mut self) -> Result<(), Refusal> {
        self.before += self.filled as u64;
        (self.filled, self.taken) = (0, 0);
        let left = self.len - self.before;
        if left == 0 {
            return Err(Refusal::Archive);
        }
        let filled = usize::try_from(left).map_or(WINDOW, |left| left.min(WINDOW));
        let sectors = filled.div_ceil(SECTOR_BYTES);
        let into = &mut self.window[..sectors * SECTOR_BYTES];
        let read = self.disk.read(self.next, into);
        read.map_err(|_| Refusal::Disk)?;
        self.next += sectors as u64;
        self.filled = filled;
        Ok(())
    }
}
