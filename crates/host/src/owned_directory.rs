//! Directories that Tare makes and may remove with all that is in them.
//!
//! Each holds a marker file, made with the directory. Removal refuses a directory without it,
//! works through descriptors, follows no link and leaves what is mounted below alone. So a
//! journal or cache that was edited, or a name that became a link, cannot turn a removal
//! into one of another user's files.

use std::ffi::CString;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, fstat, mkdirat, openat, openat2,
    unlinkat,
};
use rustix::io::{Errno, read, write};
use rustix::process::geteuid;

/// The marker's name.
pub const MARKER: &str = ".tare-made-this";
/// The marker's content.
const TEXT: &[u8] = b"tare directory 1\n";
/// Directories deeper than this are not removed: each level holds a descriptor.
const DEPTH_MAX: usize = 128;

/// Why a directory was not removed.
#[derive(Debug)]
pub enum RemoveError {
    /// It has no marker of this user's, or is not a directory: nothing was removed.
    NotOurs(PathBuf),
    /// The kernel refused a step; part of it may be gone, the marker is not.
    Io {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl std::fmt::Display for RemoveError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotOurs(path) => write!(
                f,
                "{} was not created by Tare (it has no {MARKER}) and is left alone",
                path.display()
            ),
            Self::Io { path, .. } => write!(f, "cannot remove {}", path.display()),
        }
    }
}

impl std::error::Error for RemoveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NotOurs(_) => None,
            Self::Io { source, .. } => Some(source),
        }
    }
}

/// Makes the directory and its marker; its parents need none. An existing directory is an
/// error of kind `AlreadyExists`, and stays unmarked.
pub fn create(path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    mkdirat(CWD, path, Mode::from_raw_mode(0o755))?;
    let directory = open_directory(CWD, path)?;
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    let marker = openat(&directory, MARKER, flags, Mode::from_raw_mode(0o600))?;
    write(&marker, TEXT)?;
    Ok(())
}

/// Whether [`remove`] would remove it.
pub fn is_ours(path: &Path) -> bool {
    open_directory(CWD, path).is_ok_and(|directory| is_marked(&directory).unwrap_or(false))
}

/// Takes the marker away: the directory is never removed again.
pub fn keep(path: &Path) -> io::Result<()> {
    let directory = open_directory(CWD, path)?;
    Ok(unlinkat(&directory, MARKER, AtFlags::empty())?)
}

/// Removes a directory with a marker, and all that is in it, the marker last. A directory
/// that does not exist is not an error.
pub fn remove(path: &Path) -> Result<(), RemoveError> {
    let failed = |errno: Errno| RemoveError::Io {
        path: path.to_owned(),
        source: errno.into(),
    };
    let directory = match open_directory(CWD, path) {
        Ok(directory) => directory,
        Err(Errno::NOENT) => return Ok(()),
        Err(Errno::LOOP | Errno::NOTDIR) => return Err(RemoveError::NotOurs(path.to_owned())),
        Err(errno) => return Err(failed(errno)),
    };
    if !is_marked(&directory).map_err(failed)? {
        return Err(RemoveError::NotOurs(path.to_owned()));
    }
    empty(directory.as_fd(), Some(MARKER), 0).map_err(failed)?;
    unlinkat(&directory, MARKER, AtFlags::empty()).map_err(failed)?;
    unlinkat(CWD, path, AtFlags::REMOVEDIR).map_err(failed)
}

fn open_directory(at: impl AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
    openat(at, path, flags, Mode::empty())
}

/// Whether the marker is a regular file of this user's with the right content.
fn is_marked(directory: &OwnedFd) -> Result<bool, Errno> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::RDONLY | OFlags::CLOEXEC;
    let marker = match openat(directory, MARKER, flags, Mode::empty()) {
        Ok(marker) => marker,
        Err(Errno::NOENT | Errno::LOOP | Errno::NXIO | Errno::ACCESS) => return Ok(false),
        Err(errno) => return Err(errno),
    };
    let status = fstat(&marker)?;
    let mut text = [0; 64];
    Ok(
        FileType::from_raw_mode(status.st_mode) == FileType::RegularFile
            && status.st_uid == geteuid().as_raw()
            && read(&marker, &mut text).map(|length| &text[..length] == TEXT)?,
    )
}

