//! Files of a directory that the sources' scripts write: they may be links to somewhere else, pipes that
//! no process writes to, or have no end.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};

/// Longest text that is read, bytes: configurations and lists of dependencies have at most a tenth.
const LONGEST_TEXT: u64 = 4 << 20;

/// Opens a regular file below `dir` for reading, without following a link.
pub(crate) fn open(dir: &Path, name: impl AsRef<Path>) -> io::Result<File> {
    let below = openat(
        CWD,
        dir,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let file = File::from(openat2(
        below,
        name.as_ref(),
        flags,
        Mode::empty(),
        resolve,
    )?);
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "not a regular file",
        ))
    }
}

/// Reads one of at most `longest` bytes.
pub(crate) fn read(dir: &Path, name: impl AsRef<Path>, longest: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(dir, name)?.take(longest + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > longest {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}

/// Reads a text.
pub(crate) fn read_text(dir: &Path, name: impl AsRef<Path>) -> io::Result<String> {
    let bytes = read(dir, name, LONGEST_TEXT)?;
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Makes a file in `dir`, which every user may read, in place of whatever has its name.
pub(crate) fn create(dir: &Path, name: &str) -> io::Result<File> {
    let path = dir.join(name);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
    Ok(openat(CWD, &path, flags, mode)?.into())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::symlink;

    use rustix::fs::mkfifoat;

    use super::*;

    #[test]
    fn what_is_not_a_file_below_is_not_opened() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("objects");
        fs::create_dir_all(dir.join("arch")).unwrap();
        fs::write(place.path().join("secret"), "secret").unwrap();
        fs::write(dir.join("arch/image"), "image").unwrap();
        symlink("../secret", dir.join("link")).unwrap();
        symlink("..", dir.join("up")).unwrap();
        symlink("image", dir.join("arch/inside")).unwrap();
        mkfifoat(CWD, dir.join("pipe"), Mode::RUSR | Mode::WUSR).unwrap();
        assert_eq!(read_text(&dir, "arch/image").unwrap(), "image");
        let absolute = place.path().join("secret");
        for name in [
            "link",
            "up/secret",
            "../secret",
            "arch/inside",
            "pipe",
            "arch",
            "none",
        ]
        .map(Path::new)
        .into_iter()
        .chain([&*absolute])
        {
            assert!(open(&dir, name).is_err(), "{name:?}");
        }
        assert!(read(&dir, "arch/image", 4).is_err(), "longer than that");
        assert_eq!(read(&dir, "arch/image", 5).unwrap(), b"image");
    }

    #[test]
    fn a_file_is_made_in_place_of_a_link() {
        let place = tempfile::tempdir().unwrap();
        let other = place.path().join("other");
        fs::write(&other, "other").unwrap();
        symlink(&other, place.path().join("log")).unwrap();
        let mut file = create(place.path(), "log").unwrap();
        file.write_all(b"new").unwrap();
        assert_eq!(fs::read(&other).unwrap(), b"other");
        assert_eq!(read_text(place.path(), "log").unwrap(), "new");
    }
}
