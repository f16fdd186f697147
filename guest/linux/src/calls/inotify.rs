//! Watching files (`inotify_init(2)`, `inotify_add_watch(2)`, `inotify_rm_watch(2)`; kernel
//! `fs/notify/inotify/inotify_user.c`).

use alloc::sync::Arc;

use linux_raw_sys::general as c;

use super::descriptors::{insert, open as opened};
use super::files::{AT_FDCWD, target};
use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::files::Open;
use crate::files::inotify::Inotify;
use crate::files::tree::Last;

/// What a mask may have (`ALL_INOTIFY_BITS`).
const MASK: u32 = c::IN_ALL_EVENTS
    | c::IN_UNMOUNT
    | c::IN_Q_OVERFLOW
    | c::IN_IGNORED
    | c::IN_ONLYDIR
    | c::IN_DONT_FOLLOW
    | c::IN_EXCL_UNLINK
    | c::IN_MASK_CREATE
    | c::IN_MASK_ADD
    | c::IN_ISDIR
    | c::IN_ONESHOT;

/// `inotify_init1(2)`.
pub(super) fn init(context: &Context<'_>, flags: u64) -> Result {
    let flags = flags as u32;
    if flags & !(c::O_CLOEXEC | c::O_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    let open = Open::new(Arc::new(Inotify::new()?), flags & c::O_NONBLOCK);
    insert(context, open, flags)
}

/// `inotify_add_watch(2)`.
pub(super) fn add_watch(context: &Context<'_>, number: u64, name: u64, mask: u64) -> Result {
    let mask = mask as u32;
    if mask & !MASK != 0 || mask == 0 {
        return Err(Errno::EINVAL);
    }
    let open = opened(context, number)?;
    let has = |bits: u32| mask & bits == bits;
    if has(c::IN_MASK_ADD | c::IN_MASK_CREATE) {
        return Err(Errno::EINVAL);
    }
    let instance = open.file.as_kind::<Inotify>().ok_or(Errno::EINVAL)?;
    let last = if has(c::IN_DONT_FOLLOW) {
        Last::Keep
    } else {
        Last::Follow
    };
    let target = target(context, AT_FDCWD as u64, name, last)?;
    let node = target.node()?.ok_or(Errno::ENOENT)?;
    if has(c::IN_ONLYDIR) && !node.is_directory() {
        return Err(Errno::ENOTDIR);
    }
    let number = instance.watch_node(node, mask)?;
    Ok(number as u64)
}

/// `inotify_rm_watch(2)`.
pub(super) fn remove_watch(context: &Context<'_>, number: u64, watch: u64) -> Result {
    let open = opened(context, number)?;
    let instance = open.file.as_kind::<Inotify>().ok_or(Errno::EINVAL)?;
    instance.unwatch_node(watch as i32).map(|()| 0)
}
