//! A disk that takes its time, where the guest is slower than any disk.
//!
//! Commands wait in the device only if it is what everybody waits for. Where KVM
//! emulates the guest, it is the guest, and the device has one command at a time
//! whatever the guest keeps in flight. The block layer's throttle (cgroup v1,
//! kernel `Documentation/admin-guide/cgroup-v1/blkio-controller.rst`) makes it the
//! disk again: this process goes into a group of its own, and machines with it.

use std::fs;
use std::io;
use std::os::linux::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The controller's root.
const BLKIO: &str = "/sys/fs/cgroup/blkio";
/// Reads and writes apart.
const LIMITS: [&str; 2] = [
    "blkio.throttle.read_iops_device",
    "blkio.throttle.write_iops_device",
];
/// Tries to remove the group while machines end.
const TRIES: usize = 50;

/// A group with a limit, and this process in it. Dropping it undoes both.
#[derive(Debug)]
pub(super) struct Pace {
    group: PathBuf,
    home: PathBuf,
}

impl Pace {
    /// So many commands a second of the device that holds `file`.
    pub(super) fn limit(file: &Path, commands_per_s: u32) -> io::Result<Self> {
        let home = home(&fs::read_to_string("/proc/self/cgroup")?)
            .ok_or_else(|| io::Error::other("there is no blkio controller (cgroup v1)"))?;
        let device = fs::metadata(file)?.st_dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let group = home.join(format!("tare-vic-{}", std::process::id()));
        fs::create_dir(&group)?;
        // From here on the group's guard is there.
        let pace = Self { group, home };
        for limit in LIMITS {
            let words = format!("{major}:{minor} {commands_per_s}");
            fs::write(pace.group.join(limit), words)?;
        }
        enter(&pace.group)?;
        Ok(pace)
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        // Where this fails, nothing better can be done.
        let _ = enter(&self.home);
        for _ in 0..TRIES {
            if fs::remove_dir(&self.group).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn enter(group: &Path) -> io::Result<()> {
    fs::write(group.join("cgroup.procs"), std::process::id().to_string())
}

/// Where this process is, by `/proc/self/cgroup`.
fn home(text: &str) -> Option<PathBuf> {
    let line = text.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let has = controllers.split(',').any(|name| name == "blkio");
        has.then_some(path)
    })?;
    Some(Path::new(BLKIO).join(line.trim_start_matches('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_is_found_where_there_is_the_controller() {
        let text = "5:cpu,cpuacct:/x\n4:blkio:/a/b\n0::/\n";
        assert_eq!(home(text), Some(PathBuf::from("/sys/fs/cgroup/blkio/a/b")));
        assert_eq!(
            home("4:net,blkio:/\n"),
            Some(PathBuf::from("/sys/fs/cgroup/blkio/"))
        );
        assert_eq!(home("0::/user.slice\n"), None);
    }
}
