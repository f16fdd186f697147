//! A tree as a newc cpio archive, which Linux and the library OS take as their
//! initramfs (Linux `Documentation/driver-api/early-userspace/buffer-format.rst`).
//!
//! The same tree gives the same bytes.

mod newc;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufWriter, Read as _, Write};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use tare_init::END_FILE;
use tare_program::names;

use self::newc::{HEADER, Header, TRAILER, pad};

use crate::host_file::OpenError;
use crate::quote::quoted;
use crate::tree::{Content, EntryKind, LinkGroup, Node, Tree};

/// Bytes moved at a time.
const CHUNK: usize = 256 * 1024;
/// Bytes of a page.
const PAGE: u64 = 4096;

/// Why a tree cannot be packed.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// A file cannot be read.
    #[error("cannot read {}", quoted(&path.to_string_lossy()))]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file became shorter or longer while it was read.
    #[error("{} changed while it was being packed", quoted(&.0.to_string_lossy()))]
    Changed(PathBuf),
    /// A file of 4 GiB or more.
    #[error("{} is too large for an initramfs (limit: 4 GiB); use a disk", quoted(.0))]
    FileTooLarge(String),
    /// The archive cannot be written.
    #[error("cannot write the packed root directory")]
    Write(#[source] io::Error),
}

/// Where the content of files is in an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Behind their names: for Linux, and any image of the library OS. Names and targets are the bytes that
    /// their texts stand for.
    Compact,
    /// For the image that runs programs, which maps files where they are: the content of files of a page and
    /// more begins at multiples of a page, behind all names, so that whoever reads the names reads few
    /// pages. Such a file has no content behind its name, and in the numbers that devices have (`rdev`)
    /// the page of the archive at which its content begins, and its bytes. Entries without a name, which
    /// mean no path, hold the contents and fill gaps. Names and targets are texts, as that image
    /// has them.
    Pages,
}

impl Layout {
    /// A name or target as the archive has it.
    fn raw(self, text: &str) -> Cow<'_, [u8]> {
        match self {
            Self::Compact => names::bytes(text),
            Self::Pages => Cow::Borrowed(text.as_bytes()),
        }
    }
}

/// Packs into a sealed memory file, uncompressed: the fastest to unpack.
pub fn pack(tree: &Tree) -> Result<File, PackError> {
    pack_as(tree, Layout::Compact)
}

/// [`pack`] in a layout.
pub fn pack_as(tree: &Tree, layout: Layout) -> Result<File, PackError> {
    let write = |errno: rustix::io::Errno| PackError::Write(errno.into());
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = File::from(memfd_create("tare-root", flags).map_err(write)?);
    archive_as(tree, layout, &file)?;
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    fcntl_add_seals(&file, seals).map_err(write)?;
    Ok(file)
}

/// Writes the archive.
pub fn archive(tree: &Tree, to: impl Write) -> Result<(), PackError> {
    archive_as(tree, Layout::Compact, to)
}

/// Writes the archive in a layout.
pub(crate) fn archive_as(tree: &Tree, layout: Layout, to: impl Write) -> Result<(), PackError> {
    let mut to = BufWriter::with_capacity(CHUNK, to);
    let mut entries = entries(tree, layout);
    let names_end = entries.iter().map(Entry::bytes).sum();
    let contents = Contents::place(&mut entries, names_end)?;
    for entry in &entries {
        entry.append(layout, &mut to)?;
    }
    contents.append(&entries, &mut to)?;
    newc::trailer(&mut to)
        .and_then(|()| to.flush())
        .map_err(PackError::Write)
}

/// An entry of an archive to be.
struct Entry<'a> {
    name: &'a str,
    node: &'a Node,
    inode: u32,
    links: u32,
    data: Data,
}

/// Where a file's content is in the archive.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Data {
    /// With this entry.
    Here,
    /// With an earlier entry of the same inode.
    Earlier,
    /// Behind all names, from this page of the archive on.
    At { page: u32 },
}

