//! `openat2(2)`: `open` with rules for the path.

use alloc::format;

use linux_raw_sys::general as c;

use super::arguments::Arguments;
use super::files::{Led, descriptor, last_of, open_place, path_of_directory, reopen};
use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::files::tree::{Above, WalkRules};

/// Bytes of `struct open_how` (`OPEN_HOW_SIZE_VER0`): flags, mode and resolve.
const HOW: usize = 24;
/// More is never read.
const PAGE: u64 = 4096;
/// All flags of `open` (`VALID_OPEN_FLAGS` of Linux's `include/linux/fcntl.h`).
const FLAGS: u32 = c::O_ACCMODE
    | c::O_CREAT
    | c::O_EXCL
    | c::O_NOCTTY
    | c::O_TRUNC
    | c::O_APPEND
    | c::O_NONBLOCK
    | c::O_SYNC
    | c::FASYNC
    | c::O_DIRECT
    | LARGE_FILE
    | c::O_DIRECTORY
    | c::O_NOFOLLOW
    | c::O_NOATIME
    | c::O_CLOEXEC
    | c::O_PATH
    | c::__O_TMPFILE;
const LARGE_FILE: u32 = 0o100_000;
/// What may go with `O_PATH`.
const PATH_FLAGS: u32 = c::O_PATH | c::O_DIRECTORY | c::O_NOFOLLOW | c::O_CLOEXEC;
const RULES: u32 = c::RESOLVE_NO_XDEV
    | c::RESOLVE_NO_MAGICLINKS
    | c::RESOLVE_NO_SYMLINKS
    | c::RESOLVE_BENEATH
    | c::RESOLVE_IN_ROOT
    | c::RESOLVE_CACHED;

/// `struct open_how`, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct How {
    flags: u64,
    mode: u64,
    resolve: u32,
}

impl How {
    /// As Linux checks them (`build_open_flags` of `fs/open.c`).
    fn of(flags: u64, mode: u64, resolve: u64) -> Result<Self> {
        let known = |all: u64, some: u32| all & !u64::from(some) == 0;
        if !known(flags, FLAGS) || !known(resolve, RULES) {
            return Err(Errno::EINVAL);
        }
        let has = |bits: u32| flags as u32 & bits != 0;
        let rule = |bits: u32| resolve as u32 & bits == bits;
        let makes = has(c::O_CREAT | c::__O_TMPFILE);
        let most_mode = if makes { 0o7777 } else { 0 };
        let is_wrong = rule(c::RESOLVE_BENEATH | c::RESOLVE_IN_ROOT)
            || mode & !most_mode != 0
            || has(c::O_PATH) && !known(flags, PATH_FLAGS);
        if is_wrong {
            return Err(Errno::EINVAL);
        }
        // What it would change may have to wait, which the program does not want.
        if rule(c::RESOLVE_CACHED) && (makes || has(c::O_TRUNC)) {
            return Err(Errno::EAGAIN);
        }
        Ok(Self {
            flags,
            mode,
            resolve: resolve as u32,
        })
    }

    fn rules(self) -> WalkRules {
        let has = |bit: u32| self.resolve & bit != 0;
        WalkRules {
            above: match (has(c::RESOLVE_BENEATH), has(c::RESOLVE_IN_ROOT)) {
                (true, _) => Above::Refused,
                (_, true) => Above::Contained,
                _ => Above::Free,
            },
            no_links: has(c::RESOLVE_NO_SYMLINKS),
            one_file_system: has(c::RESOLVE_NO_XDEV),
        }
    }
}

pub(super) fn openat2(context: &Context<'_>, a: Arguments) -> Result {
    let (directory, name) = (a[0], a[1]);
    let how = read(context, a[2], a[3])?;
    let text = context.process.text(name)?;
    if text.is_empty() {
        return Err(Errno::ENOENT);
    }
    let rules = how.rules();
    let is_absolute = text.starts_with('/');
    let start = match (is_absolute, rules.above) {
        (true, Above::Free | Above::Refused) => "/".into(),
        _ => path_of_directory(context, directory)?,
    };
    // With a directory as the root no path leads to a descriptor.
    let path = (rules.above != Above::Contained).then(|| {
        if is_absolute {
            text.clone()
        } else {
            format!("{start}/{text}")
        }
    });
    if let Some(number) = path.as_deref().and_then(descriptor) {
        return open_descriptor(context, how, number);
    }
    let (tree, last) = (&context.process.tree, last_of(how.flags));
    let walked = tree.walk_by(rules, &start, &text, last);
    let Some(path) = path.filter(|_| rules.above == Above::Free) else {
        return open_place(context, walked?, how.flags, how.mode);
    };
    match Led::of(tree, walked, &path, last)? {
        Led::Place(place) => open_place(context, place, how.flags, how.mode),
        Led::Descriptor(number) => open_descriptor(context, how, &number),
    }
}

/// Opens what a link to a descriptor leads to, which may be anywhere.
fn open_descriptor(context: &Context<'_>, how: How, number: &str) -> Result {
    let rules = how.rules();
    let follows_none = rules.no_links || how.resolve & c::RESOLVE_NO_MAGICLINKS != 0;
    if rules.above == Above::Refused || rules.one_file_system && !follows_none {
        return Err(Errno::EXDEV);
    }
    if follows_none {
        return Err(Errno::ELOOP);
    }
    reopen(context, number, how.flags)
}

/// Reads `struct open_how` of the size that the program's headers have.
fn read(context: &Context<'_>, address: u64, size: u64) -> Result<How> {
    if size < HOW as u64 {
        return Err(Errno::EINVAL);
    }
    if size > PAGE {
        return Err(Errno::E2BIG);
    }
    let bytes: [u8; HOW] = context.process.versioned(address, size as usize)?;
    let word = |at: usize| {
        let word = bytes[at..].first_chunk();
        word.map_or(0, |word| u64::from_le_bytes(*word))
    };
    How::of(word(0), word(8), word(16))
}
