//! A command line of QEMU under construction, with the descriptors that it names.

use std::fs::File;
use std::io::{self, Seek as _};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd, RawFd};
use std::path::PathBuf;
use std::thread;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use tare_qemu::CommandLine;

use crate::user::MachineUser;

/// The arguments and descriptors of QEMU.
#[derive(Debug)]
pub(crate) struct Draft {
    /// Its arguments.
    pub(crate) line: CommandLine,
    /// Descriptors opened for it; keep them until it has started.
    pub(crate) kept: Vec<OwnedFd>,
    /// All descriptors that it inherits.
    pub(crate) numbers: Vec<RawFd>,
    last_set: u32,
}

impl Draft {
    /// Sets up to `last_set` are already in use.
    pub(crate) fn of(line: CommandLine, last_set: u32) -> Self {
        Self {
            line,
            kept: Vec::new(),
            numbers: Vec::new(),
            last_set,
        }
    }

    /// Lets QEMU inherit a descriptor.
    pub(crate) fn hand(&mut self, fd: &impl AsFd) -> io::Result<RawFd> {
        fcntl_setfd(fd, FdFlags::empty())?;
        let number = fd.as_fd().as_raw_fd();
        self.numbers.push(number);
        Ok(number)
    }

    /// A path at which QEMU opens a file for reading. A file that its user could not open is
    /// copied.
    pub(crate) fn readable(
        &mut self,
        file: &File,
        user: Option<&MachineUser>,
    ) -> io::Result<PathBuf> {
        if user.is_none_or(|user| may_read(file, user.uid, user.gid)) {
            return Ok(format!("/proc/self/fd/{}", self.hand(file)?).into());
        }
        let mut copy = File::from(memfd_create("tare-image", MemfdFlags::empty())?);
        let mut from = File::open(itself(file))?;
        io::copy(&mut from, &mut copy)?;
        copy.rewind()?;
        let path = format!("/proc/self/fd/{}", self.hand(&copy)?).into();
        self.kept.push(copy.into());
        Ok(path)
    }

    /// A path by which QEMU uses open files: descriptors of the same file, of which QEMU takes the
    /// one with the requested access (`monitor_fdset_dup_fd_add`, monitor/fds.c).
    pub(crate) fn set(&mut self, files: &[&File]) -> io::Result<String> {
        self.last_set += 1;
        let set = self.last_set;
        for file in files {
            let number = self.hand(file)?;
            self.line
                .option("-add-fd", format!("fd={number},set={set}"));
        }
        Ok(format!("/dev/fdset/{set}"))
    }

    /// The same for a writable disk, which QEMU opens for reading first.
    pub(crate) fn disk(&mut self, file: &File) -> io::Result<String> {
        let for_reading = File::open(itself(file))?;
        let set = self.set(&[file, &for_reading])?;
        self.kept.push(for_reading.into());
        Ok(set)
    }
}

/// Whether that user can open an open file for reading, by mode, access lists and whatever else the
/// kernel checks. A thread tries it that becomes the user, without other groups and, by the change
/// from root, without capabilities (`capabilities(7)`).
fn may_read(file: &File, uid: u32, gid: u32) -> bool {
    let body = || {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        set_thread_groups(&[])?;
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)?;
        File::open(itself(file)).map(drop)
    };
    let tried = thread::scope(|scope| scope.spawn(body).join());
    matches!(tried, Ok(Ok(())))
}

/// A path at which an open file can be opened again.
fn itself(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use rustix::fs::{XattrFlags, fchown, fsetxattr};
    use rustix::process::geteuid;

    use super::*;

    /// `posix_acl(5)` as the kernel stores it (`linux/posix_acl_xattr.h`): version 2; the owner
    /// reads and writes, one user more reads, mask and others.
    fn access_list(reader: u32, others: u16) -> Vec<u8> {
        const NONE: u32 = u32::MAX;
        let entries = [
            (0x01, 6, NONE),
            (0x02, 4, reader),
            (0x04, 0, NONE),
            (0x10, 4, NONE),
            (0x20, others, NONE),
        ];
        let mut bytes = 2u32.to_le_bytes().to_vec();
        for (tag, permissions, id) in entries {
            bytes.extend(u16::to_le_bytes(tag));
            bytes.extend(u16::to_le_bytes(permissions));
            bytes.extend(u32::to_le_bytes(id));
        }
        bytes
    }

    #[test]
    fn who_may_read_a_file_is_the_kernels_to_say() {
        const USER: u32 = 1_900_000_100;
        const GROUP: u32 = 1_900_000_200;
        if !geteuid().is_root() {
            tare_vmtest::lacks("only root becomes another user");
            return;
        }
        let file = tempfile::tempfile().unwrap();
        let set = |mode| file.set_permissions(Permissions::from_mode(mode)).unwrap();
        fchown(&file, None, Some(Gid::from_raw(GROUP))).unwrap();
        set(0o600);
        assert!(!may_read(&file, USER, GROUP));
        set(0o640);
        assert!(may_read(&file, USER, GROUP));
        assert!(!may_read(&file, USER, GROUP + 1));
        set(0o604);
        assert!(!may_read(&file, USER, GROUP), "the group's bits count");
        assert!(may_read(&file, USER, GROUP + 1));
        // The caller keeps its user.
        assert!(geteuid().is_root());
        let list = access_list(USER, 0);
        let name = c"system.posix_acl_access";
        if fsetxattr(&file, name, &list, XattrFlags::empty()).is_err() {
            tare_vmtest::lacks("this file system has no access lists");
            return;
        }
        assert!(may_read(&file, USER, GROUP + 1));
        assert!(!may_read(&file, USER + 1, GROUP + 1));
    }
}