/// All entries, in the archive's order.
fn entries(tree: &Tree, layout: Layout) -> Vec<Entry<'_>> {
    let groups = link_counts(tree);
    let mut inodes = HashMap::new();
    // By its presence the first process sees that all others were unpacked.
    let is_end = |(name, _): &(&str, &Node)| *name == END_FILE;
    let others = tree.entries().filter(|entry| !is_end(entry));
    let ordered = others.chain(tree.entries().filter(is_end));
    let mut all = Vec::with_capacity(tree.len());
    for (index, (name, node)) in ordered.enumerate() {
        // The kernel takes an inode number of 0 for a name without content.
        let own = u32::try_from(index + 1).unwrap_or(u32::MAX);
        let (inode, links) = match node.links {
            Some(group) => (*inodes.entry(group).or_insert(own), groups[&group]),
            None => (own, 1),
        };
        // The first name of a file carries its data (Linux `init/initramfs.c`, maybe_link).
        let data = match &node.kind {
            _ if inode != own => Data::Earlier,
            EntryKind::File(content) if layout == Layout::Pages && content.len() >= PAGE => {
                Data::At { page: 0 }
            }
            _ => Data::Here,
        };
        all.push(Entry {
            name,
            node,
            inode,
            links,
            data,
        });
    }
    all
}

/// The contents that are behind all names: one entry without a name, which begins at a page.
struct Contents {
    /// Bytes before it, which bring it there.
    gap: u64,
    bytes: u64,
}

