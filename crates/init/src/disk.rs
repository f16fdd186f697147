//! Changing from the initramfs to a disk (`switch_root`).

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::{MountFlags, mount, mount_move};
use rustix::process::{chdir, chroot};
use tare_init::WORK_DIR;

/// How long the disk's driver may take to find it.
const DEVICE_LIMIT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(5);
/// File systems of the kernel that move along.
const KEPT: &[&str] = &["dev", "proc", "sys"];

/// Makes the file system on `device` the root of everything that follows.
pub(crate) fn change_to(device: &str, filesystem: &str) -> Result<(), String> {
    let root = format!("/{WORK_DIR}/root");
    wait_for(device)?;
    fs::create_dir_all(&root).map_err(|error| format!("cannot make {root}: {error}"))?;
    mount(device, &root, filesystem, MountFlags::empty(), None)
        // A disk that the machine was given to read only.
        .or_else(|errno| match errno {
            Errno::ROFS | Errno::ACCESS => {
                mount(device, &root, filesystem, MountFlags::RDONLY, None)
            }
            other => Err(other),
        })
        .map_err(|errno| format!("cannot mount {device} as {filesystem}: {errno}"))?;
    for kept in KEPT {
        let place = format!("{root}/{kept}");
        let _ = fs::create_dir_all(&place);
        let _ = mount_move(format!("/{kept}"), place);
    }
    chdir(&root)
        .and_then(|()| mount_move(".", "/"))
        .and_then(|()| chroot("."))
        .and_then(|()| chdir("/"))
        .map_err(|errno| format!("cannot change to the root on {device}: {errno}"))
}

fn wait_for(device: &str) -> Result<(), String> {
    let begin = Instant::now();
    while !Path::new(device).exists() {
        if begin.elapsed() > DEVICE_LIMIT {
            return Err(format!("the disk {device} did not appear"));
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}
