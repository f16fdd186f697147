//! One layer: its entries in order, and what it removes from those below.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use flate2::bufread::MultiGzDecoder;
use tar::EntryType;

use super::ImageError;
use super::store::damaged;
use super::zstd::ZstdReader;
use crate::tree::{Content, Kind, Node};

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Before the name of what is removed (OCI `layer.md`, "Whiteouts").
const WHITEOUT: &str = ".wh.";
/// All that is in its directory is removed.
const OPAQUE: &str = ".wh..wh..opq";
/// What tar archives are made of, bytes.
const BLOCK: u64 = 512;
/// Bytes moved at a time.
const CHUNK: usize = 256 << 10;

/// What a layer does to those below it.
#[derive(Debug, Default)]
pub(super) struct Layer {
    /// Entries that go.
    pub(super) removed: Vec<String>,
    /// Directories that become empty.
    pub(super) emptied: Vec<String>,
    /// Entries that come, in order.
    pub(super) added: Vec<(String, Added)>,
}

/// An entry of a layer.
#[derive(Debug)]
pub(super) enum Added {
    Node(Node),
    /// Another name of an entry.
    HardLink(String),
}

/// Where contents go, and how much more may.
#[derive(Debug)]
pub(super) struct Spool {
    file: Arc<File>,
    at: u64,
    limit_bytes: u64,
    /// Bytes that layers may still have, contents, headers and all.
    left: u64,
}

impl Spool {
    pub(super) fn new(limit_bytes: u64) -> Result<Self, ImageError> {
        let file = tempfile::tempfile().map_err(ImageError::Spool)?;
        Ok(Self {
            file: Arc::new(file),
            at: 0,
            limit_bytes,
            left: limit_bytes,
        })
    }

    fn too_large(&self) -> ImageError {
        ImageError::TooLarge {
            limit_bytes: self.limit_bytes,
        }
    }

    /// Copies a file's content.
    fn keep(&mut self, from: &mut impl Read, name: &str) -> Result<Content, ImageError> {
        let offset = self.at;
        let mut chunk = vec![0; CHUNK];
        loop {
            let n = from.read(&mut chunk).map_err(damaged(name))?;
            if n == 0 {
                break;
            }
            self.file
                .write_all_at(&chunk[..n], self.at)
                .map_err(ImageError::Spool)?;
            self.at += n as u64;
        }
        Ok(Content::Part {
            file: Arc::clone(&self.file),
            offset,
            bytes: self.at - offset,
        })
    }
}

/// Reads a layer to its end.
pub(super) fn read(name: &str, part: impl Read, spool: &mut Spool) -> Result<Layer, ImageError> {
    let plain = decompress(name, BufReader::with_capacity(CHUNK, part))?;
    let left = Cell::new(spool.left);
    let outcome = entries(
        name,
        Bounded {
            from: plain,
            left: &left,
        },
        spool,
    );
    spool.left = left.get();
    match outcome {
        // Whatever failed, failed for want of room.
        Err(_) if spool.left == 0 => Err(spool.too_large()),
        other => other,
    }
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

fn entries(name: &str, plain: impl Read, spool: &mut Spool) -> Result<Layer, ImageError> {
    let mut layer = Layer::default();
    let given = Cell::new(0);
    let mut archive = tar::Archive::new(Padded {
        from: plain,
        given: &given,
        padding: 0,
    });
    for entry in archive.entries().map_err(damaged(name))? {
        let mut entry = entry.map_err(damaged(name))?;
        let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let Some(path) = inside(&path, name)? else {
            continue;
        };
        if !layer.note_whiteout(&path) {
            layer.add(path, &mut entry, name, spool)?;
        }
        let is_file = entry.header().entry_type() == EntryType::Regular;
        if is_file && entry.raw_file_position() + entry.size() > given.get() {
            return Err(damaged(name)(io::ErrorKind::UnexpectedEof.into()));
        }
    }
    Ok(layer)
}

impl Layer {
    /// Whether the entry only says what goes.
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

    fn add(
        &mut self,
        path: String,
        entry: &mut tar::Entry<'_, impl Read>,
        layer: &str,
        spool: &mut Spool,
    ) -> Result<(), ImageError> {
        let target = entry
            .link_name_bytes()
            .map(|target| String::from_utf8_lossy(&target).into_owned())
            .unwrap_or_default();
        let kind = match entry.header().entry_type() {
            EntryType::Directory => Kind::Directory,
            EntryType::Symlink => Kind::Link(target),
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                Kind::File(spool.keep(entry, layer)?)
            }
            EntryType::Link => {
                if let Some(target) = inside(&target, layer)? {
                    self.added.push((path, Added::HardLink(target)));
                }
                return Ok(());
            }
            // Devices are the guest kernel's; pipes are nobody's.
            _ => return Ok(()),
        };
        let header = entry.header();
        let number = |value: io::Result<u64>| value.map_err(damaged(layer)).map(saturating);
        let node = Node {
            kind,
            permissions: header.mode().map_err(damaged(layer))? & 0o7777,
            uid: number(header.uid())?,
            gid: number(header.gid())?,
            modified_s: header.mtime().map(saturating).unwrap_or(0),
        };
        self.added.push((path, Added::Node(node)));
        Ok(())
    }
}

fn saturating(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// A name relative to the root; `None` for the root itself.
fn inside(path: &str, layer: &str) -> Result<Option<String>, ImageError> {
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
    Ok(Some(parts.join("/")).filter(|name| !name.is_empty()))
}

/// Fills the last block of an archive, which some builders of images (umoci insert)
/// leave short, as docker and skopeo read it too. What it made up is not `given`.
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

/// Gives up at a number of bytes: a small layer can unpack to any size.
struct Bounded<'a, R> {
    from: R,
    left: &'a Cell<u64>,
}

impl<R: Read> Read for Bounded<'_, R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let n = self.from.read(to)?;
        match self.left.get().checked_sub(n as u64) {
            Some(left) if left > 0 => {
                self.left.set(left);
                Ok(n)
            }
            _ => {
                self.left.set(0);
                Err(io::Error::other("it is too large"))
            }
        }
    }
}
