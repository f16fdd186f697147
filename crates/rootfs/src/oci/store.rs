//! The parts of an image by name: files of a directory, or parts of an archive.

use std::cell::Cell;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write as _};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use flate2::bufread::MultiGzDecoder;

use super::ImageError;
use super::digest::Digest;
use super::limits::{LimitError, Limits, MAX_HEADER_BYTES};
use crate::host_file::RootDir;

/// How a stream of gzip begins.
pub(super) const GZIP: [u8; 2] = [0x1f, 0x8b];
/// Largest document, such as a manifest.
const MAX_DOCUMENT_BYTES: u64 = 4 << 20;
/// Parts of a compressed archive besides layers.
const OTHER_PARTS_BYTES: u64 = 16 << 20;
/// Most parts of an archive: a layer has three at most.
const MAX_PARTS: usize = 10_000;

/// Where an image is, open.
#[derive(Debug)]
pub(super) enum Source {
    Directory(RootDir),
    Archive(File),
}

impl Source {
    pub(super) fn open(path: &Path) -> Result<Self, ImageError> {
        let opened = if path.is_dir() {
            RootDir::open(path).map(Self::Directory)
        } else {
            File::open(path).map(Self::Archive)
        };
        opened.map_err(|source| ImageError::Open {
            path: path.to_owned(),
            source,
        })
    }

    pub(super) fn directory(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Directory(directory) => Some(directory.as_fd()),
            Self::Archive(_) => None,
        }
    }
}

/// An open image whose parts are known.
#[derive(Debug)]
pub(super) enum Store {
    Directory(RootDir),
    Archive {
        file: Arc<File>,
        /// Offset and size.
        parts: HashMap<String, (u64, u64)>,
    },
}

impl Store {
    /// `plain` is empty and gets an archive that is compressed.
    pub(super) fn of(source: Source, plain: File, limits: Limits) -> Result<Self, ImageError> {
        let file = match source {
            Source::Directory(directory) => return Ok(Self::Directory(directory)),
            Source::Archive(file) => file,
        };
        let mut begin = [0; GZIP.len()];
        if matches!(file.read_exact_at(&mut begin, 0), Ok(()) if begin == GZIP) {
            return Self::archive(decompressed(file, plain, limits)?);
        }
        Self::archive(file)
    }

    pub(super) fn archive(file: File) -> Result<Self, ImageError> {
        let file = Arc::new(file);
        let part = Part {
            file: Arc::clone(&file),
            at: 0,
            end: u64::MAX,
        };
        let parts = list(part).map_err(|source| ImageError::Damaged {
            part: "its archive".to_owned(),
            source: source.into(),
        })?;
        Ok(Self::Archive { file, parts })
    }

    /// Whether there is such a part.
    pub(super) fn has(&self, name: &str) -> bool {
        self.part(name).is_ok()
    }

    /// A small document.
    pub(super) fn document(&self, name: &str) -> Result<Vec<u8>, ImageError> {
        let mut bytes = Vec::new();
        self.part(name)?
            .take(MAX_DOCUMENT_BYTES)
            .read_to_end(&mut bytes)
            .map_err(damaged(name))?;
        Ok(bytes)
    }

    /// A small document that must be what its digest says.
    pub(super) fn checked_document(&self, digest: &Digest) -> Result<Vec<u8>, ImageError> {
        let name = digest.path();
        let bytes = self.document(&name)?;
        match digest.matches(bytes.as_slice()) {
            Ok(true) => Ok(bytes),
            _ => Err(ImageError::Digest(name)),
        }
    }

    /// Checks a part of any size against its digest.
    pub(super) fn check(&self, digest: &Digest) -> Result<(), ImageError> {
        let name = digest.path();
        let matches = digest.matches(self.part(&name)?).map_err(damaged(&name))?;
        matches.then_some(()).ok_or(ImageError::Digest(name))
    }

    /// A part's bytes. Names of a directory's parts never leave it: they are
    /// fixed, or made of a digest's digits.
    pub(super) fn part(&self, name: &str) -> Result<Part, ImageError> {
        let missing = || ImageError::Missing(name.to_owned());
        match self {
            Self::Directory(dir) => {
                let file = dir
                    .open_through_links(name.as_ref())
                    .map_err(|_| missing())?;
                let metadata = file.metadata().map_err(|_| missing())?;
                metadata.is_file().then_some(()).ok_or_else(missing)?;
                Ok(Part {
                    end: metadata.len(),
                    file: Arc::new(file),
                    at: 0,
                })
            }
            Self::Archive { file, parts } => {
                let (at, bytes) = *parts.get(name).ok_or_else(missing)?;
                Ok(Part {
                    file: Arc::clone(file),
                    at,
                    end: at.saturating_add(bytes),
                })
            }
        }
    }
}

