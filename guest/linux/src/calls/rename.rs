//! Names that go and change (`unlink(2)`, `rmdir(2)`, `rename(2)`).

use alloc::borrow::ToOwned;
use alloc::sync::Arc;

use linux_raw_sys::general as c;

use super::arguments::Arguments;
use super::files::path;
use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::files::regular::held_of;
use crate::files::stored::Stored;
use crate::files::tree::{Last, Node, NodeKind, ResolvedPath, Tree};
use crate::files::{MOST, inotify};

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
    let node = match above.stored() {
        Some(stored) => unlink_on_volume(stored, &name, removes_directory)?,
        None => unlink_in_memory(&context.process.tree, &above, &name, removes_directory)?,
    };
    let from = (&above, name.as_str());
    follow(context, &node, from, None);
    // In the order of `vfs_unlink` and `vfs_rmdir` in Linux's fs/namei.c.
    let kind = if removes_directory {
        c::IN_ISDIR
    } else {
        inotify::notify_node(&node, c::IN_ATTRIB);
        0
    };
    inotify::notify_gone(&node);
    inotify::notify_entry(&above, &name, c::IN_DELETE | kind);
    Ok(0)
}

/// Removes a name of a volume; gives what had it.
fn unlink_on_volume(above: &Stored, name: &str, removes_directory: bool) -> Result<Arc<Node>> {
    let mut removed = None;
    above.unlink(name, removes_directory, |node| {
        removed = Some(node.clone());
        both_directories(node.is_directory(), removes_directory)
    })?;
    removed.ok_or(Errno::ENOENT)
}

/// The same in memory.
fn unlink_in_memory(
    tree: &Tree,
    above: &Arc<Node>,
    name: &str,
    removes_directory: bool,
) -> Result<Arc<Node>> {
    let _turn = tree.changes.lock();
    let mut entries = above.names()?.lock();
    let node = entries.get(name).ok_or(Errno::ENOENT)?;
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
    let node = entries.remove(name).ok_or(Errno::ENOENT)?;
    node.unlink();
    above.touch();
    Ok(node)
}

/// Open files of a name that moved, or was removed, know that.
fn follow(
    context: &Context<'_>,
    node: &Arc<Node>,
    from: (&Arc<Node>, &str),
    to: Option<(&Arc<Node>, &str)>,
) {
    if !node.is_open() {
        return;
    }
    context.process.files.lock().each(0..=MOST, |slot| {
        let open = slot.iter().map(|slot| slot.open.file.as_ref());
        let held = open.filter_map(held_of);
        held.filter(|held| Arc::ptr_eq(&held.node, node))
            .for_each(|held| held.follow(from, to));
    });
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
    let renamed = match (from.above()?.stored(), to.above()?.stored()) {
        (None, None) => rename_in_memory(tree, &from, &to, a[4] != 0)?,
        (Some(source), Some(target)) if source.is_beside(target) => {
            rename_on_volume((&from, source), (&to, target), a[4] != 0)?
        }
        _ => return Err(Errno::EXDEV),
    };
    if let Some(Renamed { node, replaced }) = renamed {
        let (from, to) = ((from.above()?, from.name()), (to.above()?, to.name()));
        if let Some(replaced) = &replaced {
            follow(context, replaced, to, None);
        }
        follow(context, &node, from, Some(to));
        inotify::notify_moved(&node, from, to, replaced.as_ref());
        if let Some(replaced) = &replaced {
            inotify::notify_gone(replaced);
        }
    }
    Ok(0)
}

/// What has another name, and what had that before.
struct Renamed {
    node: Arc<Node>,
    replaced: Option<Arc<Node>>,
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
) -> Result<Option<Renamed>> {
    let node = from.node()?;
    if to.is_below(node) {
        return Err(Errno::EINVAL);
    }
    let (mut is_same, mut replaced) = (false, None);
    let check = |there: Option<&Arc<Node>>| {
        let Some(there) = there else {
            return Ok(true);
        };
        if keeps {
            return Err(Errno::EEXIST);
        }
        if Arc::ptr_eq(there, node) {
            is_same = true;
            return Ok(false);
        }
        replaced = Some(there.clone());
        if from.is_below(there) {
            return Err(Errno::ENOTEMPTY);
        }
        both_directories(there.is_directory(), node.is_directory())?;
        Ok(true)
    };
    source.rename(from.name(), target, to.name(), check)?;
    let node = node.clone();
    Ok((!is_same).then_some(Renamed { node, replaced }))
}

fn rename_in_memory(
    tree: &Tree,
    from: &ResolvedPath,
    to: &ResolvedPath,
    keeps: bool,
) -> Result<Option<Renamed>> {
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
            return Ok(None);
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
        .insert(to.name().into(), node.clone());
    if let Some(replaced) = &replaced {
        replaced.unlink();
    }
    from.above()?.touch();
    to.above()?.touch();
    Ok(Some(Renamed { node, replaced }))
}

/// Whether a path ends in `.` or `..`.
fn ends_in_dots(path: &str) -> bool {
    matches!(last_name(path), Some("." | ".."))
}

fn last_name(path: &str) -> Option<&str> {
    path.trim_end_matches('/').rsplit('/').next()
}
