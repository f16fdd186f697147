//! Files by path (`open(2)`, `rename(2)`, `unlink(2)` and their kin).

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use linux_raw_sys::general as c;
use tare_libos::sync::Mutex;
use tare_program::names;
use tare_program::offered::{DESCRIPTORS, DeviceFile, OWN_FILE, OpenFlag};

use super::arguments::Arguments;
use super::descriptors::{given, insert, open as opened};
use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::files::held::Held;
use crate::files::inotify;
use crate::files::regular::{Directory, Regular, held_of, node_of, notify};
use crate::files::tree::{Last, MOST_LINKS, Node, NodeKind, ResolvedPath, Tree};
use crate::files::{Bytes, File, Open};
use crate::kernel_files;
use crate::volume::New;

pub(super) const AT_FDCWD: i32 = -100;
/// `utimensat`: now, and no change.
const UTIME_NOW: u64 = (1 << 30) - 1;
const UTIME_OMIT: u64 = (1 << 30) - 2;
/// What stands before a descriptor's number for who knows the process by its number.
const OWN_DESCRIPTORS: &str = "/proc/1/fd/";
const X_OK: u64 = 1;
const W_OK: u64 = 2;

/// A path as the tree takes it: absolute.
pub(super) fn absolute(context: &Context<'_>, directory: u64, path: String) -> Result<String> {
    if path.starts_with('/') {
        return Ok(path);
    }
    let base = path_of_directory(context, directory)?;
    Ok(format!("{base}/{path}"))
}

/// The path of a directory's descriptor, or of the working directory.
pub(super) fn path_of_directory(context: &Context<'_>, directory: u64) -> Result<String> {
    if directory as i32 == AT_FDCWD {
        return Ok(context.process.directory.lock().clone());
    }
    let open = opened(context, directory)?;
    let directory = open.file.as_kind::<Directory>().ok_or(Errno::ENOTDIR)?;
    Ok(directory.held.path.clone())
}

pub(super) fn path(context: &Context<'_>, directory: u64, address: u64) -> Result<String> {
    let text = context.process.text(address)?;
    if text.is_empty() {
        return Err(Errno::ENOENT);
    }
    absolute(context, directory, text)
}

/// What a call is about: something at a path, or an open file.
pub(super) enum Target {
    Place(ResolvedPath),
    Open(Arc<Open>),
}

impl Target {
    /// None for an open file of another kind than the tree's.
    pub(super) fn node(&self) -> Result<Option<&Arc<Node>>> {
        match self {
            Self::Place(place) => place.node().map(Some),
            Self::Open(open) => Ok(node_of(open.file.as_ref())),
        }
    }

    /// Reports a change to its watches and those of its directory.
    pub(super) fn notify_change(&self, event: u32) {
        match self {
            Self::Place(place) => {
                if let Ok(node) = place.node() {
                    inotify::notify_child(node, place.entry(), event, None);
                }
            }
            Self::Open(open) => {
                if let Some(held) = held_of(open.file.as_ref()) {
                    held.notify_change(event);
                }
            }
        }
    }
}

/// What is at a path, with its place.
pub(super) fn target(
    context: &Context<'_>,
    directory: u64,
    name: u64,
    last: Last,
) -> Result<Target> {
    let path = path(context, directory, name)?;
    if let Some(number) = descriptor(&path)
        && last == Last::Follow
    {
        let number = number.parse().map_err(|_| Errno::ENOENT)?;
        let open = opened(context, number)?;
        if node_of(open.file.as_ref()).is_some() {
            return Ok(Target::Open(open));
        }
    }
    let place = context.process.tree.walk(&path, last)?;
    place.node()?;
    Ok(Target::Place(place))
}

/// What is at a path.
pub(super) fn find(
    context: &Context<'_>,
    directory: u64,
    name: u64,
    last: Last,
) -> Result<Arc<Node>> {
    let target = target(context, directory, name, last)?;
    target.node()?.cloned().ok_or(Errno::ENOENT)
}

