//! The files of this computer that the profile found by name.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use tare_profile::{Asked, Profile};
use tare_rootfs::tree::Node;
use tare_rootfs::{host, is_public_directory, is_seen_by_all};

use super::host_files::{HostFiles, HostFilesError, is_kernels};
use super::{OTHERS, WRITTEN, add_directory, holds_data, short};

/// Most links that are followed for one path (Linux's `MAXSYMLINKS`).
const MAX_LINKS: usize = 40;

/// Adds every path that was found, links to their end, and the names in directories
/// that were listed. Gives those that are not here any more, but what the application
/// itself made.
pub(super) fn add(files: &mut HostFiles, profile: &Profile) -> Result<Vec<String>, HostFilesError> {
    let mut missing = Vec::new();
    for (path, asked) in &profile.paths {
        let changes = asked.iter().any(|it| it.changes());
        let path = Path::new(path);
        if !is_seen_by_all(path) {
            refuse_hidden(path, changes, files, &mut missing);
            continue;
        }
        match fs::metadata(path) {
            Ok(_) if is_kernels(path) => {}
            // It was made, renamed or removed: its directory has to be there.
            Err(_) if changes => add_parent(files, path)?,
            Err(_) => missing.push(path.to_string_lossy().into_owned()),
            Ok(metadata) if metadata.is_dir() => {
                add_names(files, path, asked.contains(&Asked::List))?;
            }
            // What a program writes is not what it found.
            Ok(_) if changes && is_written(path) => add_parent(files, path)?,
            Ok(metadata) if metadata.is_file() => add_file(files, path)?,
            // Sockets, FIFOs and devices are made by whom they belong to.
            Ok(_) => add_parent(files, path)?,
        }
    }
    Ok(missing)
}

/// Of what not every user may see, the guest is not to find out whether it is there.
fn refuse_hidden(path: &Path, changes: bool, files: &mut HostFiles, missing: &mut Vec<String>) {
    match path.symlink_metadata() {
        Ok(_) if is_kernels(path) => {}
        Ok(_) => files.refuse(path),
        // It was made by the application.
        Err(_) if changes => {}
        Err(_) => missing.push(path.to_string_lossy().into_owned()),
    }
}

/// What a guest lacks of what the profile found.
pub(super) fn note(missing: &[String]) -> Option<String> {
    (!missing.is_empty()).then(|| {
        format!(
            "{} paths that the profile found are not on this computer: {}",
            missing.len(),
            short(missing)
        )
    })
}

fn is_written(path: &Path) -> bool {
    WRITTEN.iter().any(|written| path.starts_with(written))
        && !path.parent().is_some_and(holds_data)
}

/// A directory, with what is in it if it was listed.
fn add_names(files: &mut HostFiles, dir: &Path, listed: bool) -> Result<(), HostFilesError> {
    let is_common = OTHERS.iter().any(|other| Path::new(other) == dir);
    add_empty(files, dir)?;
    if !listed || is_common {
        return Ok(());
    }
    if !is_public_directory(dir) {
        files.refuse(dir);
        return Ok(());
    }
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            add_empty(files, &entry.path())?;
        }
    }
    add_directory(files, dir)
}

/// A directory without what is in it here.
fn add_empty(files: &mut HostFiles, dir: &Path) -> Result<(), HostFilesError> {
    if host::place(dir).is_empty() {
        return Ok(());
    }
    files.insert(dir, Node::directory())
}

/// The directory that a file is made in, if it is on this computer.
fn add_parent(files: &mut HostFiles, path: &Path) -> Result<(), HostFilesError> {
    match path.parent() {
        Some(parent) if parent.is_dir() && !is_kernels(parent) => add_empty(files, parent),
        _ => Ok(()),
    }
}

/// A file, by the links that lead to it.
fn add_file(files: &mut HostFiles, path: &Path) -> Result<(), HostFilesError> {
    if Node::public(path).is_none() {
        files.refuse(path);
        return Ok(());
    }
    let mut place = path.to_owned();
    for _ in 0..MAX_LINKS {
        let Some(target) = link(&place) else {
            break;
        };
        if !is_seen_by_all(&place) {
            files.refuse(path);
            return Ok(());
        }
        files.insert(&place, Node::link_to(target.as_bytes()))?;
        place = match place.parent() {
            Some(dir) => dir.join(target),
            None => PathBuf::from(target),
        };
    }
    files.public(&place).map(drop)
}

/// Where a link points to; nothing for another file.
fn link(path: &Path) -> Option<OsString> {
    fs::read_link(path).ok().map(PathBuf::into_os_string)
}
