//! Descriptors: `close(2)`, `dup(2)`, `fcntl(2)`, `ioctl(2)`, `flock(2)`, `getdents64(2)`.

use alloc::sync::Arc;
use alloc::vec::Vec;

use linux_raw_sys::general as c;
use tare_program::names;
use tare_program::offered::{Fcntl, Ioctl};

use super::{interfaces, memfd};
use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::files::lock::How;
use crate::files::pipe::Pipe;
use crate::files::regular::{Directory, Regular, held_of, node_of, notify};
use crate::files::stored;
use crate::files::{Descriptor, File, Open, Way};
use crate::shared;

const CLOSE_RANGE_CLOEXEC: u64 = 4;
/// Operations of `flock`.
const LOCK_SH: u64 = 1;
const LOCK_EX: u64 = 2;
const LOCK_NB: u64 = 4;
const LOCK_UN: u64 = 8;

/// The open file of a descriptor.
pub(super) fn open(context: &Context<'_>, number: u64) -> Result<Arc<Open>> {
    Ok(context.process.files.lock().get(number)?.open.clone())
}

/// Gives an open file the first free descriptor.
pub(super) fn insert(context: &Context<'_>, open: Arc<Open>, flags: u32) -> Result {
    let mut files = context.process.files.lock();
    // Before it moves: without a free number it is closed behind the lock.
    let number = files.first_free(0)?;
    let descriptor = Descriptor {
        open,
        close_on_exec: flags & c::O_CLOEXEC != 0,
    };
    files.put(number, descriptor)?;
    Ok(number as u64)
}

pub(super) fn close(context: &Context<'_>, number: u64) -> Result {
    let removed = context.process.files.lock().remove(number)?;
    drop(removed);
    Ok(0)
}