/// What is at a path, or the descriptor itself for an empty one with `AT_EMPTY_PATH`.
fn target_at(
    context: &Context<'_>,
    directory: u64,
    name: u64,
    flags: u64,
    offered: u32,
) -> Result<Target> {
    let flags = flags as u32;
    if flags & !(offered | c::AT_EMPTY_PATH | c::AT_SYMLINK_NOFOLLOW) != 0 {
        return Err(Errno::EINVAL);
    }
    if flags & c::AT_EMPTY_PATH != 0
        && directory as i32 != AT_FDCWD
        && context.process.text(name)?.is_empty()
    {
        return opened(context, directory).map(Target::Open);
    }
    let last = match flags & c::AT_SYMLINK_NOFOLLOW {
        0 => Last::Follow,
        _ => Last::Keep,
    };
    target(context, directory, name, last)
}

/// The directory and the name for a new entry, which must not be there.
fn place(context: &Context<'_>, directory: u64, name: u64) -> Result<(Arc<Node>, String)> {
    let path = path(context, directory, name)?;
    let tree = &context.process.tree;
    let (above, name) = tree.find_above(path.trim_end_matches('/'), Last::Keep)?;
    if name.is_empty() || above.child(&name)?.is_some() {
        return Err(Errno::EEXIST);
    }
    Ok((above, name))
}

/// The same for a file or link: its name does not end in a slash.
fn place_of_file(context: &Context<'_>, directory: u64, name: u64) -> Result<(Arc<Node>, String)> {
    let place = place(context, directory, name)?;
    if context.process.text(name)?.ends_with('/') {
        return Err(Errno::ENOENT);
    }
    Ok(place)
}

/// Permissions of a new file, less what `umask` takes.
pub(super) fn masked(context: &Context<'_>, mode: u64) -> u32 {
    mode as u32 & !context.process.mask.load(Ordering::Relaxed)
}

/// The descriptor that a path stands for: Linux has links to `/proc/self/fd` there.
pub(super) fn descriptor(path: &str) -> Option<&str> {
    let streams = [DeviceFile::Stdin, DeviceFile::Stdout, DeviceFile::Stderr];
    let stream = streams.iter().position(|stream| stream.value() == path);
    let mut before = DESCRIPTORS.iter().chain([&OWN_DESCRIPTORS]);
    match stream {
        Some(number) => ["0", "1", "2"].get(number).copied(),
        None => before.find_map(|before| path.strip_prefix(before)),
    }
}

/// The descriptor that the links at a path's end lead to, as those do that images have for their
/// logs.
fn linked_descriptor(tree: &Tree, path: &str) -> Option<String> {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        let place = tree.walk(&path, Last::Keep).ok()?;
        let NodeKind::Link { target, .. } = &place.node().ok()?.kind else {
            return None;
        };
        path = if target.starts_with('/') {
            target.clone()
        } else {
            let above = place.path.strip_suffix(place.name())?;
            format!("{above}{target}")
        };
        if let Some(number) = descriptor(&path) {
            return Some(number.to_owned());
        }
    }
    None
}

/// Where a path leads, or the number of the descriptor that it leads to.
pub(super) enum Led {
    Place(ResolvedPath),
    Descriptor(String),
}

