//! Files without a name (`memfd_create(2)`) and their seals.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;

use linux_raw_sys::general as c;
use tare_program::names;

use super::descriptors::insert;
use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::files::held::Held;
use crate::files::regular::{Regular, node_of};
use crate::files::tree::Node;
use crate::files::{Bytes, Open, Way};

const FLAGS: u32 =
    c::MFD_CLOEXEC | c::MFD_ALLOW_SEALING | c::MFD_HUGETLB | c::MFD_NOEXEC_SEAL | c::MFD_EXEC;
/// Most bytes of a name, without its NUL (kernel `mm/memfd.c`).
const MOST_NAME: usize = 249;
const LARGE_FILE: u32 = 0o100_000;

/// `memfd_create(2)`: EINVAL for other flags and a longer name, ENOSYS for huge pages, as a kernel
/// without them.
pub(super) fn memfd_create(context: &Context<'_>, name: u64, flags: u64) -> Result {
    let flags = flags as u32;
    let has = |bit: u32| flags & bit != 0;
    if flags & !FLAGS != 0 && !has(c::MFD_HUGETLB) || has(c::MFD_EXEC) && has(c::MFD_NOEXEC_SEAL) {
        return Err(Errno::EINVAL);
    }
    let name = context.process.text(name).map_err(|errno| match errno {
        Errno::ENAMETOOLONG => Errno::EINVAL,
        errno => errno,
    })?;
    if names::bytes(&name).len() > MOST_NAME {
        return Err(Errno::EINVAL);
    }
    if has(c::MFD_HUGETLB) {
        return Err(Errno::ENOSYS);
    }
    let (mode, seals) = if has(c::MFD_NOEXEC_SEAL) {
        (0o666, c::F_SEAL_EXEC)
    } else if has(c::MFD_ALLOW_SEALING) {
        (0o777, 0)
    } else {
        (0o777, c::F_SEAL_SEAL)
    };
    let node = Node::file(Bytes::new(&[]), mode);
    node.unlink();
    node.seals.begin(seals);
    let file = Regular::new(Held::new(node, path(&name), None), 0);
    let open = Open::new(Arc::new(file), c::O_RDWR | LARGE_FILE);
    let close_on_exec = if has(c::MFD_CLOEXEC) { c::O_CLOEXEC } else { 0 };
    insert(context, open, close_on_exec)
}

fn path(name: &str) -> String {
    format!("/memfd:{name} (deleted)")
}

/// `fcntl(2)`, F_ADD_SEALS: EPERM for a file that was not opened for writing.
pub(super) fn add_seals(context: &Context<'_>, open: &Open, seals: u64) -> Result {
    if open.may(Way::Write).is_err() {
        return Err(Errno::EPERM);
    }
    let node = node_of(open.file.as_ref()).ok_or(Errno::EINVAL)?;
    let is_mapped = || context.process.is_mapped_for_writing(node);
    node.seals.add(seals as u32, is_mapped).map(|()| 0)
}

/// `fcntl(2)`, F_GET_SEALS.
pub(super) fn get_seals(open: &Open) -> Result {
    let node = node_of(open.file.as_ref()).ok_or(Errno::EINVAL)?;
    node.seals.get().map(u64::from)
}