/// Removes all entries but `kept`. Neither links nor mounts are crossed.
fn empty(directory: BorrowedFd<'_>, kept: Option<&str>, depth: usize) -> Result<(), Errno> {
    if depth > DEPTH_MAX {
        return Err(Errno::LOOP);
    }
    let mut names: Vec<CString> = Vec::new();
    for entry in Dir::read_from(directory)? {
        let name = entry?.file_name().to_owned();
        let bytes = name.to_bytes();
        if !matches!(bytes, b"." | b"..") && Some(bytes) != kept.map(str::as_bytes) {
            names.push(name);
        }
    }
    for name in &names {
        match unlinkat(directory, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => continue,
            // EPERM is what POSIX names for a directory.
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(errno) => return Err(errno),
        }
        let below = openat2(
            directory,
            name,
            OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV,
        )?;
        empty(below.as_fd(), None, depth + 1)?;
        unlinkat(directory, name, AtFlags::REMOVEDIR)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_directory_that_tare_made_goes_with_its_content() {
        let scratch = tempfile::tempdir().unwrap();
        let ours = scratch.path().join("a/ours");
        create(&ours).unwrap();
        fs::create_dir_all(ours.join("deep/er")).unwrap();
        fs::write(ours.join("deep/er/file"), "x").unwrap();
        remove(&ours).unwrap();
        assert!(!ours.exists());
        remove(&ours).unwrap();
    }

    #[test]
    fn a_directory_without_the_marker_stays() {
        let scratch = tempfile::tempdir().unwrap();
        let photos = scratch.path().join("photos");
        fs::create_dir(&photos).unwrap();
        fs::write(photos.join("a.jpg"), "x").unwrap();
        assert_eq!(
            create(&photos).unwrap_err().kind(),
            io::ErrorKind::AlreadyExists
        );
        assert!(matches!(remove(&photos), Err(RemoveError::NotOurs(_))));
        // Neither a link to a marker nor another text is one.
        let ours = scratch.path().join("ours");
        create(&ours).unwrap();
        symlink(ours.join(MARKER), photos.join(MARKER)).unwrap();
        assert!(matches!(remove(&photos), Err(RemoveError::NotOurs(_))));
        fs::remove_file(photos.join(MARKER)).unwrap();
        fs::write(photos.join(MARKER), "mine").unwrap();
        assert!(matches!(remove(&photos), Err(RemoveError::NotOurs(_))));
        assert!(photos.join("a.jpg").exists());
    }

    #[test]
    fn no_link_is_followed() {
        let scratch = tempfile::tempdir().unwrap();
        let (ours, photos) = (scratch.path().join("ours"), scratch.path().join("photos"));
        create(&ours).unwrap();
        fs::create_dir(&photos).unwrap();
        fs::write(photos.join("a.jpg"), "x").unwrap();
        symlink(&photos, ours.join("link")).unwrap();
        let link = scratch.path().join("link");
        symlink(&ours, &link).unwrap();
        assert!(matches!(remove(&link), Err(RemoveError::NotOurs(_))));
        assert!(ours.exists());
        remove(&ours).unwrap();
        assert!(photos.join("a.jpg").exists());
    }

    #[test]
    fn a_directory_that_is_kept_is_not_removed_later() {
        let scratch = tempfile::tempdir().unwrap();
        let ours = scratch.path().join("ours");
        create(&ours).unwrap();
        keep(&ours).unwrap();
        assert!(matches!(remove(&ours), Err(RemoveError::NotOurs(_))));
        assert!(ours.exists());
    }
}