impl Led {
    /// From the result of a walk to `path`, whose links the walk followed where `last` says so.
    pub(super) fn of(
        tree: &Tree,
        walked: Result<ResolvedPath>,
        path: &str,
        last: Last,
    ) -> Result<Self> {
        let number = match &walked {
            Ok(place) => descriptor(&place.path).map(str::to_owned),
            Err(Errno::ENOENT) if last == Last::Follow => linked_descriptor(tree, path),
            Err(_) => None,
        };
        number.map_or_else(|| walked.map(Self::Place), |it| Ok(Self::Descriptor(it)))
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
    if let Some(number) = descriptor(&path) {
        return reopen(context, number, flags);
    }
    let (tree, last) = (&context.process.tree, last_of(flags));
    match Led::of(tree, tree.walk(&path, last), &path, last)? {
        Led::Place(place) => open_place(context, place, flags, mode),
        Led::Descriptor(number) => reopen(context, &number, flags),
    }
}

/// Opens again what is open as `number`: a file or directory for itself, with its own position
/// (`proc(5)`), anything else as another descriptor of the same.
pub(super) fn reopen(context: &Context<'_>, number: &str, flags: u64) -> Result {
    let number = number.parse().map_err(|_| Errno::ENOENT)?;
    let open = opened(context, number).map_err(|_| Errno::ENOENT)?;
    let flags = flags as u32 & (c::O_ACCMODE | OpenFlag::MASK);
    if flags & (c::O_CREAT | c::O_EXCL) == c::O_CREAT | c::O_EXCL {
        return Err(Errno::EEXIST);
    }
    match held_of(open.file.as_ref()) {
        Some(held) => open_node(context, held.again(), flags),
        None => insert(context, open, flags),
    }
}

/// Whether a link at the end of the path counts, by flags of `open`.
pub(super) fn last_of(flags: u64) -> Last {
    let has = |bits: u32| flags as u32 & bits == bits;
    if has(c::O_NOFOLLOW) || has(c::O_CREAT | c::O_EXCL) {
        Last::Keep
    } else {
        Last::Follow
    }
}

/// Opens, and makes where the flags say so, what is at a place.
pub(super) fn open_place(
    context: &Context<'_>,
    place: ResolvedPath,
    flags: u64,
    mode: u64,
) -> Result {
    let mut flags = flags as u32 & (c::O_ACCMODE | OpenFlag::MASK);
    let has = |bits: u32| flags & bits == bits;
    let node = if has(c::O_CREAT) && !place.name().is_empty() {
        if place.must_be_directory && place.node().is_err() {
            return Err(Errno::EISDIR);
        }
        let permissions = masked(context, mode);
        let (node, is_new) = place.above()?.child_or_new(place.name(), permissions)?;
        if !is_new && has(c::O_EXCL) {
            return Err(Errno::EEXIST);
        }
        if is_new {
            // There is nothing to cut.
            flags &= !c::O_TRUNC;
            inotify::notify_entry(place.above()?, place.name(), c::IN_CREATE);
        }
        node
    } else {
        place.node()?.clone()
    };
    let directory = place.above()?.clone();
    let held = Held::new(node, place.path, Some(directory));
    open_node(context, held, flags)
}

/// Opens a node with the flags that are known.
fn open_node(context: &Context<'_>, held: Held, flags: u32) -> Result {
    let node = held.node.clone();
    let has = |bits: u32| flags & bits == bits;
    let writes = flags & c::O_ACCMODE != c::O_RDONLY;
    if has(c::O_DIRECTORY) && !node.is_directory() {
        return Err(Errno::ENOTDIR);
    }
    let file: Arc<dyn File> = match &node.kind {
        NodeKind::Directory(_) if writes || flags & (c::O_TRUNC | c::O_CREAT) != 0 => {
            return Err(Errno::EISDIR);
        }
        NodeKind::Directory(_) => Arc::new(Directory {
            held,
            listing: Mutex::default(),
        }),
        NodeKind::Link { .. } => return Err(Errno::ELOOP),
        NodeKind::Socket { .. } | NodeKind::Special(_) => return Err(Errno::ENXIO),
        NodeKind::Device(device) => Arc::new(*device),
        NodeKind::Kernel(_) if writes => return Err(Errno::EACCES),
        NodeKind::Kernel(file) => {
            let text = kernel_files::at_open(context.process, *file);
            let node = Node::file(Bytes::new(&names::bytes(&text)), 0o444);
            let held = Held::new(node, held.path.clone(), None);
            Arc::new(Regular::new(held, flags))
        }
        NodeKind::File(_) => {
            if writes || has(c::O_TRUNC) {
                node.may_change()?;
            }
            Arc::new(Regular::new(held, flags))
        }
    };
    let kept = flags & !(c::O_CREAT | c::O_EXCL | c::O_TRUNC | c::O_CLOEXEC);
    let open = Open::new(file, kept);
    notify(open.file.as_ref(), c::IN_OPEN);
    if has(c::O_TRUNC) && matches!(node.kind, NodeKind::File(_)) {
        context.process.set_len(&node, 0)?;
        notify(open.file.as_ref(), c::IN_MODIFY);
    }
    insert(context, open, flags)
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
        context.process.path()
    } else if let Some(number) = path.strip_prefix("/proc/self/fd/") {
        let number = number.parse().map_err(|_| Errno::ENOENT)?;
        opened(context, number)?.file.name()
    } else {
        match &context.process.tree.find(&path, Last::Keep)?.kind {
            NodeKind::Link { target, .. } => target.clone(),
            _ => return Err(Errno::EINVAL),
        }
    };
    let target = names::bytes(&target);
    let count = target.len().min(length as usize);
    context.process.write(to, &target[..count])?;
    Ok(count as u64)
}

