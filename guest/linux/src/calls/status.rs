//! What is known of a file: `stat(2)`, `statx(2)`, `statfs(2)`.

use alloc::string::String;

use linux_raw_sys::general as c;

use super::arguments::Arguments;
use super::descriptors::open as opened;
use super::files::{AT_FDCWD, absolute, find};
use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::files::Status;
use crate::files::tree::Last;

/// `struct stat` of x86-64.
fn stat_bytes(status: &Status) -> [u8; 144] {
    let mut bytes = [0; 144];
    let mut put = |at: usize, value: u64| bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    put(0, 1);
    put(8, status.inode);
    put(16, status.links.into());
    put(24, status.mode.into());
    put(40, device_number(status.device));
    put(48, status.bytes);
    put(56, 4096);
    put(64, status.allocated / 512);
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

pub(super) fn newfstatat(context: &Context<'_>, a: Arguments) -> Result {
    let status = status(context, a[0], a[1], a[3])?;
    context.process.write(a[2], &stat_bytes(&status))?;
    Ok(0)
}

pub(super) fn fstat(context: &Context<'_>, number: u64, to: u64) -> Result {
    let status = opened(context, number)?.file.status();
    context.process.write(to, &stat_bytes(&status))?;
    Ok(0)
}

pub(super) fn statx(context: &Context<'_>, a: Arguments) -> Result {
    let status = status(context, a[0], a[1], a[2])?;
    let mut bytes = [0; 256];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    // STATX_BASIC_STATS
    put(0, &0x7ff_u32.to_le_bytes());
    put(4, &4096_u32.to_le_bytes());
    put(16, &status.links.to_le_bytes());
    put(28, &(status.mode as u16).to_le_bytes());
    put(32, &status.inode.to_le_bytes());
    put(40, &status.bytes.to_le_bytes());
    put(48, &(status.allocated / 512).to_le_bytes());
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

pub(super) fn fstatfs(context: &Context<'_>, number: u64, to: u64) -> Result {
    opened(context, number)?;
    put_statfs(context, to)
}

pub(super) fn statfs(context: &Context<'_>, name: u64, to: u64) -> Result {
    find(context, AT_FDCWD as u64, name, Last::Follow)?;
    put_statfs(context, to)
}

fn put_statfs(context: &Context<'_>, to: u64) -> Result {
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
