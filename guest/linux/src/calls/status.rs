//! What is known of a file: `stat(2)`, `statx(2)`, `statfs(2)`.

use alloc::string::String;

use linux_raw_sys::general as c;

use super::arguments::Arguments;
use super::descriptors::open as opened;
use super::files::{AT_FDCWD, absolute, find};
use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::files::Status;
use crate::files::regular::node_of;
use crate::files::tree::Last;
use crate::volume::Space;

/// Kinds of file systems (kernel `include/uapi/linux/magic.h`).
const TMPFS_MAGIC: u64 = 0x0102_1994;
const EXT4_MAGIC: u64 = 0xef53;

/// `struct stat` of x86-64.
fn stat_bytes(status: &Status) -> [u8; 144] {
    let mut bytes = [0; 144];
    let mut put = |at: usize, value: u64| bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    put(0, volume_number(status));
    put(8, status.inode);
    put(16, status.links.into());
    put(24, status.mode.into());
    put(40, device_number(status.device));
    put(48, status.bytes);
    put(56, 4096);
    put(64, status.allocated / 512);
    let (user, group) = owner(status);
    put(28, u64::from(user) | u64::from(group) << 32);
    for (at, ns) in [72, 88, 104].into_iter().zip(times_ns(status)) {
        put(at, ns / 1_000_000_000);
        put(at + 8, ns % 1_000_000_000);
    }
    bytes
}

/// The device that a file is on: all in memory is on one.
fn volume_number(status: &Status) -> u64 {
    1 + u64::from(status.volume.is_some())
}

/// Owner and group.
fn owner(status: &Status) -> (u32, u32) {
    status.volume.map_or((0, 0), |volume| volume.owner)
}

/// Times of the last access, change of content and change of the inode.
fn times_ns(status: &Status) -> [u64; 3] {
    let modified = status.modified_ns;
    status.volume.map_or([modified; 3], |volume| {
        [volume.accessed_ns, modified, volume.changed_ns]
    })
}

fn device_number((major, minor): (u32, u32)) -> u64 {
    u64::from(major) << 8 | u64::from(minor)
}

/// The status of a path, or of the descriptor itself for an empty one.
fn status(context: &Context<'_>, directory: u64, name: u64, flags: u64) -> Result<Status> {
    let flags = flags as u32;
    let text = match name {
        // As from Linux 6.11 on.
        0 if flags & c::AT_EMPTY_PATH != 0 => String::new(),
        name => context.process.text(name)?,
    };
    if text.is_empty() {
        if flags & c::AT_EMPTY_PATH == 0 {
            return Err(Errno::ENOENT);
        }
        if directory as i32 != AT_FDCWD {
            return opened(context, directory)?.file.status();
        }
    }
    let path = absolute(context, directory, text)?;
    if let Some(number) = path.strip_prefix("/proc/self/fd/") {
        let number = number.parse().map_err(|_| Errno::ENOENT)?;
        return opened(context, number)?.file.status();
    }
    let last = if flags & c::AT_SYMLINK_NOFOLLOW != 0 {
        Last::Keep
    } else {
        Last::Follow
    };
    context.process.tree.find(&path, last)?.status()
}

pub(super) fn newfstatat(context: &Context<'_>, a: Arguments) -> Result {
    let status = status(context, a[0], a[1], a[3])?;
    context.process.write(a[2], &stat_bytes(&status))?;
    Ok(0)
}

pub(super) fn fstat(context: &Context<'_>, number: u64, to: u64) -> Result {
    let status = opened(context, number)?.file.status()?;
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
    let (user, group) = owner(&status);
    put(20, &user.to_le_bytes());
    put(24, &group.to_le_bytes());
    let [accessed, modified, changed] = times_ns(&status);
    // The second is that of birth, which is not kept.
    for (at, ns) in [
        (64, accessed),
        (80, modified),
        (96, changed),
        (112, modified),
    ] {
        put(at, &(ns / 1_000_000_000).to_le_bytes());
        put(at + 8, &((ns % 1_000_000_000) as u32).to_le_bytes());
    }
    put(128, &status.device.0.to_le_bytes());
    put(132, &status.device.1.to_le_bytes());
    put(140, &(volume_number(&status) as u32).to_le_bytes());
    context.process.write(a[4], &bytes)?;
    Ok(0)
}

pub(super) fn fstatfs(context: &Context<'_>, number: u64, to: u64) -> Result {
    let open = opened(context, number)?;
    let space = node_of(open.file.as_ref()).map(|node| node.space());
    put_statfs(context, to, space.transpose()?.flatten())
}

pub(super) fn statfs(context: &Context<'_>, name: u64, to: u64) -> Result {
    let node = find(context, AT_FDCWD as u64, name, Last::Follow)?;
    let space = node.space()?;
    put_statfs(context, to, space)
}

/// `struct statfs` of x86-64: of a volume, or of memory as a tmpfs.
fn put_statfs(context: &Context<'_>, to: u64, space: Option<Space>) -> Result {
    let mut bytes = [0; 120];
    let heap = tare_libos::heap::stats();
    let free = heap.total.saturating_sub(heap.used) / 4096;
    let (kind, space) = match space {
        Some(space) => (EXT4_MAGIC, space),
        None => {
            let block_bytes = 4096;
            let blocks = (heap.total / block_bytes, free);
            let space = Space {
                block_bytes,
                blocks,
                // A page for each, as Linux gives a tmpfs by its size.
                inodes: blocks,
            };
            (TMPFS_MAGIC, space)
        }
    };
    let words = [
        kind,
        space.block_bytes,
        space.blocks.0,
        space.blocks.1,
        space.blocks.1,
        space.inodes.0,
        space.inodes.1,
        0,
        255,
        space.block_bytes,
    ];
    for (slot, word) in bytes.chunks_mut(8).zip(words) {
        slot.copy_from_slice(&u64::to_le_bytes(word));
    }
    context.process.write(to, &bytes)?;
    Ok(0)
}