pub(super) fn close_range(context: &Context<'_>, first: u64, last: u64, flags: u64) -> Result {
    let (first, last) = (first as u32, last as u32);
    if first > last || flags & !CLOSE_RANGE_CLOEXEC != 0 {
        return Err(Errno::EINVAL);
    }
    let range = first as usize..=last as usize;
    let mut files = context.process.files.lock();
    if flags & CLOSE_RANGE_CLOEXEC != 0 {
        files.each(range, |slot| {
            slot.iter_mut().for_each(|one| one.close_on_exec = true);
        });
        return Ok(0);
    }
    // All at once: threads that open and close meanwhile are before or behind it.
    let mut removed = Vec::new();
    files.each(range, |slot| removed.extend(slot.take()));
    drop(files);
    drop(removed);
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

pub(super) fn dup3(context: &Context<'_>, old: u64, new: u64, flags: u64) -> Result {
    if old as u32 == new as u32 || flags as u32 & !c::O_CLOEXEC != 0 {
        return Err(Errno::EINVAL);
    }
    dup(context, old, Some(new), flags)
}

pub(super) fn fcntl(context: &Context<'_>, number: u64, command: u64, argument: u64) -> Result {
    let mut files = context.process.files.lock();
    let limit = files.limit;
    let descriptor = files.get_mut(number)?;
    match Fcntl::of(command as u32).ok_or(Errno::EINVAL)? {
        Fcntl::F_GETFD => Ok(descriptor.close_on_exec.into()),
        Fcntl::F_SETFD => {
            descriptor.close_on_exec = argument & 1 != 0;
            Ok(0)
        }
        Fcntl::F_GETFL => Ok(descriptor.open.flags().into()),
        Fcntl::F_SETFL => {
            let may = c::O_APPEND | c::O_NONBLOCK;
            let kept = descriptor.open.flags() & !may;
            descriptor.open.set_flags(kept | argument as u32 & may);
            Ok(0)
        }
        Fcntl::F_DUPFD | Fcntl::F_DUPFD_CLOEXEC if argument as u32 as usize >= limit => {
            Err(Errno::EINVAL)
        }
        command @ (Fcntl::F_DUPFD | Fcntl::F_DUPFD_CLOEXEC) => {
            let new = Descriptor {
                open: descriptor.open.clone(),
                close_on_exec: command == Fcntl::F_DUPFD_CLOEXEC,
            };
            files.insert(argument as u32 as usize, new)
        }
        command @ (Fcntl::F_SETLK | Fcntl::F_SETLKW | Fcntl::F_GETLK) => {
            let open = descriptor.open.clone();
            drop(files);
            record_lock(context, &open, command, argument)
        }
        Fcntl::F_SETPIPE_SZ if descriptor.open.file.as_kind::<Pipe>().is_none() => {
            Err(Errno::EINVAL)
        }
        Fcntl::F_SETPIPE_SZ | Fcntl::F_GETPIPE_SZ => Ok(65_536),
        Fcntl::F_ADD_SEALS => {
            let open = descriptor.open.clone();
            drop(files);
            memfd::add_seals(context, &open, argument)
        }
        Fcntl::F_GET_SEALS => memfd::get_seals(&descriptor.open),
    }
}

/// Locks of a part of a file: those of one process never conflict (`fcntl_locking(2)`).
fn record_lock(context: &Context<'_>, open: &Open, command: Fcntl, at: u64) -> Result {
    let bytes: [u8; 32] = context.process.array(at)?;
    let kind = u32::from(u16::from_le_bytes([bytes[0], bytes[1]]));
    let way = match kind {
        c::F_RDLCK => Some(Way::Read),
        c::F_WRLCK => Some(Way::Write),
        c::F_UNLCK if command != Fcntl::F_GETLK => None,
        _ => return Err(Errno::EINVAL),
    };
    if command == Fcntl::F_GETLK {
        context
            .process
            .write(at, &(c::F_UNLCK as u16).to_le_bytes())?;
    } else if let Some(way) = way {
        open.may(way)?;
    }
    Ok(0)
}

/// `flock(2)`.
pub(super) fn flock(context: &Context<'_>, number: u64, operation: u64) -> Result {
    let open = open(context, number)?;
    let how = match operation & !LOCK_NB {
        LOCK_SH => How::Shared,
        LOCK_EX => How::Exclusive,
        LOCK_UN => {
            open.unlock();
            return Ok(0);
        }
        _ => return Err(Errno::EINVAL),
    };
    match open.lock(how) {
        Err(Errno::EAGAIN) if operation & LOCK_NB == 0 => {}
        taken => return taken.map(|()| 0),
    }
    let lock = open.file.lock().ok_or(Errno::EINVAL)?;
    context.wait(&[lock.as_ref()], None, || open.lock(how))?;
    Ok(0)
}

pub(super) fn ioctl(context: &Context<'_>, number: u64, request: u64, argument: u64) -> Result {
    let open = open(context, number)?;
    let request = Ioctl::of(request as u32);
    match request {
        Some(Ioctl::FIONBIO) => {
            let on = context.process.u32(argument)? != 0;
            let kept = open.flags() & !c::O_NONBLOCK;
            open.set_flags(kept | if on { c::O_NONBLOCK } else { 0 });
            Ok(0)
        }
        Some(Ioctl::FIONREAD) => {
            let bytes = open.file.readable_bytes()?;
            context.process.put_u32(argument, bytes as u32)?;
            Ok(0)
        }
        Some(Ioctl::FIOCLEX | Ioctl::FIONCLEX) => {
            let mut files = context.process.files.lock();
            files.get_mut(number)?.close_on_exec = request == Some(Ioctl::FIOCLEX);
            Ok(0)
        }
        Some(Ioctl::FIOASYNC) => Ok(0),
        // The console is not a terminal: programs then write without escapes.
        Some(Ioctl::TCGETS | Ioctl::TIOCGWINSZ) | None => Err(Errno::ENOTTY),
        Some(
            request @ (Ioctl::SIOCGIFNAME
            | Ioctl::SIOCGIFCONF
            | Ioctl::SIOCGIFFLAGS
            | Ioctl::SIOCGIFADDR
            | Ioctl::SIOCGIFBRDADDR
            | Ioctl::SIOCGIFNETMASK
            | Ioctl::SIOCGIFMETRIC
            | Ioctl::SIOCGIFMTU
            | Ioctl::SIOCGIFHWADDR
            | Ioctl::SIOCGIFINDEX
            | Ioctl::SIOCGIFTXQLEN),
        ) => interfaces::request(context, &open, request, argument),
    }
}

pub(super) fn getdents(context: &Context<'_>, number: u64, to: u64, length: u64) -> Result {
    let open = open(context, number)?;
    let directory = open.file.as_kind::<Directory>().ok_or(Errno::ENOTDIR)?;
    let before = directory.seek(0, c::SEEK_CUR)?;
    let mut bytes = Vec::new();
    let has_no_room = directory.list(|(name, inode, kind, behind)| {
        let name = names::bytes(name);
        let record = (19 + name.len() + 1).next_multiple_of(8);
        if bytes.len() + record > length as usize {
            return false;
        }
        let start = bytes.len();
        bytes.extend_from_slice(&inode.to_le_bytes());
        bytes.extend_from_slice(&behind.to_le_bytes());
        bytes.extend_from_slice(&(record as u16).to_le_bytes());
        bytes.push((kind >> 12 & 15) as u8);
        bytes.extend_from_slice(&name);
        bytes.resize(start + record, 0);
        true
    })?;
    notify(open.file.as_ref(), c::IN_ACCESS);
    if has_no_room && bytes.is_empty() {
        return Err(Errno::EINVAL);
    }
    if let Err(errno) = context.process.write(to, &bytes) {
        directory.seek(before as i64, c::SEEK_SET)?;
        return Err(errno);
    }
    Ok(bytes.len() as u64)
}

pub(super) fn truncate(context: &Context<'_>, number: u64, length: u64) -> Result {
    if length > i64::MAX as u64 {
        return Err(Errno::EINVAL);
    }
    let open = open(context, number)?;
    let file = open.file.as_kind::<Regular>().ok_or(Errno::EINVAL)?;
    if open.may(Way::Write).is_err() {
        return Err(Errno::EINVAL);
    }
    context.process.set_len(&file.held.node, length)?;
    file.held.notify_change(c::IN_MODIFY);
    Ok(0)
}

/// `fsync(2)`: only files and directories have that call. Memory holds what there is.
pub(super) fn fsync(context: &Context<'_>, number: u64) -> Result {
    let open = open(context, number)?;
    context.process.write_back(&shared::ALL)?;
    open.file.sync().map(|()| 0)
}

/// `syncfs(2)`, of the volume that a file is on.
pub(super) fn syncfs(context: &Context<'_>, number: u64) -> Result {
    let open = open(context, number)?;
    if let Some(node) = node_of(open.file.as_ref()) {
        node.sync()?;
    }
    Ok(0)
}

/// `sync(2)`, which has no errors.
pub(super) fn sync(context: &Context<'_>) -> Result {
    if let Some(mounted) = stored::mounted() {
        context.process.write_back(&shared::ALL).ok();
        mounted.sync().ok();
    }
    Ok(0)
}

/// `fchmod(2)`.
pub(super) fn fchmod(context: &Context<'_>, number: u64, mode: u64) -> Result {
    let open = open(context, number)?;
    if let Some(held) = held_of(open.file.as_ref()) {
        held.node.set_permissions(mode as u32)?;
        held.notify_change(c::IN_ATTRIB);
    }
    Ok(0)
}

/// `fchown(2)`.
pub(super) fn fchown(context: &Context<'_>, number: u64, user: u64, group: u64) -> Result {
    let open = open(context, number)?;
    let (user, group) = (given(user), given(group));
    if let Some(held) = held_of(open.file.as_ref()) {
        held.node.set_owner(user, group)?;
        if user.or(group).is_some() {
            held.notify_change(c::IN_ATTRIB);
        }
    }
    Ok(0)
}

/// An owner, unless it is to stay.
pub(super) fn given(owner: u64) -> Option<u32> {
    (owner as u32 != u32::MAX).then_some(owner as u32)
}

pub(super) fn fallocate(
    context: &Context<'_>,
    number: u64,
    mode: u64,
    offset: u64,
    length: u64,
) -> Result {
    let open = open(context, number)?;
    open.may(Way::Write)?;
    let file = open.file.as_kind::<Regular>().ok_or(Errno::ENODEV)?;
    if offset > i64::MAX as u64 || length > i64::MAX as u64 || length == 0 {
        return Err(Errno::EINVAL);
    }
    if mode != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    if offset.saturating_add(length) > i64::MAX as u64 {
        return Err(Errno::EFBIG);
    }
    let range = offset..offset + length;
    let process = context.process;
    process.change(&file.held.node, range, |node| node.allocate(offset, length))?;
    file.held.notify(c::IN_MODIFY);
    Ok(0)
}
