//! The file systems that programs expect.

use std::fs;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use rustix::mount::{MountFlags, mount};

use crate::console::say;

/// Devices without which few programs run, for a kernel without devtmpfs:
/// name, major and minor number (Linux `Documentation/admin-guide/devices.txt`).
const DEVICES: &[(&str, u32, u32)] = &[
    ("null", 1, 3),
    ("zero", 1, 5),
    ("full", 1, 7),
    ("random", 1, 8),
    ("urandom", 1, 9),
    ("tty", 5, 0),
    ("console", 5, 1),
    ("ttyS0", 4, 64),
    ("ttyS1", 4, 65),
];
/// Where descriptors are files.
const STANDARD: &[(&str, &str)] = &[
    ("/proc/self/fd", "/dev/fd"),
    ("/proc/self/fd/0", "/dev/stdin"),
    ("/proc/self/fd/1", "/dev/stdout"),
    ("/proc/self/fd/2", "/dev/stderr"),
];

/// `/proc`, `/sys`, `/dev`: before anything else, and kept when the root changes.
pub(crate) fn kernel_file_systems() {
    let safe = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    try_mount("proc", "/proc", safe, None);
    try_mount("sysfs", "/sys", safe, None);
    if !mounts("devtmpfs", "/dev", MountFlags::NOSUID, None) {
        DEVICES.iter().for_each(make);
    }
    for (target, link) in STANDARD {
        let _ = std::os::unix::fs::symlink(target, link);
    }
}

/// What is empty at each start, on the root that the command sees.
pub(crate) fn temporary_file_systems() {
    let safe = MountFlags::NOSUID | MountFlags::NODEV;
    let quiet = |kind, place, data| {
        mounts(kind, place, safe, Some(data));
    };
    quiet("devpts", "/dev/pts", c"ptmxmode=0666,mode=0620");
    quiet("tmpfs", "/dev/shm", c"mode=1777");
    // What a root has there is its own, as in a container.
    if is_empty(Path::new("/run")) {
        quiet("tmpfs", "/run", c"mode=0755");
    }
    quiet("cgroup2", "/sys/fs/cgroup", c"");
    if !Path::new("/tmp").is_dir() {
        quiet("tmpfs", "/tmp", c"mode=1777");
    }
    let _ = std::os::unix::fs::symlink("pts/ptmx", "/dev/ptmx");
}

/// Whether a directory is missing or has nothing in it.
fn is_empty(directory: &Path) -> bool {
    fs::read_dir(directory).map_or(true, |mut entries| entries.next().is_none())
}

fn try_mount(kind: &str, place: &str, flags: MountFlags, data: Option<&std::ffi::CStr>) {
    if !mounts(kind, place, flags, data) {
        say(&format!("this kernel has no {kind} for {place}"));
    }
}

fn mounts(kind: &str, place: &str, flags: MountFlags, data: Option<&std::ffi::CStr>) -> bool {
    let _ = fs::create_dir_all(place);
    mount(kind, place, kind, flags, data).is_ok()
}

fn make((name, major, minor): &(&str, u32, u32)) {
    let path = Path::new("/dev").join(name);
    let mode = Mode::from_raw_mode(0o666);
    let _ = mknodat(
        CWD,
        &path,
        FileType::CharacterDevice,
        mode,
        makedev(*major, *minor),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_directory_without_anything_is_empty() {
        let dir = std::env::temp_dir().join(format!("tare-init-run-{}", std::process::id()));
        assert!(is_empty(&dir));
        fs::create_dir(&dir).unwrap();
        assert!(is_empty(&dir));
        fs::create_dir(dir.join("app")).unwrap();
        assert!(!is_empty(&dir));
        fs::remove_dir_all(dir).unwrap();
    }
}
