//! [`Files`]: the file system, on its own thread.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::RefCell;

use ext4_view::{Ext4, Ext4Error, File, FileType, PathBuf};

use super::block_map::{self, BlockMap, BlockMapError};
use super::cache::Cache;
use super::error;
use super::reader::Reader;
use super::{MountError, superblock};
use crate::block::Disk;
use crate::fs::attributes::Metadata;
use crate::fs::content::Content;
use crate::fs::cpio::EntryKind;
use crate::fs::dir::DirEntry;
use crate::heap;
use crate::io::{Error, ErrorKind, Result};

/// Most entries of a directory that are listed.
const MOST_ENTRIES: usize = 65_536;
/// Memory that is left when the entries of a directory are listed: they grow to twice as many.
const LISTED_BYTES: u64 = 1 << 20;
/// Most links that a path leads through, and its longest form, bytes (as in Linux).
const MOST_LINKS: usize = 40;
const LONGEST_PATH: usize = 4096;
/// Most paths that are remembered, and the longest of them, bytes.
const REMEMBERED: usize = 128;
const REMEMBERED_BYTES: usize = 256;
/// Bytes read at once.
const CHUNK: usize = 64 * 1024;
/// Memory that files may take where the heap is not accounted: on the host.
const HOST_BYTES: u64 = 1 << 30;

const DAMAGED: Error = Error::new(ErrorKind::InvalidData, "the file system is damaged");
const UNREADABLE: Error = Error::new(ErrorKind::Other, "the disk cannot be read");
const NO_MEMORY: Error = Error::new(
    ErrorKind::ResourceBusy,
    "no memory for the file's content: give the machine more",
);

/// The file system, and what of it is in memory.
pub(super) struct Files {
    ext4: Ext4,
    reader: Reader,
    disk_bytes: u64,
    /// Bytes that files may take now.
    room: fn() -> u64,
    cache: Cache,
    /// Where paths lead that were resolved before.
    resolved: RefCell<BTreeMap<String, PathBuf>>,
}

impl Files {
    pub(super) fn mount(disk: &Disk, room: fn() -> u64) -> core::result::Result<Self, MountError> {
        let reader = Reader(disk.clone());
        let mut bytes = [0; superblock::LEN];
        let read = reader.fill(superblock::OFFSET, &mut bytes);
        read.map_err(|source| MountError::Read {
            disk: disk.to_string(),
            source,
        })?;
        let checked = superblock::check(&bytes, disk.bytes(), free_bytes());
        checked.map_err(|problem| MountError::Superblock {
            disk: disk.to_string(),
            problem,
        })?;
        let ext4 = Ext4::load(Box::new(reader));
        Ok(Self {
            ext4: ext4.map_err(|error| MountError::FileSystem {
                disk: disk.to_string(),
                reason: error.to_string(),
            })?,
            reader: Reader(disk.clone()),
            disk_bytes: disk.bytes(),
            room,
            cache: Cache::default(),
            resolved: RefCell::default(),
        })
    }

    pub(super) fn metadata(&self, path: &str) -> Result<Metadata> {
        let metadata = self.ext4.metadata(&self.resolve(path)?);
        Ok(convert(&metadata.map_err(|error| error::of(&error))?))
    }

    /// Where a path leads, without symbolic links. ext4-view follows links too, but takes the
    /// memory for what the inode says that a link holds: damage would end the image.
    fn resolve(&self, path: &str) -> Result<PathBuf> {
        if let Some(known) = self.resolved.borrow().get(path) {
            return Ok(known.clone());
        }
        let failed = |error: Ext4Error| error::of(&error);
        let mut whole = path.as_bytes().to_vec();
        let mut links = 0;
        // Everything before `at` is not a link.
        let mut at = 1;
        while at < whole.len() {
            let end = end_of_name(&whole, at);
            let so_far = PathBuf::try_from(&whole[..end]).map_err(|_| ErrorKind::NotFound)?;
            let metadata = self.ext4.symlink_metadata(&so_far).map_err(failed)?;
            if !metadata.is_symlink() {
                at = end + 1;
                continue;
            }
            links += 1;
            if links > MOST_LINKS {
                return Err(failed(Ext4Error::TooManySymlinks));
            }
            if metadata.len() > LONGEST_PATH as u64 {
                return Err(DAMAGED);
            }
            let target = self.ext4.read_link(&so_far).map_err(failed)?;
            let is_absolute = target.is_absolute();
            let from = if is_absolute { 0 } else { at };
            whole.splice(from..end, target.as_ref().iter().copied());
            if whole.len() > LONGEST_PATH {
                return Err(failed(Ext4Error::PathTooLong));
            }
            at = if is_absolute { 1 } else { at };
        }
        let whole = PathBuf::try_from(whole).map_err(|_| ErrorKind::NotFound)?;
        let found = self.ext4.canonicalize(&whole).map_err(failed)?;
        let mut resolved = self.resolved.borrow_mut();
        if path.len() <= REMEMBERED_BYTES {
            if resolved.len() == REMEMBERED {
                resolved.clear();
            }
            resolved.insert(path.to_string(), found.clone());
        }
        Ok(found)
    }

