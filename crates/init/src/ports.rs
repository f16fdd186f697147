//! Ports of a virtio console (virtio 1.2, 5.3; Linux `drivers/char/virtio_console.c`): their files
//! in the guest.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tare_init::stream;

use crate::console::say;

/// Devices by virtio's number.
const DEVICES: &str = "/sys/bus/virtio/devices";
/// The number of a virtio console.
const CONSOLE: &str = "0x0003";
/// Ports by the kernel's name.
const PORTS: &str = "/sys/class/virtio-ports";
/// Time for the host to name the ports.
const LIMIT: Duration = Duration::from_secs(5);
/// Time for the host to connect a port after naming it.
const CONNECT_LIMIT: Duration = Duration::from_millis(200);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(2);

/// Waits until the host has named all ports, and gives the last one, for signals; `None` in a machine that has
/// none of ours.
pub(crate) fn wait() -> Option<PathBuf> {
    if !has_device() {
        return None;
    }
    if !Path::new(PORTS).is_dir() {
        say(
            &"this kernel has no driver for virtio consoles (VIRTIO_CONSOLE): \
             standard input and signals do not reach the command",
        );
        return None;
    }
    let last = find(stream::SIGNALS);
    if let Err(error) = &last {
        say(&format!(
            "standard input and signals do not reach the command: {error}"
        ));
    }
    last.ok()
}

fn has_device() -> bool {
    let devices = fs::read_dir(DEVICES).into_iter().flatten().flatten();
    devices
        .filter_map(|device| fs::read_to_string(device.path().join("device")).ok())
        .any(|number| number.trim() == CONSOLE)
}

/// The file of the port with this name, if the host has named it by now.
pub(crate) fn named(name: &str) -> io::Result<Option<PathBuf>> {
    for port in fs::read_dir(PORTS)?.flatten() {
        let found = fs::read_to_string(port.path().join("name"));
        if found.is_ok_and(|found| found.trim() == name) {
            return Ok(Some(Path::new("/dev").join(port.file_name())));
        }
    }
    Ok(None)
}

/// The same, once the host has named it.
pub(crate) fn find(name: &str) -> io::Result<PathBuf> {
    let begin = Instant::now();
    loop {
        if let Some(found) = named(name)? {
            return Ok(found);
        }
        if begin.elapsed() > LIMIT {
            let missing = format!("the machine has no port {name}");
            return Err(io::Error::new(io::ErrorKind::NotFound, missing));
        }
        sleep(PAUSE);
    }
}

/// Until the host's end is connected, reading looks like the end of the input.
pub(crate) fn wait_for_host(port: &File) {
    let begin = Instant::now();
    let now = Timespec::default();
    while begin.elapsed() < CONNECT_LIMIT {
        let mut input = [PollFd::new(port, PollFlags::IN)];
        let _ = poll(&mut input, Some(&now));
        let seen = input[0].revents();
        if seen.contains(PollFlags::IN) || !seen.contains(PollFlags::HUP) {
            return;
        }
        sleep(PAUSE);
    }
}
