//! Files by path (`open(2)`, `rename(2)`, `unlink(2)` and their kin).

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use linux_raw_sys::general as c;
use tare_libos::sync::SpinLock;
use tare_program::offered::{DESCRIPTORS, DeviceFile, OWN_FILE, OpenFlag};

use super::arguments::Arguments;
use super::descriptors::insert;
use super::descriptors::open as opened;
use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::files::regular::{Directory, Regular, node_of};
use crate::files::tree::{Last, Node, NodeKind};
use crate::files::{Bytes, File, Open};

pub(super) const AT_FDCWD: i32 = -100;
/// `utimensat`: now, and no change.
const UTIME_NOW: u64 = (1 << 30) - 1;
const UTIME_OMIT: u64 = (1 << 30) - 2;
const X_OK: u64 = 1;

/// A path as the tree takes it: absolute.
pub(super) fn absolute(context: &Context<'_>, directory: u64, path: &str) -> Result<String> {
    if path.starts_with('/') {
        return Ok(path.into());
    }
    let base = match directory as i32 {
        AT_FDCWD => context.process.directory.lock().clone(),
        _ => {
            let open = opened(context, directory)?;
            let directory = open.file.as_kind::<Directory>().ok_or(Errno::ENOTDIR)?;
            directory.path.clone()
        }
    };
    Ok(format!("{base}/{path}"))
}

pub(super) fn path(context: &Context<'_>, directory: u64, address: u64) -> Result<String> {
    let text = context.process.text(address)?;
    if text.is_empty() {
        return Err(Errno::ENOENT);
    }
    absolute(context, directory, &text)
}

/// What is at a path.
pub(super) fn find(
    context: &Context<'_>,
    directory: u64,
    name: u64,
    last: Last,
) -> Result<Arc<Node>> {
    let path = path(context, directory, name)?;
    context.process.tree.find(&path, last)
}

/// The directory and the name for a new entry, which must not be there.
fn place(context: &Context<'_>, directory: u64, name: u64) -> Result<(Arc<Node>, String)> {
    let path = path(context, directory, name)?;
    let tree = &context.process.tree;
    let (above, name) = tree.find_above(path.trim_end_matches('/'), Last::Keep)?;
    if name.is_empty() || above.entries()?.lock().contains_key(&name) {
        return Err(Errno::EEXIST);
    }
    Ok((above, name))
}

/// Permissions of a new file, less what `umask` takes.
pub(super) fn masked(context: &Context<'_>, mode: u64) -> u32 {
    mode as u32 & !context.process.mask.load(Ordering::Relaxed)
}

/// The descriptor that a path stands for: Linux has links to `/proc/self/fd` there.
fn descriptor(path: &str) -> Option<&str> {
    let streams = [DeviceFile::Stdin, DeviceFile::Stdout, DeviceFile::Stderr];
    let stream = streams.iter().position(|stream| stream.value() == path);
    let mut before = DESCRIPTORS.iter();
    match stream {
        Some(number) => ["0", "1", "2"].get(number).copied(),
        None => before.find_map(|before| path.strip_prefix(before)),
    }
}

