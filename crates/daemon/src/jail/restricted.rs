//! A mount, and all mounts below it, are read only, without set-user-ID programs and devices.
#![allow(unsafe_code)]

use std::ffi::{CString, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount_remount};

/// Restricts the mount at `place`: at once (`mount_setattr(2)`, Linux 5.12), or one mount after the other
/// where the kernel or a container's system call filter does not have that.
pub(super) fn make(place: &Path) -> Result<(), Errno> {
    match all_at_once(place) {
        Err(Errno::NOSYS | Errno::PERM) => one_by_one(place),
        other => other,
    }
}

fn all_at_once(place: &Path) -> Result<(), Errno> {
    let path = CString::new(place.as_os_str().as_bytes()).map_err(|_| Errno::INVAL)?;
    let wanted = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    // SAFETY: a string with its end, and a structure of the length that is given; the kernel
    // reads both.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::AT_RECURSIVE,
            &raw const wanted,
            size_of::<libc::mount_attr>(),
        )
    };
    match done {
        0 => Ok(()),
        _ => {
            let error = std::io::Error::last_os_error();
            Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
        }
    }
}

fn one_by_one(place: &Path) -> Result<(), Errno> {
    let errno = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    let place = fs::canonicalize(place).map_err(errno)?;
    let table = fs::read("/proc/thread-self/mountinfo").map_err(errno)?;
    for mount in mounts(&table).filter(|mount| mount.starts_with(&place)) {
        // What a mount of another owner forbids must stay so.
        let flags = kept_flags(statvfs(&mount)?.f_flag);
        let flags = flags | MountFlags::BIND | MountFlags::RDONLY;
        mount_remount(&mount, flags | MountFlags::NOSUID | MountFlags::NODEV, c"")?;
    }
    Ok(())
}

/// The places of a table of mounts (`proc_pid_mountinfo(5)`): the fifth field.
fn mounts(table: &[u8]) -> impl Iterator<Item = PathBuf> {
    let lines = table.split(|byte| *byte == b'\n');
    lines.filter_map(|line| line.split(|byte| *byte == b' ').nth(4).map(unescaped))
}

/// Blanks, tabs, line ends and backslashes are octal numbers of three digits there.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *first == b'\\');
        let value = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(value.unwrap_or(*first));
        rest = if value.is_some() { &after[3..] } else { after };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// `mount_namespaces(7)`: a user namespace of less privilege may not clear these.
fn kept_flags(found: StatVfsMountFlags) -> MountFlags {
    let pairs = [
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ];
    pairs
        .into_iter()
        .filter(|(has, _)| found.contains(*has))
        .fold(MountFlags::empty(), |flags, (_, flag)| flags | flag)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rustix::mount::{MountPropagationFlags, mount, mount_bind_recursive, mount_change};
    use rustix::thread::{UnshareFlags, unshare_unsafe};

    use super::*;

    /// A file system in another, bound somewhere else: whether both are restricted there.
    fn restricts(make: fn(&Path) -> Result<(), Errno>) -> bool {
        // SAFETY: descriptors stay shared, since CLONE_FILES is not among the flags.
        let alone = unsafe { unshare_unsafe(UnshareFlags::NEWNS) };
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        if alone.is_err() || mount_change("/", private).is_err() {
            println!("SKIP: this user may not make a mount namespace");
            return true;
        }
        let place = tempfile::tempdir().unwrap();
        let outer = place.path().join("a file system");
        fs::create_dir(&outer).unwrap();
        let flags = MountFlags::empty();
        mount("tmpfs", &outer, "tmpfs", flags, c"size=64k").unwrap();
        let inner = outer.join("inner");
        fs::create_dir(&inner).unwrap();
        mount(
            "tmpfs",
            &inner,
            "tmpfs",
            flags | MountFlags::NOEXEC,
            c"size=64k",
        )
        .unwrap();
        let bound = place.path().join("bound here");
        fs::create_dir(&bound).unwrap();
        mount_bind_recursive(&outer, &bound).unwrap();
        make(&bound).unwrap();
        let flags = |path: &Path| statvfs(path).unwrap().f_flag;
        let wanted =
            StatVfsMountFlags::RDONLY | StatVfsMountFlags::NOSUID | StatVfsMountFlags::NODEV;
        assert!(flags(&bound.join("inner")).contains(StatVfsMountFlags::NOEXEC));
        assert!(fs::write(inner.join("x"), "x").is_ok(), "the host's own");
        let writes = fs::write(bound.join("inner/y"), "y").is_ok();
        let all = [bound.clone(), bound.join("inner")];
        !writes && all.iter().all(|path| flags(path).contains(wanted))
    }

    #[test]
    fn mounts_below_a_mount_are_restricted_with_it() {
        for make in [make, one_by_one] {
            assert!(std::thread::spawn(move || restricts(make)).join().unwrap());
        }
    }

    #[test]
    fn places_in_a_table_of_mounts_are_unescaped() {
        let table = b"36 35 98:0 / /a\\040b\\134 rw,noatime - ext3 /dev/root rw\n\
                      37 35 98:0 / / rw - ext3 /dev/root rw\n";
        let places: Vec<_> = mounts(table).collect();
        assert_eq!(places, [Path::new("/a b\\"), Path::new("/")]);
    }

    #[test]
    fn flags_that_restrict_a_mount_are_kept() {
        let found = StatVfsMountFlags::NOEXEC | StatVfsMountFlags::RDONLY;
        assert_eq!(kept_flags(found), MountFlags::NOEXEC);
    }
}
