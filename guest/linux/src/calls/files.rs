//! Files by path and descriptor (`open(2)`, `stat(2)`, `getdents64(2)`, `fcntl(2)`...).

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use linux_raw_sys::general as c;
use linux_raw_sys::ioctl::{FIONBIO, FIONREAD, TCGETS, TIOCGWINSZ};
use tare_libos::sync::SpinLock;

use super::io::open as opened;
use crate::errno::{Errno, Result};
use crate::files::regular::{Directory, Random, Regular, Zero};
use crate::files::tree::{Device, Kind, Last, Node};
use crate::files::{Bytes, Console, Descriptor, File, Null, Open, Status};
use crate::thread::Context;

const AT_FDCWD: i32 = -100;
const F_DUPFD_CLOEXEC: u32 = 1030;
const F_GETPIPE_SZ: u32 = 1032;

/// A path as the tree takes it: absolute.
fn absolute(context: &Context<'_>, directory: u64, path: &str) -> Result<String> {
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

fn path(context: &Context<'_>, directory: u64, address: u64) -> Result<String> {
    let text = context.process.text(address)?;
    if text.is_empty() {
        return Err(Errno::ENOENT);
    }
    absolute(context, directory, &text)
}

/// Without empty names, `.` and `..`.
fn clean(path: &str) -> String {
    let mut names: Vec<&str> = Vec::new();
    for name in path.split('/') {
        match name {
            "" | "." => {}
            ".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    format!("/{}", names.join("/"))
}

pub(super) fn openat(
    context: &Context<'_>,
    directory: u64,
    name: u64,
    flags: u64,
    mode: u64,
) -> Result {
    let path = path(context, directory, name)?;
    let flags = flags as u32;
    let has = |bits: u32| flags & bits == bits;
    let tree = &context.process.tree;
    if let Some(number) = path
        .strip_prefix("/proc/self/fd/")
        .or_else(|| path.strip_prefix("/dev/fd/"))
    {
        let number = number.parse().map_err(|_| Errno::ENOENT)?;
        let open = opened(context, number)?;
        return insert(context, open, flags);
    }
    let last = if has(c::O_NOFOLLOW) {
        Last::Keep
    } else {
        Last::Follow
    };
    let (above, name) = tree.find_above(&path, last)?;
    let node = if name.is_empty() {
        above
    } else {
        // Under one lock: of several threads, one makes the file.
        let mut entries = above.entries()?.lock();
        match entries.get(&name).cloned() {
            Some(_) if has(c::O_CREAT | c::O_EXCL) => return Err(Errno::EEXIST),
            Some(node) => node,
            None if !has(c::O_CREAT) => return Err(Errno::ENOENT),
            None => {
                let kind = Kind::File(Bytes::new(Vec::new()));
                let node = Node::new(kind, mode as u32 & !0o022, tare_hal::clock::wall_ns());
                entries.insert(name, node.clone());
                node
            }
        }
    };
    let writes = flags & c::O_ACCMODE != c::O_RDONLY;
    if has(c::O_DIRECTORY) && !node.is_directory() {
        return Err(Errno::ENOTDIR);
    }
    let file: Arc<dyn File> = match &node.kind {
        Kind::Directory(_) if writes => return Err(Errno::EISDIR),
        Kind::Directory(_) => Arc::new(Directory {
            node: node.clone(),
            position: AtomicU64::new(0),
            path: clean(&path),
        }),
        Kind::Link(_) => return Err(Errno::ELOOP),
        Kind::Device(Device::Null) => Arc::new(Null),
        Kind::Device(Device::Zero) => Arc::new(Zero),
        Kind::Device(Device::Random) => Arc::new(Random),
        Kind::Device(Device::Console) => Arc::new(Console),
        Kind::File(bytes) => {
            if has(c::O_TRUNC) && writes {
                bytes.set_len(0)?;
            }
            Arc::new(Regular {
                node: node.clone(),
                bytes: bytes.clone(),
                position: AtomicU64::new(0),
                turn: SpinLock::new(()),
                appends: has(c::O_APPEND),
                path: clean(&path),
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

/// Gives an open file the first free descriptor.
pub(super) fn insert(context: &Context<'_>, open: Arc<Open>, flags: u32) -> Result {
    let descriptor = Descriptor {
        open,
        close_on_exec: flags & c::O_CLOEXEC != 0,
    };
    context.process.files.lock().insert(0, descriptor)
}

pub(super) fn close(context: &Context<'_>, number: u64) -> Result {
    let removed = context.process.files.lock().remove(number)?;
    drop(removed);
    Ok(0)
}

pub(super) fn close_range(context: &Context<'_>, first: u64, last: u64) -> Result {
    let numbers: Vec<usize> = context.process.files.lock().numbers().collect();
    for number in numbers
        .into_iter()
        .filter(|&n| (first..=last).contains(&(n as u64)))
    {
        close(context, number as u64)?;
    }
    Ok(0)
}

pub(super) fn dup(context: &Context<'_>, old: u64, new: Option<u64>, flags: u64) -> Result {
    let mut files = context.process.files.lock();
    let descriptor = Descriptor {
        open: files.get(old)?.open.clone(),
        close_on_exec: flags as u32 & c::O_CLOEXEC != 0,
    };
    let Some(new) = new else {
        return files.insert(0, descriptor);
    };
    let replaced = files
        .put(new as u32 as usize, descriptor)
        .map_err(|_| Errno::EBADF)?;
    drop(files);
    drop(replaced);
    Ok(new)
}

pub(super) fn fcntl(context: &Context<'_>, number: u64, command: u64, argument: u64) -> Result {
    let mut files = context.process.files.lock();
    let descriptor = files.get_mut(number)?;
    match command as u32 {
        c::F_GETFD => Ok(descriptor.close_on_exec.into()),
        c::F_SETFD => {
            descriptor.close_on_exec = argument & 1 != 0;
            Ok(0)
        }
        c::F_GETFL => Ok(descriptor.open.flags().into()),
        c::F_SETFL => {
            let may = c::O_APPEND | c::O_NONBLOCK;
            let kept = descriptor.open.flags() & !may;
            descriptor.open.set_flags(kept | argument as u32 & may);
            Ok(0)
        }
        command @ (c::F_DUPFD | F_DUPFD_CLOEXEC) => {
            let new = Descriptor {
                open: descriptor.open.clone(),
                close_on_exec: command == F_DUPFD_CLOEXEC,
            };
            files.insert(argument as u32 as usize, new)
        }
        // One process: its locks never conflict.
        c::F_SETLK | c::F_SETLKW => Ok(0),
        c::F_GETLK => {
            drop(files);
            context
                .process
                .write(argument, &(c::F_UNLCK as u16).to_le_bytes())?;
            Ok(0)
        }
        F_GETPIPE_SZ => Ok(65_536),
        _ => Err(Errno::EINVAL),
    }
}

pub(super) fn ioctl(context: &Context<'_>, number: u64, request: u64, argument: u64) -> Result {
    let open = opened(context, number)?;
    match request as u32 {
        FIONBIO => {
            let on = context.process.u32(argument)? != 0;
            let kept = open.flags() & !c::O_NONBLOCK;
            open.set_flags(kept | if on { c::O_NONBLOCK } else { 0 });
            Ok(0)
        }
        FIONREAD => {
            let bytes = open.file.status().bytes;
            context.process.put_u32(argument, bytes as u32)?;
            Ok(0)
        }
        // The console is no terminal: programs then write without escapes.
        TCGETS | TIOCGWINSZ => Err(Errno::ENOTTY),
        _ => Err(Errno::ENOTTY),
    }
}

/// `struct stat` of x86-64.
fn stat_bytes(status: &Status) -> [u8; 144] {
    let mut bytes = [0; 144];
    let mut put = |at: usize, value: u64| bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    put(0, 1);
    put(8, status.inode);
    put(16, status.links.max(1).into());
    put(24, status.mode.into());
    put(40, device_number(status.device));
    put(48, status.bytes);
    put(56, 4096);
    put(64, status.bytes.div_ceil(512));
    for at in [72, 88, 104] {
        put(at, status.modified_ns / 1_000_000_000);
        put(at + 8, status.modified_ns % 1_000_000_000);
    }
    bytes
}

fn device_number((major, minor): (u32, u32)) -> u64 {
    u64::from(major) << 8 | u64::from(minor)
}

/// The status of a path, or of the descriptor itself for an empty one.
fn status(context: &Context<'_>, directory: u64, name: u64, flags: u64) -> Result<Status> {
    let flags = flags as u32;
    let text = match name {
        0 => String::new(),
        name => context.process.text(name)?,
    };
    if text.is_empty() {
        if flags & c::AT_EMPTY_PATH == 0 {
            return Err(Errno::ENOENT);
        }
        if directory as i32 != AT_FDCWD {
            return Ok(opened(context, directory)?.file.status());
        }
    }
    let path = absolute(context, directory, &text)?;
    if let Some(number) = path.strip_prefix("/proc/self/fd/") {
        let number = number.parse().map_err(|_| Errno::ENOENT)?;
        return Ok(opened(context, number)?.file.status());
    }
    let last = if flags & c::AT_SYMLINK_NOFOLLOW != 0 {
        Last::Keep
    } else {
        Last::Follow
    };
    Ok(context.process.tree.find(&path, last)?.status())
}

pub(super) fn newfstatat(context: &Context<'_>, a: super::Arguments) -> Result {
    let status = status(context, a[0], a[1], a[3])?;
    context.process.write(a[2], &stat_bytes(&status))?;
    Ok(0)
}

pub(super) fn fstat(context: &Context<'_>, number: u64, to: u64) -> Result {
    let status = opened(context, number)?.file.status();
    context.process.write(to, &stat_bytes(&status))?;
    Ok(0)
}

pub(super) fn statx(context: &Context<'_>, a: super::Arguments) -> Result {
    let status = status(context, a[0], a[1], a[2])?;
    let mut bytes = [0; 256];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    // STATX_BASIC_STATS
    put(0, &0x7ff_u32.to_le_bytes());
    put(4, &4096_u32.to_le_bytes());
    put(16, &status.links.max(1).to_le_bytes());
    put(28, &(status.mode as u16).to_le_bytes());
    put(32, &status.inode.to_le_bytes());
    put(40, &status.bytes.to_le_bytes());
    put(48, &status.bytes.div_ceil(512).to_le_bytes());
    for at in [64, 80, 96, 112] {
        put(at, &(status.modified_ns / 1_000_000_000).to_le_bytes());
        put(
            at + 8,
            &((status.modified_ns % 1_000_000_000) as u32).to_le_bytes(),
        );
    }
    put(128, &status.device.0.to_le_bytes());
    put(132, &status.device.1.to_le_bytes());
    put(140, &1_u32.to_le_bytes());
    context.process.write(a[4], &bytes)?;
    Ok(0)
}

pub(super) fn getdents(context: &Context<'_>, number: u64, to: u64, length: u64) -> Result {
    let open = opened(context, number)?;
    let directory = open.file.as_kind::<Directory>().ok_or(Errno::ENOTDIR)?;
    let entries: Vec<(String, u64, u8)> = {
        let dots = [".", ".."].map(|name| (String::from(name), 1, c::DT_DIR as u8));
        let entries = directory.node.entries()?.lock();
        let listed = entries.iter().map(|(name, node)| {
            let status = node.status();
            (name.clone(), status.inode, (status.mode >> 12 & 15) as u8)
        });
        dots.into_iter().chain(listed).collect()
    };
    let position = directory.position.load(Ordering::Relaxed) as usize;
    let mut bytes = Vec::new();
    let mut listed = position;
    for (name, inode, kind) in entries.iter().skip(position) {
        let record = (19 + name.len() + 1).next_multiple_of(8);
        if bytes.len() + record > length as usize {
            break;
        }
        listed += 1;
        let start = bytes.len();
        bytes.extend_from_slice(&inode.to_le_bytes());
        bytes.extend_from_slice(&(listed as u64).to_le_bytes());
        bytes.extend_from_slice(&(record as u16).to_le_bytes());
        bytes.push(*kind);
        bytes.extend_from_slice(name.as_bytes());
        bytes.resize(start + record, 0);
    }
    if bytes.is_empty() && position < entries.len() {
        return Err(Errno::EINVAL);
    }
    context.process.write(to, &bytes)?;
    directory.position.store(listed as u64, Ordering::Relaxed);
    Ok(bytes.len() as u64)
}

pub(super) fn readlinkat(
    context: &Context<'_>,
    directory: u64,
    name: u64,
    to: u64,
    length: u64,
) -> Result {
    let path = path(context, directory, name)?;
    let target = if path == "/proc/self/exe" {
        context.process.path.clone()
    } else if let Some(number) = path.strip_prefix("/proc/self/fd/") {
        let number = number.parse().map_err(|_| Errno::ENOENT)?;
        opened(context, number)?.file.name()
    } else {
        match &context.process.tree.find(&path, Last::Keep)?.kind {
            Kind::Link(target) => target.clone(),
            _ => return Err(Errno::EINVAL),
        }
    };
    let count = target.len().min(length as usize);
    context.process.write(to, &target.as_bytes()[..count])?;
    Ok(count as u64)
}

pub(super) fn access(context: &Context<'_>, directory: u64, name: u64) -> Result {
    let path = path(context, directory, name)?;
    context.process.tree.find(&path, Last::Follow)?;
    Ok(0)
}

pub(super) fn mkdirat(context: &Context<'_>, directory: u64, name: u64, mode: u64) -> Result {
    let path = path(context, directory, name)?;
    let (above, name) = context
        .process
        .tree
        .find_above(path.trim_end_matches('/'), Last::Keep)?;
    let mut entries = above.entries()?.lock();
    if name.is_empty() || entries.contains_key(&name) {
        return Err(Errno::EEXIST);
    }
    let node = Node::directory();
    node.set_permissions(mode as u32 & !0o022);
    entries.insert(name, node);
    Ok(0)
}

pub(super) fn unlinkat(context: &Context<'_>, directory: u64, name: u64, flags: u64) -> Result {
    let path = path(context, directory, name)?;
    let (above, name) = context.process.tree.find_above(&path, Last::Keep)?;
    let removes_directory = flags as u32 & c::AT_REMOVEDIR != 0;
    let mut entries = above.entries()?.lock();
    let node = entries.get(&name).ok_or(Errno::ENOENT)?;
    match &node.kind {
        Kind::Directory(_) if !removes_directory => return Err(Errno::EISDIR),
        Kind::Directory(own) if !own.lock().is_empty() => return Err(Errno::ENOTEMPTY),
        Kind::Directory(_) => {}
        _ if removes_directory => return Err(Errno::ENOTDIR),
        _ => {}
    }
    entries.remove(&name);
    Ok(0)
}

pub(super) fn renameat(context: &Context<'_>, a: super::Arguments) -> Result {
    let (from, to) = (path(context, a[0], a[1])?, path(context, a[2], a[3])?);
    let tree = &context.process.tree;
    let (above, name) = tree.find_above(&from, Last::Keep)?;
    let node = above
        .entries()?
        .lock()
        .get(&name)
        .cloned()
        .ok_or(Errno::ENOENT)?;
    if node.is_directory() && clean(&to).starts_with(&format!("{}/", clean(&from))) {
        return Err(Errno::EINVAL);
    }
    let (target, target_name) = tree.find_above(&to, Last::Keep)?;
    if target_name.is_empty() {
        // The root.
        return Err(Errno::EBUSY);
    }
    {
        let mut entries = target.entries()?.lock();
        if let Some(there) = entries.get(&target_name) {
            if Arc::ptr_eq(there, &node) {
                return Ok(0);
            }
            match (&there.kind, node.is_directory()) {
                (Kind::Directory(own), true) if own.lock().is_empty() => {}
                (Kind::Directory(_), true) => return Err(Errno::ENOTEMPTY),
                (Kind::Directory(_), false) => return Err(Errno::EISDIR),
                (_, true) => return Err(Errno::ENOTDIR),
                (_, false) => {}
            }
        }
        entries.insert(target_name, node);
    }
    above.entries()?.lock().remove(&name);
    Ok(0)
}

pub(super) fn truncate(context: &Context<'_>, number: u64, length: u64) -> Result {
    let open = opened(context, number)?;
    let file = open.file.as_kind::<Regular>().ok_or(Errno::EINVAL)?;
    if length > i64::MAX as u64 {
        return Err(Errno::EINVAL);
    }
    file.bytes.set_len(length)?;
    file.node.touch();
    Ok(0)
}

pub(super) fn fallocate(
    context: &Context<'_>,
    number: u64,
    mode: u64,
    offset: u64,
    length: u64,
) -> Result {
    let open = opened(context, number)?;
    let file = open.file.as_kind::<Regular>().ok_or(Errno::ENODEV)?;
    if mode != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let end = offset.checked_add(length).ok_or(Errno::EFBIG)?;
    if end > file.bytes.len() {
        file.bytes.set_len(end)?;
    }
    Ok(0)
}

pub(super) fn chmod(context: &Context<'_>, directory: u64, name: u64, mode: u64) -> Result {
    let path = path(context, directory, name)?;
    context
        .process
        .tree
        .find(&path, Last::Follow)?
        .set_permissions(mode as u32);
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
    context.process.tree.find(&path, Last::Follow)?.entries()?;
    *context.process.directory.lock() = clean(&path);
    Ok(0)
}

pub(super) fn statfs(context: &Context<'_>, to: u64) -> Result {
    let mut bytes = [0; 120];
    let heap = tare_libos::heap::stats();
    let free = heap.total.saturating_sub(heap.used) / 4096;
    let words = [
        0x0102_1994,
        4096,
        heap.total / 4096,
        free,
        free,
        0,
        0,
        0,
        255,
        4096,
    ];
    for (slot, word) in bytes.chunks_mut(8).zip(words) {
        slot.copy_from_slice(&u64::to_le_bytes(word));
    }
    context.process.write(to, &bytes)?;
    Ok(0)
}