pub(super) fn openat(
    context: &Context<'_>,
    directory: u64,
    name: u64,
    flags: u64,
    mode: u64,
) -> Result {
    let path = path(context, directory, name)?;
    let flags = flags as u32 & (c::O_ACCMODE | OpenFlag::MASK);
    let has = |bits: u32| flags & bits == bits;
    let tree = &context.process.tree;
    if let Some(number) = descriptor(&path) {
        let number = number.parse().map_err(|_| Errno::ENOENT)?;
        let open = opened(context, number)?;
        return insert(context, open, flags);
    }
    let last = if has(c::O_NOFOLLOW) || has(c::O_CREAT | c::O_EXCL) {
        Last::Keep
    } else {
        Last::Follow
    };
    let place = tree.walk(&path, last)?;
    let node = if place.name.is_empty() {
        place.node()?
    } else {
        // Under one lock: of several threads, one makes the file.
        let mut entries = place.above()?.entries()?.lock();
        match entries.get(&place.name).cloned() {
            Some(_) if has(c::O_CREAT | c::O_EXCL) => return Err(Errno::EEXIST),
            Some(node) => node,
            None if !has(c::O_CREAT) => return Err(Errno::ENOENT),
            None => {
                let kind = NodeKind::File(Bytes::new(&[]));
                let node = Node::new(kind, masked(context, mode), tare_hal::clock::wall_ns());
                entries.insert(place.name.clone(), node.clone());
                node
            }
        }
    };
    let writes = flags & c::O_ACCMODE != c::O_RDONLY;
    if has(c::O_DIRECTORY) && !node.is_directory() {
        return Err(Errno::ENOTDIR);
    }
    let file: Arc<dyn File> = match &node.kind {
        NodeKind::Directory(_) if writes || flags & (c::O_TRUNC | c::O_CREAT) != 0 => {
            return Err(Errno::EISDIR);
        }
        NodeKind::Directory(_) => Arc::new(Directory {
            node: node.clone(),
            listing: SpinLock::default(),
            path: place.path,
        }),
        NodeKind::Link(_) => return Err(Errno::ELOOP),
        NodeKind::Socket(_) => return Err(Errno::ENXIO),
        NodeKind::Device(device) => Arc::new(*device),
        NodeKind::File(bytes) => {
            if has(c::O_TRUNC) {
                bytes.set_len(0)?;
            }
            Arc::new(Regular {
                node: node.clone(),
                bytes: bytes.clone(),
                position: AtomicU64::new(0),
                turn: SpinLock::new(()),
                appends: AtomicBool::new(has(c::O_APPEND)),
                path: place.path,
            })
        }
    };
    insert(
        context,
        Open::new(
            file,
            flags & !(c::O_CREAT | c::O_EXCL | c::O_TRUNC | c::O_CLOEXEC),
        ),
        flags,
    )
}

pub(super) fn readlinkat(
    context: &Context<'_>,
    directory: u64,
    name: u64,
    to: u64,
    length: u64,
) -> Result {
    if length as i32 <= 0 {
        return Err(Errno::EINVAL);
    }
    let path = path(context, directory, name)?;
    let target = if path == OWN_FILE {
        context.process.path.clone()
    } else if let Some(number) = path.strip_prefix("/proc/self/fd/") {
        let number = number.parse().map_err(|_| Errno::ENOENT)?;
        opened(context, number)?.file.name()
    } else {
        match &context.process.tree.find(&path, Last::Keep)?.kind {
            NodeKind::Link(target) => target.clone(),
            _ => return Err(Errno::EINVAL),
        }
    };
    let count = target.len().min(length as usize);
    context.process.write(to, &target.as_bytes()[..count])?;
    Ok(count as u64)
}

pub(super) fn access(context: &Context<'_>, directory: u64, name: u64, mode: u64) -> Result {
    if mode > 7 {
        return Err(Errno::EINVAL);
    }
    let node = find(context, directory, name, Last::Follow)?;
    if mode & X_OK != 0 && !node.is_executable() {
        return Err(Errno::EACCES);
    }
    Ok(0)
}

pub(super) fn mkdirat(context: &Context<'_>, directory: u64, name: u64, mode: u64) -> Result {
    let (above, name) = place(context, directory, name)?;
    let node = Node::directory();
    node.set_permissions(masked(context, mode));
    node.touch();
    add(&above, name, node)
}

/// `symlink(2)`.
pub(super) fn symlinkat(context: &Context<'_>, target: u64, directory: u64, name: u64) -> Result {
    let target = context.process.text(target)?;
    if target.is_empty() {
        return Err(Errno::ENOENT);
    }
    let (above, name) = place(context, directory, name)?;
    let now = tare_hal::clock::wall_ns();
    add(&above, name, Node::new(NodeKind::Link(target), 0o777, now))
}