impl Contents {
    /// Gives each content its page. The names end at `names_end`.
    fn place(entries: &mut [Entry<'_>], names_end: u64) -> Result<Self, PackError> {
        let gap = gap(names_end + FILLER);
        let start = names_end + gap + FILLER;
        let mut at = start;
        for entry in entries {
            if let Data::At { page } = &mut entry.data {
                let too_large = |_| PackError::FileTooLarge(entry.name.to_owned());
                *page = u32::try_from(at / PAGE).map_err(too_large)?;
                at += content_bytes(entry.node).next_multiple_of(PAGE);
                // The entry that holds all of them is one.
                u32::try_from(at - start).map_err(too_large)?;
            }
        }
        Ok(Self {
            gap,
            bytes: at - start,
        })
    }

    fn append(&self, entries: &[Entry<'_>], to: &mut impl Write) -> Result<(), PackError> {
        if self.bytes == 0 {
            return Ok(());
        }
        fill(self.gap, to)?;
        let header = Header::nameless(self.bytes as u32);
        header.write(b"", to).map_err(PackError::Write)?;
        for entry in entries {
            let (Data::At { .. }, EntryKind::File(content)) = (entry.data, &entry.node.kind) else {
                continue;
            };
            copy(content, to)?;
            let behind = content.len().next_multiple_of(PAGE) - content.len();
            to.write_all(&ZEROS[..behind as usize])
                .map_err(PackError::Write)?;
        }
        Ok(())
    }
}

/// Behind the last byte of a content.
const ZEROS: [u8; PAGE as usize] = [0; PAGE as usize];

/// Bytes that an entry without a name takes at least.
const FILLER: u64 = (HEADER + 1).next_multiple_of(4);

/// Bytes of an entry that brings what would be at `at` to a multiple of a page; 0 for none.
fn gap(at: u64) -> u64 {
    match at.next_multiple_of(PAGE) - at {
        gap @ 1..FILLER => gap + PAGE,
        gap => gap,
    }
}

/// Writes an entry of this many bytes that means nothing.
fn fill(bytes: u64, to: &mut impl Write) -> Result<(), PackError> {
    let Some(zeros) = bytes.checked_sub(FILLER) else {
        return Ok(());
    };
    let header = Header::nameless(zeros as u32);
    header
        .write(b"", to)
        .and_then(|()| to.write_all(&vec![0; zeros as usize]))
        .map_err(PackError::Write)
}

/// Names of each file that has several.
fn link_counts(tree: &Tree) -> HashMap<LinkGroup, u32> {
    let mut counts = HashMap::new();
    for group in tree.entries().filter_map(|(_, node)| node.links) {
        *counts.entry(group).or_insert(0) += 1;
    }
    counts
}

/// Bytes of the archive of a tree, before compression. At most: texts of names that are not UTF-8 are
/// longer than their bytes, also below.
pub(crate) fn archive_bytes(tree: &Tree) -> u64 {
    let mut seen = HashSet::new();
    let entries = tree.entries().map(|(name, node)| match node.links {
        Some(group) if !seen.insert(group) => name_bytes(name),
        _ => entry_bytes(name, node),
    });
    entries.fold(trailer_bytes(), u64::saturating_add)
}

/// Bytes of one entry in the archive.
pub fn entry_bytes(name: &str, node: &Node) -> u64 {
    let content = content_bytes(node).checked_next_multiple_of(4);
    content.unwrap_or(u64::MAX).saturating_add(name_bytes(name))
}

fn content_bytes(node: &Node) -> u64 {
    match &node.kind {
        EntryKind::Directory | EntryKind::Pipe => 0,
        EntryKind::File(content) => content.len(),
        EntryKind::Link(target) => target.len() as u64,
    }
}

/// Bytes of the archive's end.
pub(crate) fn trailer_bytes() -> u64 {
    name_bytes(TRAILER)
}

/// A header and a name with its NUL.
pub(crate) fn name_bytes(name: &str) -> u64 {
    (HEADER + name.len() as u64 + 1).next_multiple_of(4)
}

impl Entry<'_> {
    /// Bytes of it among the names.
    fn bytes(&self) -> u64 {
        match self.data {
            Data::Here => entry_bytes(self.name, self.node),
            Data::Earlier | Data::At { .. } => name_bytes(self.name),
        }
    }

    fn append(&self, layout: Layout, to: &mut impl Write) -> Result<(), PackError> {
        let target = match &self.node.kind {
            EntryKind::Link(target) => Some(layout.raw(target)),
            EntryKind::Directory | EntryKind::File(_) | EntryKind::Pipe => None,
        };
        let bytes = match &target {
            Some(target) => target.len() as u64,
            None => content_bytes(self.node),
        };
        let too_large = |_| PackError::FileTooLarge(self.name.to_owned());
        let bytes = u32::try_from(bytes).map_err(too_large)?;
        let links = match &self.node.kind {
            EntryKind::Directory => 2,
            EntryKind::File(_) => self.links,
            EntryKind::Link(_) | EntryKind::Pipe => 1,
        };
        let is_here = self.data == Data::Here;
        let header = Header {
            inode: self.inode,
            mode: self.node.mode(),
            uid: self.node.uid,
            gid: self.node.gid,
            links,
            modified_s: self.node.modified_s,
            bytes: if is_here { bytes } else { 0 },
            rdev: match self.data {
                Data::At { page } => (page, bytes),
                Data::Here | Data::Earlier => (0, 0),
            },
        };
        let name = layout.raw(self.name);
        header.write(&name, to).map_err(PackError::Write)?;
        match (&self.node.kind, target) {
            (EntryKind::File(content), _) if is_here => copy(content, to)?,
            (_, Some(target)) => to.write_all(&target).map_err(PackError::Write)?,
            _ => {}
        }
        pad(header.bytes.into(), to).map_err(PackError::Write)
    }
}

/// Copies exactly as many bytes as the tree promises.
pub(crate) fn copy(content: &Content, to: &mut impl Write) -> Result<(), PackError> {
    match content {
        Content::Bytes(bytes) => to.write_all(bytes).map_err(PackError::Write),
        Content::Part {
            file,
            offset,
            bytes,
        } => copy_part(file, *offset, *bytes, Path::new("the unpacked image"), to),
        Content::Host(listed) => {
            let path = listed.path();
            let file = listed.open().map_err(|error| match error {
                OpenError::Changed => PackError::Changed(path.clone()),
                OpenError::Open(source) => PackError::Read {
                    path: path.clone(),
                    source,
                },
            })?;
            copy_part(&file, 0, listed.len(), &path, to)
        }
    }
}

fn copy_part(
    file: &File,
    offset: u64,
    bytes: u64,
    path: &Path,
    to: &mut impl Write,
) -> Result<(), PackError> {
    let mut part = Part { file, offset }.take(bytes);
    let mut chunk = vec![0; CHUNK.min(usize::try_from(bytes).unwrap_or(CHUNK))];
    let mut left = bytes;
    while left > 0 {
        match part.read(&mut chunk) {
            Ok(0) => return Err(PackError::Changed(path.to_owned())),
            Ok(n) => {
                to.write_all(&chunk[..n]).map_err(PackError::Write)?;
                left -= n as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => {
                return Err(PackError::Read {
                    path: path.to_owned(),
                    source,
                });
            }
        }
    }
    Ok(())
}

/// Reads at its own place, so that a file can be shared.
pub(crate) struct Part<'a> {
    pub(crate) file: &'a File,
    pub(crate) offset: u64,
}

impl io::Read for Part<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read_at(to, self.offset)?;
        self.offset += n as u64;
        Ok(n)
    }
}

#[cfg(test)]
mod tests;
