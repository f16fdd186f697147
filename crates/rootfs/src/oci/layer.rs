//! One layer: its entries in order, and what it removes from those below.

use std::borrow::Cow;
use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use flate2::bufread::MultiGzDecoder;
use tar::EntryType;
use tare_program::names;

use super::ImageError;
use super::digest::Digest;
use super::limits::{Budget, CompressedReader, StreamReader};
use super::sparse::{self, Sparse};
use super::store::{GZIP, damaged};
use super::zstd::ZstdReader;
use crate::capability::Attributes;
use crate::left_out::LeftOut;
use crate::tree::{self, Content, EntryKind, Node};

const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Before the name of what is removed (OCI `layer.md`, "Whiteouts").
const WHITEOUT: &str = ".wh.";
/// Removes all entries of lower layers in its directory.
const OPAQUE: &str = ".wh..wh..opq";
/// Unit of tar archives, bytes.
const BLOCK: u64 = 512;
/// Bytes moved at a time.
const CHUNK: usize = 256 << 10;

/// A layer's changes to those below it.
#[derive(Debug, Default)]
pub(super) struct Layer {
    /// Entries to remove.
    pub(super) removed: Vec<String>,
    /// Directories to empty.
    pub(super) emptied: Vec<String>,
    /// Entries to add, in order.
    pub(super) added: Vec<(String, Added)>,
}

/// An entry of a layer.
#[derive(Debug)]
pub(super) enum Added {
    Node(Node),
    /// Another name of an entry.
    HardLink(String),
}

/// Unpacks layers: their contents go into one temporary file.
#[derive(Debug)]
pub(super) struct Unpacker<'a> {
    file: Arc<File>,
    at: u64,
    budget: &'a Budget,
    /// Entries that a guest cannot get.
    pub(super) left_out: LeftOut,
}

impl<'a> Unpacker<'a> {
    /// `file` is empty and gets the contents.
    pub(super) fn new(budget: &'a Budget, file: File) -> Self {
        Self {
            file: Arc::new(file),
            at: 0,
            budget,
            left_out: LeftOut::default(),
        }
    }

    /// Reads a layer to its end. `unpacked` is the digest of its plain bytes: archives of docker
    /// have no other (`diff_ids` in the image's configuration).
    pub(super) fn layer(
        &mut self,
        name: &str,
        part: impl Read,
        unpacked: Option<&Digest>,
    ) -> Result<Layer, ImageError> {
        let budget = self.budget;
        let part = CompressedReader { from: part, budget };
        let read = decompress(name, BufReader::with_capacity(CHUNK, part)).and_then(|plain| {
            let from = StreamReader {
                from: plain,
                budget,
            };
            match unpacked {
                None => self.entries(name, from),
                Some(digest) => self.checked_entries(name, from, digest),
            }
        });
        // The archive's reader reports an exceeded limit as damage.
        read.map_err(|error| budget.exceeded().map_or(error, ImageError::Limit))
    }

    fn checked_entries(
        &mut self,
        name: &str,
        plain: impl Read,
        digest: &Digest,
    ) -> Result<Layer, ImageError> {
        let mut plain = digest.comparing(plain);
        let layer = self.entries(name, &mut plain)?;
        // What follows the archive's end does not count as an entry's header.
        self.budget.end_header();
        if plain.matches().map_err(damaged(name))? {
            Ok(layer)
        } else {
            Err(ImageError::Digest(name.to_owned()))
        }
    }