pub(super) fn access(
    context: &Context<'_>,
    directory: u64,
    name: u64,
    mode: u64,
    flags: u64,
) -> Result {
    if mode > 7 {
        return Err(Errno::EINVAL);
    }
    let target = target_at(context, directory, name, flags, c::AT_EACCESS)?;
    let Some(node) = target.node()? else {
        return Ok(0);
    };
    if mode & W_OK != 0 {
        node.may_change()?;
    }
    if mode & X_OK != 0 && !node.is_executable()? {
        return Err(Errno::EACCES);
    }
    Ok(0)
}

pub(super) fn mkdirat(context: &Context<'_>, directory: u64, name: u64, mode: u64) -> Result {
    let (above, name) = place(context, directory, name)?;
    let permissions = masked(context, mode);
    above.make(&name, New::Directory(permissions))?;
    inotify::notify_entry(&above, &name, c::IN_CREATE | c::IN_ISDIR);
    Ok(0)
}

/// `symlink(2)`.
pub(super) fn symlinkat(context: &Context<'_>, target: u64, directory: u64, name: u64) -> Result {
    let target = context.process.text(target)?;
    if target.is_empty() {
        return Err(Errno::ENOENT);
    }
    let (above, name) = place_of_file(context, directory, name)?;
    above.make(&name, New::Link(&target))?;
    inotify::notify_entry(&above, &name, c::IN_CREATE);
    Ok(0)
}

/// `link(2)`.
pub(super) fn linkat(context: &Context<'_>, a: Arguments) -> Result {
    let last = match a[4] as u32 & c::AT_SYMLINK_FOLLOW {
        0 => Last::Keep,
        _ => Last::Follow,
    };
    let node = find(context, a[0], a[1], last)?;
    let (above, name) = place_of_file(context, a[2], a[3])?;
    if node.is_directory() {
        return Err(Errno::EPERM);
    }
    above.add_link(&name, &node)?;
    inotify::notify_node(&node, c::IN_ATTRIB);
    inotify::notify_entry(&above, &name, c::IN_CREATE);
    Ok(0)
}

pub(super) fn chmod(
    context: &Context<'_>,
    directory: u64,
    name: u64,
    mode: u64,
    flags: u64,
) -> Result {
    let target = target_at(context, directory, name, flags, 0)?;
    match target.node()? {
        // A link has no own permissions.
        Some(node) if matches!(node.kind, NodeKind::Link { .. }) => {
            return Err(Errno::EOPNOTSUPP);
        }
        Some(node) => node.set_permissions(mode as u32)?,
        None => {}
    }
    target.notify_change(c::IN_ATTRIB);
    Ok(0)
}

/// `chown(2)`: in memory everything is root's; the file must be there.
pub(super) fn chown(context: &Context<'_>, a: Arguments) -> Result {
    let target = target_at(context, a[0], a[1], a[4], 0)?;
    let (owner, group) = (given(a[2]), given(a[3]));
    if let Some(node) = target.node()? {
        node.set_owner(owner, group)?;
    }
    if owner.or(group).is_some() {
        target.notify_change(c::IN_ATTRIB);
    }
    Ok(0)
}

