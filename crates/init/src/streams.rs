//! Standard streams of a command that is part of a pipeline: three ports of a
//! virtio console, one for each stream (virtio 1.2, 5.3; Linux
//! `drivers/char/virtio_console.c`).
//!
//! Unlike a serial console they change no byte, keep what arrives before the
//! command starts, pass on the end of the input, and keep output and errors
//! apart. A machine without the device gives the command the console.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, wait};
use tare_init::stream;

use crate::console::say;

/// Devices by virtio's number.
const DEVICES: &str = "/sys/bus/virtio/devices";
/// The number of a virtio console.
const CONSOLE: &str = "0x0003";
/// Ports by the kernel's name.
const PORTS: &str = "/sys/class/virtio-ports";
/// Time for the host to name the ports.
const PORT_LIMIT: Duration = Duration::from_secs(5);
/// Time for the host to connect a port after naming it.
const CONNECT_LIMIT: Duration = Duration::from_millis(200);
const PAUSE: Duration = Duration::from_millis(2);

/// The ports of a command's streams.
#[derive(Debug)]
pub(crate) struct Streams {
    input: File,
    output: File,
    error: File,
}

impl Streams {
    /// Opens the ports, if the machine has them.
    pub(crate) fn open() -> Option<Self> {
        if !has_device() {
            return None;
        }
        if !Path::new(PORTS).is_dir() {
            say(
                &"this kernel has no driver for virtio consoles (VIRTIO_CONSOLE): \
                 standard input does not reach the command",
            );
            return None;
        }
        let opened = find(stream::INPUT).and_then(|input| {
            Ok(Self {
                input: OpenOptions::new().read(true).open(input)?,
                output: OpenOptions::new().write(true).open(find(stream::OUTPUT)?)?,
                error: OpenOptions::new().write(true).open(find(stream::ERROR)?)?,
            })
        });
        match opened {
            Ok(streams) => {
                streams.wait_for_host();
                Some(streams)
            }
            Err(error) => {
                say(&format!(
                    "cannot open the ports of the standard streams: {error}"
                ));
                None
            }
        }
    }

    /// Until the host's end is connected, reading looks like the end of the input.
    fn wait_for_host(&self) {
        let begin = Instant::now();
        let now = Timespec::default();
        while begin.elapsed() < CONNECT_LIMIT {
            let mut input = [PollFd::new(&self.input, PollFlags::IN)];
            let _ = poll(&mut input, Some(&now));
            let seen = input[0].revents();
            if seen.contains(PollFlags::IN) || !seen.contains(PollFlags::HUP) {
                return;
            }
            sleep(PAUSE);
        }
    }

    /// Makes them a command's standard streams.
    pub(crate) fn give(&self, command: &mut Command) -> io::Result<()> {
        command
            .stdin(Stdio::from(self.input.try_clone()?))
            .stdout(Stdio::from(self.output.try_clone()?))
            .stderr(Stdio::from(self.error.try_clone()?));
        Ok(())
    }

    /// Ends whatever still writes and closes the ports. The host has then taken all
    /// that was written: it acknowledges the closing after it.
    pub(crate) fn close(self) {
        let _ = kill_process_group(Pid::INIT, Signal::KILL);
        while wait(WaitOptions::empty()).is_ok_and(|ended| ended.is_some()) {}
        drop(self);
    }
}

fn has_device() -> bool {
    let devices = fs::read_dir(DEVICES).into_iter().flatten().flatten();
    devices
        .filter_map(|device| fs::read_to_string(device.path().join("device")).ok())
        .any(|number| number.trim() == CONSOLE)
}

/// The device file of the port with this name, once the host has named it.
fn find(name: &str) -> io::Result<PathBuf> {
    let begin = Instant::now();
    loop {
        for port in fs::read_dir(PORTS)?.flatten() {
            let found = fs::read_to_string(port.path().join("name"));
            if found.is_ok_and(|found| found.trim() == name) {
                return Ok(Path::new("/dev").join(port.file_name()));
            }
        }
        if begin.elapsed() > PORT_LIMIT {
            let missing = format!("the machine has no port {name}");
            return Err(io::Error::new(io::ErrorKind::NotFound, missing));
        }
        sleep(PAUSE);
    }
}
