//! Names that go and change (`unlink(2)`, `rmdir(2)`, `rename(2)`).

use alloc::borrow::ToOwned;
use alloc::sync::Arc;

use linux_raw_sys::general as c;

use super::arguments::Arguments;
use super::files::path;
use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::files::stored::Stored;
use crate::files::tree::{Last, Node, NodeKind, ResolvedPath, Tree};

pub(super) fn unlinkat(context: &Context<'_>, directory: u64, name: u64, flags: u64) -> Result {
    if flags as u32 & !c::AT_REMOVEDIR != 0 {
        return Err(Errno::EINVAL);
    }
    let path = path(context, directory, name)?;
    let place = unfollowed(&context.process.tree, &path)?;
    let (above, name) = (place.above()?.clone(), place.name().to_owned());
    let removes_directory = flags as u32 & c::AT_REMOVEDIR != 0;
    match last_name(&path) {
        Some(".") if removes_directory => return Err(Errno::EINVAL),
        Some("..") if removes_directory => return Err(Errno::ENOTEMPTY),
        Some("." | "..") => return Err(Errno::EISDIR),
        _ => {}
    }
    if let Some(stored) = above.stored() {
        let check = |node: &Node| both_directories(node.is_directory(), removes_directory);
        return stored.unlink(&name, removes_directory, check).map(|()| 0);
    }
    let _turn = context.process.tree.changes.lock();
    let mut entries = above.names()?.lock();
    let node = entries.get(&name).ok_or(Errno::ENOENT)?;
    match &node.kind {
        NodeKind::Directory(_) if !removes_directory => return Err(Errno::EISDIR),
        NodeKind::Directory(_) if node.is_mounted() => return Err(Errno::EBUSY),
        NodeKind::Directory(_) if !node.names()?.lock().is_empty() => {
            return Err(Errno::ENOTEMPTY);
        }
        NodeKind::Directory(_) => {}
        _ if removes_directory => return Err(Errno::ENOTDIR),
        _ => {}
    }
    if let Some(node) = entries.remove(&name) {
        node.unlink();
        above.touch();
    }
    Ok(0)
}

/// What a path names that is to be removed or renamed: a link itself, which is ENOTDIR where
/// slashes follow its name (`filename_parentat` and `may_delete` in Linux's fs/namei.c).
fn unfollowed(tree: &Tree, path: &str) -> Result<ResolvedPath> {
    let bare = path.trim_end_matches('/');
    if bare.len() == path.len() || bare.is_empty() {
        return tree.walk(path, Last::Keep);
    }
    let place = tree.walk(bare, Last::Keep)?;
    match place.node() {
        Ok(node) if !node.is_directory() => Err(Errno::ENOTDIR),
        _ => Ok(place),
    }
}

pub(super) fn renameat(context: &Context<'_>, a: Arguments) -> Result {
    if a[4] & !u64::from(c::RENAME_NOREPLACE) != 0 {
        return Err(Errno::EINVAL);
    }
    let (from, to) = (path(context, a[0], a[1])?, path(context, a[2], a[3])?);
    let tree = &context.process.tree;
    let has_no_name = ends_in_dots(&from) || ends_in_dots(&to);
    let is_directory = from.ends_with('/') || to.ends_with('/');
    let (from, to) = (unfollowed(tree, &from)?, unfollowed(tree, &to)?);
    if is_directory && !from.node()?.is_directory() {
        return Err(Errno::ENOTDIR);
    }
    if has_no_name || from.name().is_empty() || to.name().is_empty() {
        // A directory by its place, or the root.
        return Err(Errno::EBUSY);
    }
    match (from.above()?.stored(), to.above()?.stored()) {
        (None, None) => rename_in_memory(tree, &from, &to, a[4] != 0),
        (Some(source), Some(target)) if source.is_beside(target) => {
            rename_on_volume((&from, source), (&to, target), a[4] != 0)
        }
        _ => Err(Errno::EXDEV),
    }
}

/// A directory goes only in place of a directory, and anything else only of something else.
fn both_directories(is_directory: bool, wanted: bool) -> Result<()> {
    match (is_directory, wanted) {
        (true, false) => Err(Errno::EISDIR),
        (false, true) => Err(Errno::ENOTDIR),
        _ => Ok(()),
    }
}

fn rename_on_volume(
    (from, source): (&ResolvedPath, &Stored),
    (to, target): (&ResolvedPath, &Stored),
    keeps: bool,
) -> Result {
    let node = from.node()?;
    if to.is_below(node) {
        return Err(Errno::EINVAL);
    }
    let check = |there: Option<&Arc<Node>>| {
        let Some(there) = there else {
            return Ok(true);
        };
        if keeps {
            return Err(Errno::EEXIST);
        }
        if Arc::ptr_eq(there, node) {
            return Ok(false);
        }
        if from.is_below(there) {
            return Err(Errno::ENOTEMPTY);
        }
        both_directories(there.is_directory(), node.is_directory())?;
        Ok(true)
    };
    let renamed = source.rename(from.name(), target, to.name(), check);
    renamed.map(|()| 0)
}

fn rename_in_memory(tree: &Tree, from: &ResolvedPath, to: &ResolvedPath, keeps: bool) -> Result {
    // Both directories at once: another thread sees the file under one name, and always.
    let _turn = tree.changes.lock();
    let mut source = from.above()?.names()?.lock();
    let mut target = if Arc::ptr_eq(from.above()?, to.above()?) {
        None
    } else {
        Some(to.above()?.names()?.lock())
    };
    let node = source.get(from.name()).cloned().ok_or(Errno::ENOENT)?;
    if node.is_mounted() {
        return Err(Errno::EBUSY);
    }
    if to.is_below(&node) {
        return Err(Errno::EINVAL);
    }
    if let Some(there) = target.as_deref().unwrap_or(&*source).get(to.name()) {
        if keeps {
            return Err(Errno::EEXIST);
        }
        if Arc::ptr_eq(there, &node) {
            return Ok(0);
        }
        if there.is_mounted() {
            return Err(Errno::EBUSY);
        }
        if from.is_below(there) {
            // Maybe locked already, and not empty: what is renamed is in it.
            return Err(Errno::ENOTEMPTY);
        }
        both_directories(there.is_directory(), node.is_directory())?;
        if there.is_directory() && !there.names()?.lock().is_empty() {
            return Err(Errno::ENOTEMPTY);
        }
    }
    source.remove(from.name());
    let replaced = target
        .as_deref_mut()
        .unwrap_or(&mut *source)
        .insert(to.name().into(), node);
    if let Some(replaced) = replaced {
        replaced.unlink();
    }
    from.above()?.touch();
    to.above()?.touch();
    Ok(0)
}

/// Whether a path ends in `.` or `..`.
fn ends_in_dots(path: &str) -> bool {
    matches!(last_name(path), Some("." | ".."))
}

fn last_name(path: &str) -> Option<&str> {
    path.trim_end_matches('/').rsplit('/').next()
}