/// `truncate(2)`.
pub(super) fn truncate(context: &Context<'_>, name: u64, length: u64) -> Result {
    if length > i64::MAX as u64 {
        return Err(Errno::EINVAL);
    }
    let target = target(context, AT_FDCWD as u64, name, Last::Follow)?;
    if let Some(node) = target.node()? {
        context.process.set_len(node, length)?;
    }
    target.notify_change(c::IN_MODIFY);
    Ok(0)
}

/// `utimensat(2)`: in memory the time of access is that of change.
pub(super) fn utimensat(context: &Context<'_>, a: Arguments) -> Result {
    let [directory, name, times, flags, ..] = a;
    let target = if name == 0 && directory as i32 != AT_FDCWD {
        Target::Open(opened(context, directory)?)
    } else {
        let last = match flags as u32 & c::AT_SYMLINK_NOFOLLOW {
            0 => Last::Follow,
            _ => Last::Keep,
        };
        target(context, directory, name, last)?
    };
    let now = tare_hal::clock::wall_ns();
    let given = |at: u64| {
        let (seconds, ns) = (
            context.process.u64(at)?,
            context.process.u64(at.wrapping_add(8))?,
        );
        match ns {
            UTIME_OMIT => Ok(None),
            UTIME_NOW => Ok(Some(now)),
            0..1_000_000_000 => Ok(Some(
                seconds.saturating_mul(1_000_000_000).saturating_add(ns),
            )),
            _ => Err(Errno::EINVAL),
        }
    };
    let (accessed, modified) = match times {
        0 => (Some(now), Some(now)),
        at => (given(at)?, given(at.wrapping_add(16))?),
    };
    // `fsnotify_change` of Linux's include/linux/fsnotify.h.
    let event = match (accessed, modified) {
        (None, None) => return Ok(0),
        (Some(_), Some(_)) => c::IN_ATTRIB,
        (Some(_), None) => c::IN_ACCESS,
        (None, Some(_)) => c::IN_MODIFY,
    };
    if let Some(node) = target.node()? {
        node.set_times(accessed, modified)?;
    }
    target.notify_change(event);
    Ok(0)
}

/// For the calls about extended attributes (`xattr(7)`): there are none, of what is there.
pub(super) fn no_attributes(context: &Context<'_>, name: u64, last: Last) -> Result<()> {
    find(context, AT_FDCWD as u64, name, last).map(drop)
}

/// The same for one attribute of a file: its name, and a value that it is to have, must be readable.
pub(super) fn attribute(context: &Context<'_>, name: u64, value: u64, length: u64) -> Result {
    const MOST: u64 = 65_536;
    context.process.text(name)?;
    if length > 0 {
        context.process.bytes(value, length.min(MOST) as usize)?;
    }
    Err(Errno::EOPNOTSUPP)
}

pub(super) fn getcwd(context: &Context<'_>, to: u64, length: u64) -> Result {
    let mut directory = context.process.directory.lock().clone();
    if directory.is_empty() {
        directory.push('/');
    }
    directory.push('\0');
    let directory = names::bytes(&directory);
    if directory.len() as u64 > length {
        return Err(Errno::ERANGE);
    }
    context.process.write(to, &directory)?;
    Ok(directory.len() as u64)
}

pub(super) fn chdir(context: &Context<'_>, name: u64) -> Result {
    let path = path(context, AT_FDCWD as u64, name)?;
    let place = context.process.tree.walk(&path, Last::Follow)?;
    if !place.node()?.is_directory() {
        return Err(Errno::ENOTDIR);
    }
    *context.process.directory.lock() = place.path;
    Ok(0)
}

/// `fchdir(2)`.
pub(super) fn fchdir(context: &Context<'_>, number: u64) -> Result {
    let open = opened(context, number)?;
    let directory = open.file.as_kind::<Directory>().ok_or(Errno::ENOTDIR)?;
    *context.process.directory.lock() = directory.held.path.clone();
    Ok(0)
}

/// `umask(2)`.
pub(super) fn umask(context: &Context<'_>, mask: u64) -> Result {
    let mask = mask as u32 & 0o777;
    Ok(context.process.mask.swap(mask, Ordering::Relaxed).into())
}
