//! Standard streams of a command that is part of a pipeline: three ports of a
//! virtio console, one for each stream (virtio 1.2, 5.3; Linux
//! `drivers/char/virtio_console.c`).
//!
//! Unlike a serial console they change no byte, keep what arrives before the
//! command starts, pass on the end of the input, and keep output and errors
//! apart. A machine without the device gives the command the console.

use std::fs::{File, OpenOptions};
use std::io;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, wait};
use tare_init::stream;

use crate::console::say;
use crate::ports;

/// The ports of a command's streams.
#[derive(Debug)]
pub(crate) struct Streams {
    input: File,
    output: File,
    error: File,
}

impl Streams {
    /// Opens the ports, if the machine has them; the host has named all by now.
    pub(crate) fn open() -> Option<Self> {
        match Self::open_named() {
            Ok(streams) => streams,
            Err(error) => {
                say(&format!(
                    "cannot open the ports of the standard streams: {error}"
                ));
                None
            }
        }
    }

    fn open_named() -> io::Result<Option<Self>> {
        let Some(input) = ports::named(stream::INPUT)? else {
            return Ok(None);
        };
        let streams = Self {
            input: OpenOptions::new().read(true).open(input)?,
            output: OpenOptions::new()
                .write(true)
                .open(ports::find(stream::OUTPUT)?)?,
            error: OpenOptions::new()
                .write(true)
                .open(ports::find(stream::ERROR)?)?,
        };
        ports::wait_for_host(&streams.input);
        Ok(Some(streams))
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