/// A compressed archive (`docker save | gzip`), written to `plain`.
fn decompressed(file: File, mut plain: File, limits: Limits) -> Result<File, ImageError> {
    // The layers and little else; each is counted again as it is unpacked.
    let limit_bytes = limits.bytes.saturating_add(OTHER_PARTS_BYTES);
    let mut from = MultiGzDecoder::new(BufReader::new(file)).take(limit_bytes + 1);
    let mut chunk = vec![0; 256 << 10];
    let mut bytes = 0;
    loop {
        let n = from.read(&mut chunk).map_err(damaged("its archive"))?;
        bytes += n as u64;
        if bytes > limit_bytes {
            return Err(LimitError::Bytes { limit_bytes }.into());
        }
        if n == 0 {
            return Ok(plain);
        }
        plain.write_all(&chunk[..n]).map_err(ImageError::Spool)?;
    }
}

/// Whether a directory is an OCI layout.
pub(super) fn is_layout(dir: &Path) -> bool {
    let has = |name| fs::metadata(dir.join(name)).is_ok_and(|it: fs::Metadata| it.is_file());
    has("oci-layout") && has("index.json")
}

pub(super) fn damaged(part: &str) -> impl FnOnce(io::Error) -> ImageError {
    let part = part.to_owned();
    move |source| ImageError::Damaged {
        part,
        source: source.into(),
    }
}

/// The regular files of an archive, and links among them, as docker writes for
/// layers that are there twice.
fn list(part: Part) -> io::Result<HashMap<String, (u64, u64)>> {
    let mut parts = HashMap::new();
    let left = Cell::new(0);
    let mut archive = tar::Archive::new(HeaderReader { part, left: &left });
    let mut entries = archive.entries_with_seek()?;
    for _ in 0..=MAX_PARTS {
        left.set(MAX_HEADER_BYTES);
        let Some(entry) = entries.next() else {
            return Ok(parts);
        };
        let entry = entry?;
        let name = entry
            .path()?
            .to_string_lossy()
            .into_owned()
            .trim_start_matches("./")
            .to_owned();
        let kind = entry.header().entry_type();
        let place = match entry.link_name()? {
            Some(target) if kind.is_symlink() || kind.is_hard_link() => {
                let target = beside(&name, &target.to_string_lossy(), kind.is_symlink());
                parts.get(&target).copied()
            }
            _ => kind
                .is_file()
                .then(|| (entry.raw_file_position(), entry.size())),
        };
        parts.extend(place.map(|place| (name, place)));
    }
    Err(io::Error::other(format!(
        "it has more than {MAX_PARTS} files"
    )))
}

/// Reads headers of the archive; files are skipped by seeking, so whatever is
/// read belongs to headers, whose names could fill the memory.
struct HeaderReader<'a> {
    part: Part,
    left: &'a Cell<u64>,
}

impl Read for HeaderReader<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let n = self.part.read(to)?;
        let left = self.left.get().checked_sub(n as u64).ok_or_else(|| {
            io::Error::other(format!(
                "the headers of a file are larger than {} KiB",
                MAX_HEADER_BYTES >> 10
            ))
        })?;
        self.left.set(left);
        Ok(n)
    }
}

impl Seek for HeaderReader<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.part.at.checked_add_signed(by),
            SeekFrom::End(_) => None,
        };
        self.part.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.part.at)
    }
}

/// What a link's target is called in the archive.
fn beside(name: &str, target: &str, relative: bool) -> String {
    let mut parts: Vec<&str> = if relative {
        name.split('/').collect()
    } else {
        vec![""]
    };
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Reads a part at its own places.
#[derive(Debug)]
pub(super) struct Part {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl Read for Part {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let want = to.len().min(left);
        let n = self.file.read_at(&mut to[..want], self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_an_archive_lead_to_its_parts() {
        assert_eq!(beside("a/layer.tar", "../b/layer.tar", true), "b/layer.tar");
        assert_eq!(beside("a/layer.tar", "b/layer.tar", false), "b/layer.tar");
        assert_eq!(beside("a", "../../x", true), "x");
    }
}
