//! Makes a mount and all mounts below it read-only, without set-user-ID programs and devices.
#![allow(unsafe_code)]

use std::ffi::{CString, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount_remount, unmount};

/// Restricts the mount at `place`: at once (`mount_setattr(2)`, Linux 5.12), or one mount after the other
/// where the kernel or a container's system call filter does not have that.
pub(super) fn make(place: &Path) -> Result<(), Errno> {
    match all_at_once(place) {
        Err(Errno::NOSYS | Errno::PERM) => one_by_one(place),
        other => other,
    }
}

/// Removes set-user-ID programs and devices from a mount, without those below it; it stays writable
/// if it is.
pub(super) fn make_changeable(place: &Path) -> Result<(), Errno> {
    let found = statvfs(place)?.f_flag;
    let mut flags = kept_flags(found) | MountFlags::BIND | MountFlags::NOSUID | MountFlags::NODEV;
    if found.contains(StatVfsMountFlags::RDONLY) {
        flags |= MountFlags::RDONLY;
    }
    mount_remount(place, flags, c"")
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
    for_each_mount(place, make_one)
}

/// Calls `act` for each mount. Skips a mount that another covers, which cannot be reached. Removes
/// from the copy a mount that this user may not access (FUSE of another user).
fn for_each_mount(place: &Path, act: impl Fn(&Path) -> Result<(), Errno>) -> Result<(), Errno> {
    let errno = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    let place = fs::canonicalize(place).map_err(errno)?;
    let table = fs::read("/proc/thread-self/mountinfo").map_err(errno)?;
    for mount in mounts(&table).filter(|mount| mount.starts_with(&place)) {
        match act(&mount) {
            Err(Errno::NOENT | Errno::INVAL) if mount != place => {}
            Err(Errno::ACCESS) if mount != place => {
                unmount(&mount, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)?;
            }
            other => other?,
        }
    }
    Ok(())
}

fn make_one(mount: &Path) -> Result<(), Errno> {
    // What a mount of another owner forbids must stay forbidden.
    let flags = kept_flags(statvfs(mount)?.f_flag);
    let flags = flags | MountFlags::BIND | MountFlags::RDONLY;
    mount_remount(mount, flags | MountFlags::NOSUID | MountFlags::NODEV, c"")
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
mod tests {
    use rustix::mount::{MountPropagationFlags, mount, mount_bind_recursive, mount_change};
    use rustix::thread::{UnshareFlags, unshare_unsafe};

    use super::*;

    /// Detached at the end, so that its directory can be removed.
    struct Mounted(PathBuf);

    impl Drop for Mounted {
        fn drop(&mut self) {
            let _ = unmount(&self.0, UnmountFlags::DETACH);
        }
    }

    fn tmpfs(place: &Path, flags: MountFlags) -> Mounted {
        fs::create_dir_all(place).unwrap();
        mount("tmpfs", place, "tmpfs", flags, c"size=64k").unwrap();
        Mounted(place.to_owned())
    }

    /// Calls `body` with a directory, in a thread with its own mounts, if this user may make some.
    fn alone(body: impl FnOnce(&Path) + Send + 'static) {
        let body = || {
            if is_alone() {
                body(tempfile::tempdir().unwrap().path());
            }
        };
        std::thread::spawn(body).join().unwrap();
    }

    /// Whether this thread has its own mounts now.
    fn is_alone() -> bool {
        // SAFETY: descriptors stay shared, since CLONE_FILES is not among the flags.
        let alone = unsafe { unshare_unsafe(UnshareFlags::NEWNS) };
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        let is_alone = alone.is_ok() && mount_change("/", private).is_ok();
        if !is_alone {
            tare_vmtest::lacks("this user may not make a mount namespace");
        }
        is_alone
    }

    /// A file system in another, bound somewhere else: both are restricted there.
    fn restricts(place: &Path, make: fn(&Path) -> Result<(), Errno>) {
        let outer = place.join("a file system");
        let _outer = tmpfs(&outer, MountFlags::empty());
        let inner = outer.join("inner");
        let _inner = tmpfs(&inner, MountFlags::NOEXEC);
        let bound = place.join("bound here");
        fs::create_dir(&bound).unwrap();
        mount_bind_recursive(&outer, &bound).unwrap();
        let _bound = Mounted(bound.clone());
        make(&bound).unwrap();
        let flags = |path: &Path| statvfs(path).unwrap().f_flag;
        let wanted =
            StatVfsMountFlags::RDONLY | StatVfsMountFlags::NOSUID | StatVfsMountFlags::NODEV;
        assert!(flags(&bound.join("inner")).contains(StatVfsMountFlags::NOEXEC));
        assert!(fs::write(inner.join("x"), "x").is_ok(), "the host's own");
        assert!(fs::write(bound.join("inner/y"), "y").is_err());
        for path in [bound.clone(), bound.join("inner")] {
            assert!(flags(&path).contains(wanted), "{path:?}");
        }
    }

    #[test]
    fn mounts_below_a_mount_are_restricted_with_it() {
        for make in [make, one_by_one] {
            alone(move |place| restricts(place, make));
        }
    }

    /// Of two mounts one is covered by an empty file system, the other by one with a directory
    /// of its name.
    #[test]
    fn covered_mounts_are_passed_over() {
        alone(|place| {
            let top = place.join("top");
            let _top = tmpfs(&top, MountFlags::empty());
            for name in ["gone", "plain"] {
                let _stays = std::mem::ManuallyDrop::new(tmpfs(
                    &top.join(name).join("covered"),
                    MountFlags::empty(),
                ));
                let _stays =
                    std::mem::ManuallyDrop::new(tmpfs(&top.join(name), MountFlags::empty()));
            }
            fs::create_dir(top.join("plain/covered")).unwrap();
            one_by_one(&top).unwrap();
            for name in ["", "gone", "plain"] {
                let flags = statvfs(top.join(name)).unwrap().f_flag;
                assert!(flags.contains(StatVfsMountFlags::RDONLY), "{name}");
            }
        });
    }

    #[test]
    fn a_mount_that_this_user_may_not_look_at_is_detached() {
        alone(|place| {
            let top = place.join("top");
            let _top = tmpfs(&top, MountFlags::empty());
            let inner = top.join("inner");
            let _inner = tmpfs(&inner, MountFlags::empty());
            fs::write(inner.join("x"), "x").unwrap();
            let refuse = |mount: &Path| {
                if mount.ends_with("inner") {
                    Err(Errno::ACCESS)
                } else {
                    Ok(())
                }
            };
            for_each_mount(&top, refuse).unwrap();
            assert!(inner.is_dir() && !inner.join("x").exists());
            let refused = for_each_mount(&top, |_| Err(Errno::ACCESS));
            assert_eq!(refused, Err(Errno::ACCESS), "the top itself");
        });
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
