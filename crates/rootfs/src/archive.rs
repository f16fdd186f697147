//! Archives other than images: sources of a kernel, packages. Unpacked into a directory, by the
//! same confined thread and within the same limits as an image's layers.
//!
//! zstd is read here, gzip, xz and bzip2 by those programs, which are confined as well.
//! Devices and named pipes are left out, and names that begin with `.wh.`, which an image's
//! layer removes by.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;

use tare_confine::{ConfineError, Reads, read_confined};

use crate::directory::{self, Owners, WriteError};
use crate::oci::{self, ImageError, Limits};
use crate::program::Reader;

/// Most bytes of an archive's files: sources of a kernel have 1.4 GB.
const MOST_BYTES: u64 = 4 << 30;
/// Most bytes after an archive's end: blocks of zeros.
const MOST_PADDING: u64 = 16 << 20;

/// Why an archive cannot be unpacked.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// It is damaged, hostile or exceeds a limit.
    #[error(transparent)]
    Read(#[from] ImageError),
    /// Its place cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A program that it takes does not start.
    #[error("cannot run {program}; install it")]
    NoProgram {
        /// The program.
        program: &'static str,
        /// Why.
        source: ConfineError,
    },
    /// The program failed.
    #[error("{program} failed ({said})")]
    Program {
        /// The program.
        program: &'static str,
        /// Its last line.
        said: String,
    },
    /// A file of this computer failed.
    #[error("cannot read the archive")]
    Io(#[from] io::Error),
}

/// Unpacks a tar archive, which errors call `name`, below a directory.
pub fn unpack(archive: &File, name: &str, dir: &Path) -> Result<(), ArchiveError> {
    unpack_within(archive, name, dir, Limits::of_bytes(MOST_BYTES))
}

fn unpack_within(
    archive: &File,
    name: &str,
    dir: &Path,
    limits: Limits,
) -> Result<(), ArchiveError> {
    let input = archive.try_clone()?;
    let mut begin = [0; 6];
    // A short file is not an archive; its reader reports that.
    let _ = archive.read_exact_at(&mut begin, 0);
    let Some(program) = decompressor(begin) else {
        return unpack_stream(input, name, dir, limits);
    };
    let mut command = Command::new(program);
    command.args(["--decompress", "--stdout"]);
    for variable in ["GZIP", "XZ_DEFAULTS", "XZ_OPT", "BZIP", "BZIP2"] {
        command.env_remove(variable);
    }
    command.stdin(input);
    unpack_output(program, &mut command, name, dir, limits)
}

/// The program for a compression that is not read here.
fn decompressor(begin: [u8; 6]) -> Option<&'static str> {
    match begin {
        [0x1f, 0x8b, ..] => Some("gzip"),
        [0xfd, b'7', b'z', b'X', b'Z', 0] => Some("xz"),
        [b'B', b'Z', b'h', ..] => Some("bzip2"),
        _ => None,
    }
}

/// Unpacks the files of a Debian package below a directory.
pub(crate) fn unpack_package(package: File, name: &str, dir: &Path) -> Result<(), ArchiveError> {
    let mut command = Command::new("dpkg-deb");
    command.args(["--fsys-tarfile", "-"]).stdin(package);
    // Each thread of a decompressor takes memory.
    command.env("DPKG_DEB_THREADS_MAX", "1");
    let limits = Limits::of_bytes(MOST_BYTES);
    unpack_output("dpkg-deb", &mut command, name, dir, limits)
}

/// Unpacks what a confined program writes.
fn unpack_output(
    program: &'static str,
    command: &mut Command,
    name: &str,
    dir: &Path,
    limits: Limits,
) -> Result<(), ArchiveError> {
    let mut reader = Reader::start(command, Reads::Installed)
        .map_err(|source| ArchiveError::NoProgram { program, source })?;
    let unpacked = match reader.output() {
        Ok(output) => unpack_stream(output, name, dir, limits),
        Err(error) => Err(error.into()),
    };
    let end = reader.end()?;
    match unpacked {
        // An archive that is too large is the reason, however its reader ended then.
        Err(ArchiveError::Read(ImageError::Limit(limit))) => Err(ArchiveError::Read(limit.into())),
        unpacked if end.has_worked() => unpacked,
        _ => Err(ArchiveError::Program {
            program,
            said: end.said(),
        }),
    }
}

fn unpack_stream(
    mut from: impl Read + Send,
    name: &str,
    dir: &Path,
    limits: Limits,
) -> Result<(), ArchiveError> {
    // Beside the files, for which there is room.
    let contents = tempfile::tempfile_in(dir)?;
    let tree = read_confined(None, || {
        let tree = oci::read_layer(&mut from, name, contents, limits)?;
        // A checksum comes last.
        io::copy(&mut from.take(MOST_PADDING), &mut io::sink()).map_err(|error| {
            ImageError::Damaged {
                part: name.to_owned(),
                source: error.into(),
            }
        })?;
        Ok::<_, ImageError>(tree)
    });
    let mut tree = tree.map_err(ImageError::from)??;
    // Whoever reads all of these files would wait at a pipe.
    tree.remove_pipes();
    Ok(directory::write(&tree, dir, Owners::Caller)?)
}

#[cfg(test)]
mod tests;