    fn entries(&mut self, name: &str, plain: impl Read) -> Result<Layer, ImageError> {
        let mut layer = Layer::default();
        let given = Cell::new(0);
        let mut archive = tar::Archive::new(Padded {
            from: plain,
            given: &given,
            padding: 0,
        });
        let mut entries = archive.entries().map_err(damaged(name))?;
        loop {
            self.budget.begin_header();
            let Some(entry) = entries.next() else {
                return Ok(layer);
            };
            let mut entry = entry.map_err(damaged(name))?;
            self.budget.end_header();
            self.budget.take_entry()?;
            self.entry(&mut layer, &mut entry, name)?;
            // What is left of it must not count as the next entry's headers.
            self.content(&mut entry, name, |_, _| Ok(()))?;
            let kind = entry.header().entry_type();
            let is_file = matches!(kind, EntryType::Regular | EntryType::Continuous);
            if is_file && entry.raw_file_position() + entry.size() > given.get() {
                return Err(damaged(name)(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    fn entry(
        &mut self,
        layer: &mut Layer,
        entry: &mut tar::Entry<'_, impl Read>,
        name: &str,
    ) -> Result<(), ImageError> {
        let sparse = Sparse::of(entry).map_err(damaged(name))?;
        let own = sparse.as_ref().and_then(|sparse| sparse.name.clone());
        let raw = own
            .map_or_else(|| entry.path_bytes(), Cow::Owned)
            .into_owned();
        let Some(path) = relative_name(&names::text(raw), name)? else {
            return Ok(());
        };
        if layer.note_whiteout(&path) {
            return Ok(());
        }
        let added = self.node(&path, entry, sparse.as_ref(), name)?;
        layer.added.extend(added.map(|added| (path, added)));
        Ok(())
    }

    fn node(
        &mut self,
        path: &str,
        entry: &mut tar::Entry<'_, impl Read>,
        sparse: Option<&Sparse>,
        layer: &str,
    ) -> Result<Option<Added>, ImageError> {
        let kind = match (entry.header().entry_type(), sparse) {
            (EntryType::Directory, _) => EntryKind::Directory,
            (EntryType::Regular, Some(sparse)) => {
                EntryKind::File(self.keep_sparse(entry, sparse, layer)?)
            }
            (EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse, _) => {
                EntryKind::File(self.keep(entry, layer)?)
            }
            (EntryType::Symlink | EntryType::Link, _) => {
                let target = entry.link_name_bytes().unwrap_or_default();
                let target = names::text(target.into_owned());
                if entry.header().entry_type() == EntryType::Link {
                    return Ok(relative_name(&target, layer)?.map(Added::HardLink));
                }
                checked(&target, layer)?;
                EntryKind::Link(target)
            }
            (EntryType::Block | EntryType::Char, _) => {
                self.left_out.add(path, "it is a device");
                return Ok(None);
            }
            (EntryType::Fifo, _) => EntryKind::Pipe,
            // Extensions of the archive's own, such as a global header.
            _ => return Ok(None),
        };
        let attributes = attributes(entry);
        if let Some(loss) = attributes.loss() {
            self.left_out.add_part(path, &loss);
        }
        let header = entry.header();
        let number = |value: io::Result<u64>| value.map_err(damaged(layer)).map(saturating);
        let is_file = matches!(kind, EntryKind::File(_));
        let node = Node {
            kind,
            permissions: header.mode().map_err(damaged(layer))? & 0o7777,
            uid: number(header.uid())?,
            gid: number(header.gid())?,
            modified_s: header.mtime().map(saturating).unwrap_or(0),
            links: None,
            capability: attributes.capability.filter(|_| is_file),
        };
        Ok(Some(Added::Node(node)))
    }

    /// Copies a file's content, holes and all.
    fn keep(
        &mut self,
        from: &mut tar::Entry<'_, impl Read>,
        layer: &str,
    ) -> Result<Content, ImageError> {
        let offset = self.at;
        self.append(from, layer)?;
        Ok(self.part(offset))
    }

    /// The same of a sparse file, whose content begins with its map.
    fn keep_sparse(
        &mut self,
        from: &mut tar::Entry<'_, impl Read>,
        sparse: &Sparse,
        layer: &str,
    ) -> Result<Content, ImageError> {
        let offset = self.at;
        let mut pieces = sparse::map(from).map_err(damaged(layer))?;
        // The hole at its end, if it ends with one.
        pieces.push(sparse.bytes..sparse.bytes);
        for piece in pieces {
            let bad = || damaged(layer)(io::ErrorKind::InvalidData.into());
            let hole = piece.start.checked_sub(self.at - offset).ok_or_else(bad)?;
            self.append(&mut io::repeat(0).take(hole), layer)?;
            self.append(&mut from.take(piece.end - piece.start), layer)?;
            if self.at - offset != piece.end {
                return Err(damaged(layer)(io::ErrorKind::UnexpectedEof.into()));
            }
        }
        Ok(self.part(offset))
    }

    fn append(&mut self, from: &mut impl Read, layer: &str) -> Result<(), ImageError> {
        self.content(from, layer, |this, bytes| {
            this.file
                .write_all_at(bytes, this.at)
                .map_err(ImageError::Spool)?;
            this.at += bytes.len() as u64;
            Ok(())
        })
    }

    /// What was appended from `offset` on.
    fn part(&self, offset: u64) -> Content {
        Content::Part {
            file: Arc::clone(&self.file),
            offset,
            bytes: self.at - offset,
        }
    }

    /// Reads the rest of an entry's content, counted before it is used.
    fn content(
        &mut self,
        from: &mut impl Read,
        layer: &str,
        mut use_it: impl FnMut(&mut Self, &[u8]) -> Result<(), ImageError>,
    ) -> Result<(), ImageError> {
        let mut chunk = vec![0; CHUNK];
        loop {
            let n = from.read(&mut chunk).map_err(damaged(layer))?;
            if n == 0 {
                return Ok(());
            }
            self.budget.take_content(n as u64)?;
            use_it(self, &chunk[..n])?;
        }
    }
}

/// Extended attributes of an entry, as its archive's headers have them.
fn attributes(entry: &mut tar::Entry<'_, impl Read>) -> Attributes {
    let mut attributes = Attributes::default();
    let Ok(Some(headers)) = entry.pax_extensions() else {
        return attributes;
    };
    for header in headers {
        match header {
            Ok(header) => {
                let name = header.key_bytes().strip_prefix(b"SCHILY.xattr.");
                if let Some(name) = name {
                    attributes.add(&String::from_utf8_lossy(name), header.value_bytes());
                }
            }
            // Its reader splits at line ends, which a value may contain.
            Err(_) => attributes.add("of a header that cannot be read", &[]),
        }
    }
    attributes
}

fn decompress<'a>(
    name: &str,
    mut part: impl io::BufRead + 'a,
) -> Result<Box<dyn Read + 'a>, ImageError> {
    let begin = part.fill_buf().map_err(damaged(name))?;
    Ok(match begin {
        begin if begin.starts_with(&GZIP) => Box::new(MultiGzDecoder::new(part)),
        begin if begin.starts_with(&ZSTD) => Box::new(ZstdReader::new(part)),
        _ => Box::new(part),
    })
}

impl Layer {
    /// Notes a whiteout; `false` for any other entry.
    fn note_whiteout(&mut self, path: &str) -> bool {
        let (directory, file) = path.rsplit_once('/').unwrap_or(("", path));
        if file == OPAQUE {
            self.emptied.push(directory.to_owned());
            return true;
        }
        let Some(gone) = file.strip_prefix(WHITEOUT) else {
            return false;
        };
        self.removed.push(match directory {
            "" => gone.to_owned(),
            _ => format!("{directory}/{gone}"),
        });
        true
    }
}

fn saturating(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// A name relative to the root; `None` for the root itself.
pub(super) fn relative_name(path: &str, layer: &str) -> Result<Option<String>, ImageError> {
    let parts: Vec<&str> = path
        .split('/')
        .filter(|part| !matches!(*part, "" | "."))
        .collect();
    if parts.contains(&"..") {
        return Err(ImageError::Climbs {
            layer: layer.to_owned(),
            entry: path.to_owned(),
        });
    }
    let name = parts.join("/");
    checked(&name, layer)?;
    Ok(Some(name).filter(|name| !name.is_empty()))
}

/// Refuses a name or target that is longer than Linux allows.
fn checked(name: &str, layer: &str) -> Result<(), ImageError> {
    tree::check_length(name).map_err(|source| ImageError::Name {
        layer: layer.to_owned(),
        source,
    })
}

/// Fills the last block of an archive, which some builders of images (umoci insert)
/// leave short, as docker and skopeo accept it too. The padding does not count as `given`.
struct Padded<'a, R> {
    from: R,
    given: &'a Cell<u64>,
    padding: u64,
}

impl<R: Read> Read for Padded<'_, R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let n = self.from.read(to)?;
        let given = self.given.get() + n as u64;
        self.given.set(given);
        if n > 0 || to.is_empty() {
            return Ok(n);
        }
        let missing = given.next_multiple_of(BLOCK) - given - self.padding;
        let n = to.len().min(missing as usize);
        to[..n].fill(0);
        self.padding += n as u64;
        Ok(n)
    }
}
