//! The files of this computer that the profile found by name.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use tare_profile::{Asked, Profile};
use tare_rootfs::host::HostError;
use tare_rootfs::tree::Node;
use tare_rootfs::{Tree, host, is_public_directory, is_seen_by_all};

use super::{OTHERS, RootError, WRITTEN, add_directory, add_public, holds_data, is_kernels, short};

/// Most links that are followed for one path (Linux's `MAXSYMLINKS`).
const MAX_LINKS: usize = 40;

/// Adds every path that was found, links to their end, and the names in directories
/// that were listed. Gives those that are not here any more, but what the application
/// itself made.
pub(super) fn add(
    tree: &mut Tree,
    profile: &Profile,
    refused: &mut BTreeSet<String>,
) -> Result<Vec<String>, RootError> {
    let mut missing = Vec::new();
    for (path, asked) in &profile.paths {
        let changes = asked.iter().any(|it| it.changes());
        let path = Path::new(path);
        if !is_seen_by_all(path) {
            refuse_hidden(path, changes, refused, &mut missing);
            continue;
        }
        match fs::metadata(path) {
            Ok(_) if is_kernels(path) => {}
            // It was made, renamed or removed: its directory has to be there.
            Err(_) if changes => add_parent(tree, path)?,
            Err(_) => missing.push(path.to_string_lossy().into_owned()),
            Ok(metadata) if metadata.is_dir() => {
                add_names(tree, path, asked.contains(&Asked::List), refused)?;
            }
            // What a program writes is not what it found.
            Ok(_) if changes && is_written(path) => add_parent(tree, path)?,
            Ok(metadata) if metadata.is_file() => add_file(tree, path, refused)?,
            // Sockets, FIFOs and devices are made by whom they belong to.
            Ok(_) => add_parent(tree, path)?,
        }
    }
    Ok(missing)
}

/// Of what not every user may see, the guest is not to find out whether it is there.
fn refuse_hidden(
    path: &Path,
    changes: bool,
    refused: &mut BTreeSet<String>,
    missing: &mut Vec<String>,
) {
    let name = path.to_string_lossy().into_owned();
    match path.symlink_metadata() {
        Ok(_) if is_kernels(path) => {}
        Ok(_) => drop(refused.insert(name)),
        // It was made by the application.
        Err(_) if changes => {}
        Err(_) => missing.push(name),
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
fn add_names(
    tree: &mut Tree,
    dir: &Path,
    listed: bool,
    refused: &mut BTreeSet<String>,
) -> Result<(), RootError> {
    let is_common = OTHERS.iter().any(|other| Path::new(other) == dir);
    add_empty(tree, dir)?;
    if !listed || is_common {
        return Ok(());
    }
    if !is_public_directory(dir) {
        refused.insert(dir.to_string_lossy().into_owned());
        return Ok(());
    }
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            add_empty(tree, &entry.path())?;
        }
    }
    add_directory(tree, dir, refused)
}

/// A directory without what is in it here.
fn add_empty(tree: &mut Tree, dir: &Path) -> Result<(), RootError> {
    let place = host::place(dir);
    if place.is_empty() {
        return Ok(());
    }
    Ok(tree
        .insert(&place, Node::directory())
        .map_err(HostError::from)?)
}

/// The directory that a file is made in, if it is on this computer.
fn add_parent(tree: &mut Tree, path: &Path) -> Result<(), RootError> {
    match path.parent() {
        Some(parent) if parent.is_dir() && !is_kernels(parent) => add_empty(tree, parent),
        _ => Ok(()),
    }
}

/// A file, by the links that lead to it.
fn add_file(tree: &mut Tree, path: &Path, refused: &mut BTreeSet<String>) -> Result<(), RootError> {
    if Node::public(path).is_none() {
        refused.insert(path.to_string_lossy().into_owned());
        return Ok(());
    }
    let mut place = path.to_owned();
    for _ in 0..MAX_LINKS {
        let Some(target) = link(&place) else {
            break;
        };
        if !is_seen_by_all(&place) {
            refused.insert(path.to_string_lossy().into_owned());
            return Ok(());
        }
        tree.insert(&host::place(&place), Node::link(target.clone()))
            .map_err(HostError::from)?;
        place = match place.parent() {
            Some(dir) => dir.join(target),
            None => PathBuf::from(target),
        };
    }
    add_public(tree, &place, refused).map(drop)
}

/// Where a link points to; nothing for another file.
fn link(path: &Path) -> Option<String> {
    fs::read_link(path)
        .ok()?
        .into_os_string()
        .into_string()
        .ok()
}
