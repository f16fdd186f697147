//! Streams a listed root directory into a newc cpio archive in memory.

use std::fs::File;
use std::io::{self, BufWriter, Read as _, Write};
use std::path::Path;

use cpio::newc::{self, Builder, ModeFileType};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

use super::RootError;
use super::walk::{Entry, Kind, Tree};

/// Bytes moved at a time.
const CHUNK: usize = 256 * 1024;

/// Packs into a memory file that nobody can change any more.
pub(crate) fn pack(tree: &Tree) -> Result<File, RootError> {
    let write = |errno: rustix::io::Errno| RootError::Write(errno.into());
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = File::from(memfd_create("tare-root", flags).map_err(write)?);
    archive(tree, &file)?;
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    fcntl_add_seals(&file, seals).map_err(write)?;
    Ok(file)
}

fn archive(tree: &Tree, to: impl Write) -> Result<(), RootError> {
    let mut to = BufWriter::with_capacity(CHUNK, to);
    for (index, entry) in tree.entries.iter().enumerate() {
        // The kernel takes an inode number of 0 for a name without content.
        let inode = u32::try_from(index + 1).unwrap_or(u32::MAX);
        append(entry, inode, &mut to)?;
    }
    newc::trailer(to)
        .and_then(|mut to| to.flush())
        .map_err(RootError::Write)
}

fn append(entry: &Entry, inode: u32, to: &mut impl Write) -> Result<(), RootError> {
    let (kind, links, bytes) = match entry.kind {
        Kind::Directory => (ModeFileType::Directory, 2, 0),
        Kind::File { bytes } => (ModeFileType::Regular, 1, bytes),
    };
    let mut content = Builder::new(&entry.name)
        .ino(inode)
        .nlink(links)
        .mode(entry.permissions)
        .set_mode_file_type(kind)
        .mtime(entry.modified_s)
        .write(to, bytes);
    if let Kind::File { bytes } = entry.kind {
        copy(&entry.source, bytes, &mut content)?;
    }
    content.finish().map(drop).map_err(RootError::Write)
}

/// Copies exactly as many bytes as the listing promised.
fn copy(source: &Path, bytes: u32, to: &mut impl Write) -> Result<(), RootError> {
    let read = |error| RootError::Read {
        path: source.to_owned(),
        source: error,
    };
    let mut file = File::open(source).map_err(read)?;
    let length = file.metadata().map_err(read)?.len();
    if length != u64::from(bytes) {
        return Err(RootError::Changed(source.to_owned()));
    }
    let mut left = bytes as usize;
    let mut chunk = vec![0; CHUNK.min(left)];
    while left > 0 {
        let want = chunk.len().min(left);
        match file.read(&mut chunk[..want]) {
            Ok(0) => return Err(RootError::Changed(source.to_owned())),
            Ok(n) => {
                to.write_all(&chunk[..n]).map_err(RootError::Write)?;
                left -= n;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(read(error)),
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;
    use std::io::{Seek as _, SeekFrom};
    use std::process::{Command, Stdio};

    use super::super::walk;
    use super::*;

    fn example() -> (tempfile::TempDir, Tree) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        fs::write(dir.path().join("index.html"), "<p>hello").unwrap();
        fs::write(dir.path().join("sub/empty"), "").unwrap();
        fs::write(dir.path().join("sub/large"), vec![7; CHUNK * 2 + 3]).unwrap();
        let tree = walk(dir.path(), 16 << 20).unwrap();
        (dir, tree)
    }

    fn contents(mut file: File) -> Vec<u8> {
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.read_to_end(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn what_was_packed_can_be_read_again() {
        let (dir, tree) = example();
        let bytes = contents(pack(&tree).unwrap());
        assert_eq!(bytes.len() as u64, tree.archive_bytes);
        let mut rest = bytes.as_slice();
        for entry in &tree.entries {
            let mut reader = newc::Reader::new(rest).unwrap();
            assert_eq!(reader.entry().name(), entry.name);
            assert_eq!(reader.entry().mtime(), entry.modified_s);
            assert_eq!(reader.entry().mode() & 0o7777, entry.permissions);
            let mut content = Vec::new();
            reader.read_to_end(&mut content).unwrap();
            if entry.kind != Kind::Directory {
                assert_eq!(content, fs::read(dir.path().join(&entry.name)).unwrap());
            }
            rest = reader.finish().unwrap();
        }
        assert!(newc::Reader::new(rest).unwrap().entry().is_trailer());
    }

    #[test]
    fn packing_twice_gives_the_same_bytes() {
        let (dir, tree) = example();
        let again = walk(dir.path(), 16 << 20).unwrap();
        assert_eq!(
            contents(pack(&tree).unwrap()),
            contents(pack(&again).unwrap())
        );
    }

    #[test]
    fn the_archive_cannot_be_changed() {
        let (_dir, tree) = example();
        let mut file = pack(&tree).unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        assert!(file.write_all(b"x").is_err());
        assert!(file.set_len(0).is_err());
    }

    #[test]
    fn cpio_lists_the_archive() {
        let (_dir, tree) = example();
        let mut file = pack(&tree).unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        let listed = Command::new("cpio")
            .args(["-t", "--quiet"])
            .stdin(Stdio::from(file))
            .output();
        let Ok(listed) = listed else {
            eprintln!("SKIP: cpio is not installed");
            return;
        };
        assert!(listed.status.success(), "{listed:?}");
        let names: Vec<&str> = tree.entries.iter().map(|e| e.name.as_str()).collect();
        assert_eq!(
            String::from_utf8(listed.stdout).unwrap(),
            names.join("\n") + "\n"
        );
        assert_eq!(String::from_utf8(listed.stderr).unwrap(), "");
    }

    #[test]
    fn a_file_that_changes_is_noticed() {
        let (dir, tree) = example();
        fs::write(dir.path().join("index.html"), "longer than before").unwrap();
        assert!(matches!(pack(&tree), Err(RootError::Changed(_))));
    }
}