    pub(super) fn read(&mut self, path: &str) -> Result<(Content, Metadata)> {
        let path = self.resolve(path)?;
        let key = name(&path).ok_or(ErrorKind::NotFound)?;
        if let Some(cached) = self.cache.get(key) {
            return Ok(cached);
        }
        let (bytes, metadata) = self.load(&path)?;
        let content = Content::loaded(bytes);
        self.cache.put(key, &content, metadata);
        Ok((content, metadata))
    }

    fn load(&mut self, path: &PathBuf) -> Result<(Vec<u8>, Metadata)> {
        let failed = |error: Ext4Error| error::of(&error);
        let metadata = convert(&self.ext4.metadata(path).map_err(failed)?);
        metadata.kind.check_openable()?;
        // A file with holes may be longer than its disk, but not one to serve.
        if metadata.len > self.disk_bytes {
            return Err(DAMAGED);
        }
        let mut bytes = self.buffer(metadata.len)?;
        let mut file = self.ext4.open(path).map_err(failed)?;
        match read_whole(&mut file, &mut bytes) {
            Err(Ext4Error::Corrupt(damage)) => {
                let inode = block_map::inode(&file).ok_or(DAMAGED)?;
                let map = BlockMap::of(&self.reader, inode).map_err(|_| UNREADABLE)?;
                let Some(mut map) = map else {
                    return Err(error::of(&Ext4Error::Corrupt(damage)));
                };
                map.read(&mut bytes).map_err(|error| match error {
                    BlockMapError::Block(_) => DAMAGED,
                    BlockMapError::Disk(_) => UNREADABLE,
                })?;
            }
            read => read.map_err(failed)?,
        }
        Ok((bytes, metadata))
    }

    /// `len` zeroed bytes; other files make room for them.
    fn buffer(&mut self, len: u64) -> Result<Vec<u8>> {
        let wanted = usize::try_from(len).map_err(|_| NO_MEMORY)?;
        loop {
            let mut bytes = Vec::new();
            if len <= (self.room)() && bytes.try_reserve_exact(wanted).is_ok() {
                bytes.resize(wanted, 0);
                return Ok(bytes);
            }
            if !self.cache.evict() {
                return Err(NO_MEMORY);
            }
        }
    }

    pub(super) fn list(&self, path: &str) -> Result<Vec<DirEntry>> {
        let failed = |error: Ext4Error| error::of(&error);
        let mut entries = Vec::new();
        let directory = path.trim_matches('/');
        for entry in self.ext4.read_dir(&self.resolve(path)?).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let Ok(name) = entry.file_name().as_str() else {
                continue;
            };
            if name == "." || name == ".." {
                continue;
            }
            if entries.len() == MOST_ENTRIES {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    "the directory has too many entries",
                ));
            }
            let path = match directory {
                "" => name.to_string(),
                directory => format!("{directory}/{name}"),
            };
            if (self.room)() < LISTED_BYTES {
                return Err(NO_MEMORY);
            }
            entries.push(DirEntry {
                path: Cow::Owned(path),
                metadata: convert(&entry.metadata().map_err(failed)?),
            });
        }
        Ok(entries)
    }
}

/// Fills `bytes` with the file's first ones; a file that is shorter is damage.
fn read_whole(file: &mut File, bytes: &mut [u8]) -> core::result::Result<(), Ext4Error> {
    for chunk in bytes.chunks_mut(CHUNK) {
        let mut rest = chunk;
        while !rest.is_empty() {
            match file.read_bytes(rest)? {
                0 => return Err(Ext4Error::FileTooLarge),
                n => rest = rest.get_mut(n..).unwrap_or_default(),
            }
        }
    }
    Ok(())
}

/// Where the name ends that begins at `at`.
fn end_of_name(path: &[u8], at: usize) -> usize {
    let rest = path.iter().skip(at).position(|byte| *byte == b'/');
    rest.map_or(path.len(), |count| at + count)
}

fn name(path: &PathBuf) -> Option<&str> {
    path.to_str().ok()
}

fn convert(metadata: &ext4_view::Metadata) -> Metadata {
    Metadata {
        len: metadata.len(),
        modified_s: u64::try_from(metadata.modified().seconds()).unwrap_or(0),
        kind: match metadata.file_type() {
            FileType::Regular => EntryKind::File,
            FileType::Directory => EntryKind::Directory,
            _ => EntryKind::Other,
        },
    }
}

/// Memory that files may take now: a quarter of the heap stays for the rest.
pub(super) fn free_bytes() -> u64 {
    let heap = heap::stats();
    match heap.total {
        0 => HOST_BYTES,
        total => (total - total / 4).saturating_sub(heap.used),
    }
}