/// `link(2)`.
pub(super) fn linkat(context: &Context<'_>, a: Arguments) -> Result {
    let last = match a[4] as u32 & c::AT_SYMLINK_FOLLOW {
        0 => Last::Keep,
        _ => Last::Follow,
    };
    let node = find(context, a[0], a[1], last)?;
    let (above, name) = place(context, a[2], a[3])?;
    if node.is_directory() {
        return Err(Errno::EPERM);
    }
    node.link();
    add(&above, name, node)
}

/// Adds an entry, unless another thread did meanwhile.
pub(super) fn add(above: &Node, name: String, node: Arc<Node>) -> Result {
    let mut entries = above.entries()?.lock();
    if entries.contains_key(&name) {
        return Err(Errno::EEXIST);
    }
    entries.insert(name, node);
    Ok(0)
}

pub(super) fn unlinkat(context: &Context<'_>, directory: u64, name: u64, flags: u64) -> Result {
    let path = path(context, directory, name)?;
    let (above, name) = context.process.tree.find_above(&path, Last::Keep)?;
    let removes_directory = flags as u32 & c::AT_REMOVEDIR != 0;
    match last_name(&path) {
        Some(".") if removes_directory => return Err(Errno::EINVAL),
        Some("..") if removes_directory => return Err(Errno::ENOTEMPTY),
        Some("." | "..") => return Err(Errno::EISDIR),
        _ => {}
    }
    let _turn = context.process.tree.changes.lock();
    let mut entries = above.entries()?.lock();
    let node = entries.get(&name).ok_or(Errno::ENOENT)?;
    match &node.kind {
        NodeKind::Directory(_) if !removes_directory => return Err(Errno::EISDIR),
        NodeKind::Directory(own) if !own.lock().is_empty() => return Err(Errno::ENOTEMPTY),
        NodeKind::Directory(_) => {}
        _ if removes_directory => return Err(Errno::ENOTDIR),
        _ => {}
    }
    if let Some(node) = entries.remove(&name) {
        node.unlink();
    }
    Ok(0)
}

pub(super) fn renameat(context: &Context<'_>, a: Arguments) -> Result {
    if a[4] & !u64::from(c::RENAME_NOREPLACE) != 0 {
        return Err(Errno::EINVAL);
    }
    let (from, to) = (path(context, a[0], a[1])?, path(context, a[2], a[3])?);
    let tree = &context.process.tree;
    let has_no_name = ends_in_dots(&from) || ends_in_dots(&to);
    let (from, to) = (tree.walk(&from, Last::Keep)?, tree.walk(&to, Last::Keep)?);
    if has_no_name || from.name.is_empty() || to.name.is_empty() {
        // A directory by its place, or the root.
        return Err(Errno::EBUSY);
    }
    // Both directories at once: another thread sees the file under one name, and always.
    let _turn = tree.changes.lock();
    let mut source = from.above()?.entries()?.lock();
    let mut target = if Arc::ptr_eq(from.above()?, to.above()?) {
        None
    } else {
        Some(to.above()?.entries()?.lock())
    };
    let node = source.get(&from.name).cloned().ok_or(Errno::ENOENT)?;
    if to.is_below(&node) {
        return Err(Errno::EINVAL);
    }
    if let Some(there) = target.as_deref().unwrap_or(&*source).get(&to.name) {
        if a[4] != 0 {
            return Err(Errno::EEXIST);
        }
        if Arc::ptr_eq(there, &node) {
            return Ok(0);
        }
        if from.is_below(there) {
            // Maybe locked already, and not empty: what is renamed is in it.
            return Err(Errno::ENOTEMPTY);
        }
        match (&there.kind, node.is_directory()) {
            (NodeKind::Directory(own), true) if own.lock().is_empty() => {}
            (NodeKind::Directory(_), true) => return Err(Errno::ENOTEMPTY),
            (NodeKind::Directory(_), false) => return Err(Errno::EISDIR),
            (_, true) => return Err(Errno::ENOTDIR),
            (_, false) => {}
        }
    }
    source.remove(&from.name);
    let replaced = target
        .as_deref_mut()
        .unwrap_or(&mut *source)
        .insert(to.name.clone(), node);
    if let Some(replaced) = replaced {
        replaced.unlink();
    }
    Ok(0)
}

