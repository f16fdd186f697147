//! A new crate.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use crate::name::{CrateName, NameError};
use crate::sources::Sources;

/// The files of a crate, by their paths.
const FILES: [(&str, &str); 4] = [
    ("Cargo.toml", include_str!("../template/Cargo.toml.in")),
    ("src/main.rs", include_str!("../template/main.rs.in")),
    (
        ".cargo/config.toml",
        include_str!("../template/config.toml"),
    ),
    (".gitignore", include_str!("../template/gitignore")),
];

/// Why no crate was made. Nothing of it is left.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The last component of the path is not a name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The path ends in no name.
    #[error("{} does not end in a crate's name", .0.display())]
    NoName(PathBuf),
    /// Something is there.
    #[error("{} already exists", .0.display())]
    Exists(PathBuf),
    /// There is no directory to put it into.
    #[error("{} is not a directory", .0.display())]
    NoParent(PathBuf),
    /// A file cannot be written.
    #[error("cannot write {}", .0.display())]
    Write(PathBuf, #[source] io::Error),
}

/// Makes a crate in a new directory, whose last part is the crate's name.
pub fn create(path: &Path, sources: &Sources) -> Result<CrateName, CreateError> {
    let word = path
        .file_name()
        .and_then(|word| word.to_str())
        .ok_or_else(|| CreateError::NoName(path.to_owned()))?;
    let name: CrateName = word.parse()?;
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    if path.symlink_metadata().is_ok() {
        return Err(CreateError::Exists(path.to_owned()));
    }
    if !parent.is_dir() {
        return Err(CreateError::NoParent(parent.to_owned()));
    }
    let failed = |error| CreateError::Write(path.to_owned(), error);
    // Removed with what is in it, however this function ends.
    let hidden = tempfile::Builder::new()
        .prefix(".tare-new-")
        .tempdir_in(parent)
        .map_err(failed)?;
    let whole = hidden.path().join(word);
    write(&whole, &name, sources).map_err(failed)?;
    match renameat_with(CWD, &whole, CWD, path, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(name),
        Err(Errno::EXIST) => Err(CreateError::Exists(path.to_owned())),
        Err(error) if cannot_keep(error) => move_entries(&whole, path).map(|()| name),
        Err(error) => Err(failed(error.into())),
    }
}

/// Whether a file system has no rename that keeps what is there, as NFS and 9p do not.
fn cannot_keep(error: Errno) -> bool {
    matches!(error, Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)
}

/// The same in a directory that is made, which fails where something is; what cannot be moved
/// leaves nothing.
fn move_entries(whole: &Path, path: &Path) -> Result<(), CreateError> {
    let failed = |error| CreateError::Write(path.to_owned(), error);
    fs::create_dir(path).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => CreateError::Exists(path.to_owned()),
        _ => failed(error),
    })?;
    let moved = fs::read_dir(whole).and_then(|mut entries| {
        entries.try_for_each(|entry| {
            let entry = entry?;
            fs::rename(entry.path(), path.join(entry.file_name()))
        })
    });
    moved.map_err(|error| {
        // Made here, a moment ago.
        let _ = fs::remove_dir_all(path);
        failed(error)
    })
}

fn write(directory: &Path, name: &CrateName, sources: &Sources) -> io::Result<()> {
    for (file, template) in FILES {
        let text = template
            .replace("@NAME@", &name.to_string())
            .replace("@DEPENDENCIES@\n", &(sources.dependencies() + "\n"));
        let path = directory.join(file);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, text)?;
    }
    // The versions that Tare was tested with; cargo leaves out what the crate does not use.
    if let Some(lock) = sources.lock_file().and_then(|file| fs::read(file).ok()) {
        fs::write(directory.join("Cargo.lock"), lock)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn sources() -> Sources {
        Sources::Directory(PathBuf::from("/tare"))
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
    fn a_crate_has_its_name_and_its_files() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("hello");
        create(&path, &sources()).unwrap();
        assert_eq!(names(place.path()), ["hello"]);
        assert_eq!(names(&path), [".cargo", ".gitignore", "Cargo.toml", "src"]);
        for (file, _) in FILES {
            let text = fs::read_to_string(path.join(file)).unwrap();
            assert!(!text.contains('@'), "{file}: {text}");
        }
        let manifest = fs::read_to_string(path.join("Cargo.toml")).unwrap();
        let manifest: toml::Table = toml::from_str(&manifest).unwrap();
        assert_eq!(manifest["package"]["name"].as_str(), Some("hello"));
        let libos = &manifest["dependencies"]["tare-libos"]["path"];
        assert_eq!(libos.as_str(), Some("/tare/guest/libos"));
    }

    #[test]
    fn without_a_rename_that_keeps_what_is_there_the_entries_move() {
        for (error, right) in [
            (Errno::INVAL, true),
            (Errno::NOSYS, true),
            (Errno::OPNOTSUPP, true),
            (Errno::NOSPC, false),
        ] {
            assert_eq!(cannot_keep(error), right, "{error}");
        }
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let name: CrateName = "hello".parse().unwrap();
        write(&at("whole"), &name, &sources()).unwrap();
        let whole = names(&at("whole"));
        move_entries(&at("whole"), &at("hello")).unwrap();
        assert_eq!(names(&at("hello")), whole);
        assert!(names(&at("whole")).is_empty());
        // What is there stays, an empty directory too.
        fs::create_dir(at("empty")).unwrap();
        for other in ["hello", "empty"] {
            let error = move_entries(&at("whole"), &at(other)).unwrap_err();
            assert!(matches!(error, CreateError::Exists(_)), "{error}");
        }
        let error = move_entries(&at("none"), &at("new")).unwrap_err();
        assert!(matches!(error, CreateError::Write(..)), "{error}");
        assert_eq!(names(place.path()), ["empty", "hello", "whole"]);
    }

    #[test]
    fn what_is_there_stays_and_nothing_is_left_beside_it() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::write(at("file"), "mine").unwrap();
        fs::create_dir(at("directory")).unwrap();
        symlink("gone", at("link")).unwrap();
        for name in ["file", "directory", "link"] {
            let error = create(&at(name), &sources()).unwrap_err();
            assert!(matches!(error, CreateError::Exists(_)), "{error}");
        }
        let missing = create(&at("gone/hello"), &sources()).unwrap_err();
        assert!(matches!(missing, CreateError::NoParent(_)), "{missing}");
        let within = create(&at("file/hello"), &sources()).unwrap_err();
        assert!(matches!(within, CreateError::NoParent(_)), "{within}");
        let bad = create(&at("a b"), &sources()).unwrap_err();
        assert!(matches!(bad, CreateError::Name(_)), "{bad}");
        let none = create(&at(".."), &sources()).unwrap_err();
        assert!(matches!(none, CreateError::NoName(_)), "{none}");
        assert_eq!(names(place.path()), ["directory", "file", "link"]);
        assert_eq!(fs::read_to_string(at("file")).unwrap(), "mine");
    }
}
