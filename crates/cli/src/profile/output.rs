//! The file for a profile: the check that it can be written comes before the command starts, and an
//! old file stays until the new one is complete. Links are followed: what a link leads to is
//! replaced, not the link.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use tare_control::exit::ExitCode;

use crate::failure::Explain;

/// A file that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}", path.display())]
pub(super) struct OutputError {
    path: PathBuf,
    source: io::Error,
}

impl Explain for OutputError {
    fn code(&self) -> ExitCode {
        ExitCode::Output
    }
}

/// Most links that one path may have (`path_resolution(7)`).
const MOST_LINKS: usize = 40;
/// Links in here lead to open files, whatever their text is (`proc_pid_fd(5)`).
const PROC: &str = "/proc";

/// A file being written.
#[derive(Debug)]
pub(super) struct OutFile {
    path: PathBuf,
    /// `None` where the path leads to no regular file, or to one that is already open: it is
    /// written in place.
    replacement: Option<Replacement>,
    file: File,
}

/// A temporary file that becomes another one.
#[derive(Debug)]
struct Replacement {
    temporary: PathBuf,
    target: PathBuf,
}

impl OutFile {
    /// Creates the file that will become `path`.
    pub(super) fn open(path: &Path) -> Result<Self, OutputError> {
        let opened = match target(path) {
            Ok(Some(target)) => {
                replace(target).map(|(replacement, file)| (Some(replacement), file))
            }
            Ok(None) => in_place(path).map(|file| (None, file)),
            Err(error) => Err(error),
        };
        let (replacement, file) = opened.map_err(|source| OutputError {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self {
            path: path.to_owned(),
            replacement,
            file,
        })
    }

    /// Another handle on the file.
    pub(super) fn file(&self) -> Result<File, OutputError> {
        self.file.try_clone().map_err(|source| OutputError {
            path: self.path.clone(),
            source,
        })
    }

    /// The path as the user wrote it.
    pub(super) fn shown(&self) -> std::path::Display<'_> {
        self.path.display()
    }

    /// Writes the bytes and moves the file to its path.
    pub(super) fn write(mut self, bytes: &[u8]) -> Result<(), OutputError> {
        self.file.write_all(bytes).map_err(|source| OutputError {
            path: self.path.clone(),
            source,
        })?;
        self.commit()
    }

    /// Moves the file to its path.
    pub(super) fn commit(mut self) -> Result<(), OutputError> {
        let Some(Replacement { temporary, target }) = self.replacement.take() else {
            return Ok(());
        };
        fs::rename(&temporary, &target).map_err(|source| {
            let _ = fs::remove_file(&temporary);
            OutputError {
                path: self.path.clone(),
                source,
            }
        })
    }
}

impl Drop for OutFile {
    fn drop(&mut self) {
        if let Some(Replacement { temporary, .. }) = &self.replacement {
            let _ = fs::remove_file(temporary);
        }
    }
}

/// The path of the regular file, which need not exist, to which `path` leads; `None` if it leads to
/// something else or to an open file.
fn target(path: &Path) -> io::Result<Option<PathBuf>> {
    let mut path = path.to_owned();
    for _ in 0..=MOST_LINKS {
        let directory = path.parent().unwrap_or(Path::new(""));
        match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some(path)),
            Err(error) => return Err(error),
            Ok(there) if there.is_symlink() => {
                // As a parent, the empty path is the current directory.
                let place = fs::canonicalize(Path::new(".").join(directory))?;
                if place.starts_with(PROC) {
                    return Ok(None);
                }
                // A link that is absolute replaces the directory.
                path = directory.join(fs::read_link(&path)?);
            }
            Ok(there) => return Ok(there.is_file().then_some(path)),
        }
    }
    Err(Errno::LOOP.into())
}

/// Appends: an open file may have content, and others may write to it.
fn in_place(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).open(path)
}

/// A temporary file beside `target`, with the owner and the mode of a file that is there.
fn replace(target: PathBuf) -> io::Result<(Replacement, File)> {
    let there = match fs::metadata(&target) {
        Ok(there) => {
            // A file that may not be changed may not be replaced either.
            OpenOptions::new().write(true).open(&target)?;
            Some(there)
        }
        Err(_) => None,
    };
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let temporary = target.with_file_name(format!(".{name}.{}", std::process::id()));
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    if there.is_some() {
        options.mode(0o600);
    }
    let file = options.open(&temporary)?;
    if let Some(there) = there {
        // Only root may give a file away. Changing the owner clears bits of the mode.
        let _ = fchown(&file, Some(there.uid()), Some(there.gid()));
        let set = file.set_permissions(Permissions::from_mode(there.mode() & 0o777));
        if let Err(error) = set {
            let _ = fs::remove_file(&temporary);
            return Err(error);
        }
    }
    Ok((Replacement { temporary, target }, file))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;
    use std::os::unix::fs::symlink;

    use super::*;

    fn write(path: &Path, text: &str) {
        let out = OutFile::open(path).unwrap();
        out.write(text.as_bytes()).unwrap();
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_link_stays_and_its_target_gets_the_text() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("far")).unwrap();
        let [file, first, second] =
            ["far/file", "far/first", "second"].map(|it| place.path().join(it));
        symlink("file", &first).unwrap();
        symlink("far/first", &second).unwrap();
        // Once for a file that is missing, once for one that is there.
        for text in ["one", "another"] {
            write(&second, text);
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
        }
        assert!(first.is_symlink() && second.is_symlink() && !file.is_symlink());
        assert_eq!(names(&place.path().join("far")), ["file", "first"]);
        let end = place.path().join("end");
        symlink("end", &end).unwrap();
        let error = OutFile::open(&end).unwrap_err();
        assert_eq!(
            error.source.raw_os_error(),
            Some(Errno::LOOP.raw_os_error())
        );
    }

    #[test]
    fn a_link_to_an_open_file_stays_and_the_file_gets_the_text() {
        let place = tempfile::tempdir().unwrap();
        let [path, link] = ["file", "link"].map(|it| place.path().join(it));
        let mut open = File::create(&path).unwrap();
        open.write_all(b"before ").unwrap();
        let number = open.as_raw_fd();
        symlink(format!("/proc/self/fd/{number}"), &link).unwrap();
        write(&link, "one");
        write(Path::new(&format!("/proc/self/fd/{number}")), " two");
        write(Path::new(&format!("/dev/fd/{number}")), " three");
        assert_eq!(fs::read_to_string(&path).unwrap(), "before one two three");
        assert!(link.is_symlink());
        assert_eq!(names(place.path()), ["file", "link"]);
    }

    #[test]
    fn a_file_keeps_its_mode_and_what_is_not_a_file_is_written_in_place() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        for mode in [0o600, 0o664] {
            fs::write(&path, "old").unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            write(&path, "new");
            assert_eq!(fs::read_to_string(&path).unwrap(), "new");
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, mode);
        }
        let out = OutFile::open(Path::new("/dev/null")).unwrap();
        assert!(out.replacement.is_none());
        out.write(b"text").unwrap();
        drop(OutFile::open(&path).unwrap());
        assert_eq!(
            names(place.path()),
            ["file"],
            "nothing of one that was not committed"
        );
    }
}