/// Whether a path ends in `.` or `..`.
fn ends_in_dots(path: &str) -> bool {
    matches!(last_name(path), Some("." | ".."))
}

fn last_name(path: &str) -> Option<&str> {
    path.trim_end_matches('/').rsplit('/').next()
}

pub(super) fn chmod(context: &Context<'_>, directory: u64, name: u64, mode: u64) -> Result {
    find(context, directory, name, Last::Follow)?.set_permissions(mode as u32);
    Ok(0)
}

/// `chown(2)`: everything is root's; the file must be there.
pub(super) fn chown(context: &Context<'_>, directory: u64, name: u64) -> Result {
    find(context, directory, name, Last::Follow).map(|_| 0)
}

/// `truncate(2)`.
pub(super) fn truncate(context: &Context<'_>, name: u64, length: u64) -> Result {
    if length > i64::MAX as u64 {
        return Err(Errno::EINVAL);
    }
    let node = find(context, AT_FDCWD as u64, name, Last::Follow)?;
    match &node.kind {
        NodeKind::File(bytes) => bytes.set_len(length)?,
        NodeKind::Directory(_) => return Err(Errno::EISDIR),
        _ => return Err(Errno::EINVAL),
    }
    node.touch();
    Ok(0)
}

/// `utimensat(2)`: the time of change; that of access is the same.
pub(super) fn utimensat(context: &Context<'_>, a: Arguments) -> Result {
    let [directory, name, times, flags, ..] = a;
    let node = if name == 0 {
        node_of(opened(context, directory)?.file.as_ref()).cloned()
    } else {
        let last = match flags as u32 & c::AT_SYMLINK_NOFOLLOW {
            0 => Last::Follow,
            _ => Last::Keep,
        };
        Some(find(context, directory, name, last)?)
    };
    let now = tare_hal::clock::wall_ns();
    let ns = match times {
        0 => now,
        at => {
            let (seconds, ns) = (
                context.process.u64(at.wrapping_add(16))?,
                context.process.u64(at.wrapping_add(24))?,
            );
            match ns {
                UTIME_OMIT => return Ok(0),
                UTIME_NOW => now,
                0..1_000_000_000 => seconds.saturating_mul(1_000_000_000).saturating_add(ns),
                _ => return Err(Errno::EINVAL),
            }
        }
    };
    if let Some(node) = node {
        node.set_modified(ns);
    }
    Ok(0)
}

pub(super) fn getcwd(context: &Context<'_>, to: u64, length: u64) -> Result {
    let mut directory = context.process.directory.lock().clone();
    if directory.is_empty() {
        directory.push('/');
    }
    directory.push('\0');
    if directory.len() as u64 > length {
        return Err(Errno::ERANGE);
    }
    context.process.write(to, directory.as_bytes())?;
    Ok(directory.len() as u64)
}

pub(super) fn chdir(context: &Context<'_>, name: u64) -> Result {
    let path = path(context, AT_FDCWD as u64, name)?;
    let place = context.process.tree.walk(&path, Last::Follow)?;
    place.node()?.entries()?;
    *context.process.directory.lock() = place.path;
    Ok(0)
}

/// `fchdir(2)`.
pub(super) fn fchdir(context: &Context<'_>, number: u64) -> Result {
    let open = opened(context, number)?;
    let directory = open.file.as_kind::<Directory>().ok_or(Errno::ENOTDIR)?;
    *context.process.directory.lock() = directory.path.clone();
    Ok(0)
}

/// `umask(2)`.
pub(super) fn umask(context: &Context<'_>, mask: u64) -> Result {
    let mask = mask as u32 & 0o777;
    Ok(context.process.mask.swap(mask, Ordering::Relaxed).into())
}
