//! Standard streams of a program, or signals of the host for it: ports of a virtio console (virtio 1.2,
//! 5.3), in a machine whose monitor has them ([`tare_abi::streams`]). For the image that runs other
//! programs; no other one links this.
//!
//! The number of a port is that of the descriptor. Writing copies into a buffer of the
//! device's queue, up to [`CAPACITY`] bytes of them, and notifies the device once; reading
//! takes from buffers that the device fills, which it gets with the first look for input.
//! Nothing here waits: a thread that is [`Port::watch`]ing is unparked when a port may have
//! changed.

#![cfg_attr(not(target_os = "none"), allow(dead_code))] // the host has no devices

mod control;
mod device;
mod input;
mod output;
mod readiness;

use tare_abi::streams::{KEY, SIGNALS_PORT};
use tare_hal::virtio::Transport;

use crate::io::Result;
use crate::thread::Thread;
use control::Kind;
use device::DEVICE;
pub use readiness::{ATOMIC, CAPACITY, Readiness};

/// A port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port(usize);

/// Takes the device over, at boot; called by what [`entry!`](crate::entry!) names.
#[doc(hidden)]
pub fn attach(transport: Transport) {
    if let Err(error) = DEVICE.attach(transport) {
        let reason = crate::virtio::reason(&error);
        log::error!("ports: the console cannot be set up: {reason}");
    }
}

/// The ports of input, output and errors, if the machine has them. Waits a short time for the
/// host to say what they are.
pub fn open() -> Option<[Port; 3]> {
    let lost = "its streams go to the serial port";
    DEVICE
        .wait(Kind::Streams, lost)
        .then(|| core::array::from_fn(Port))
}

/// Signals of the host for the program, from a port of QEMU's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signals(Port);

/// Begins to read signals, if the machine has a port for them: from now on the host sends some, and `thread`
/// is unparked for them. Waits a short time for the host to say what the port is.
pub fn signals(thread: &Thread) -> Option<Signals> {
    if !DEVICE.wait(Kind::Signals, "the host's signals do not reach the program") {
        return None;
    }
    let port = Port(SIGNALS_PORT);
    port.watch(thread);
    DEVICE.begin_signals();
    Some(Signals(port))
}

impl Signals {
    /// Takes the next signal: its number in Linux, 1 to 64.
    pub fn next(self) -> Option<u32> {
        let mut byte = [0];
        loop {
            // At the end too: nothing comes any more.
            let Ok(1) = self.0.try_read(&mut byte) else {
                return None;
            };
            // A key of the terminal: the program has no terminal in which something else could be meant.
            let number = u32::from(byte[0] & !KEY);
            if (1..=64).contains(&number) {
                return Some(number);
            }
        }
    }
}

impl Port {
    /// Reads; 0 at the end.
    ///
    /// # Errors
    /// `WouldBlock` where nothing is there, and for a port that is written.
    pub fn try_read(self, to: &mut [u8]) -> Result<usize> {
        if to.is_empty() {
            return Ok(0);
        }
        DEVICE.read(self.0, to)
    }

    /// Writes some or all of it.
    ///
    /// # Errors
    /// `WouldBlock` without room, `BrokenPipe` where no process takes it.
    pub fn try_write(self, from: &[u8]) -> Result<usize> {
        if from.is_empty() {
            return Ok(0);
        }
        DEVICE.write(self.0, from)
    }

    /// What can be done now. What cannot makes the device tell of a change.
    pub fn readiness(self) -> Readiness {
        DEVICE.readiness(self.0)
    }

    /// Bytes that can be read without waiting.
    pub fn readable_bytes(self) -> usize {
        DEVICE.readable(self.0).0
    }

    /// Bytes that have ever come.
    pub fn arrived_bytes(self) -> u64 {
        DEVICE.readable(self.0).1
    }

    /// Has `thread` unparked when [`Self::readiness`] may have changed.
    pub fn watch(self, thread: &Thread) {
        DEVICE.watch(self.0, thread);
    }

    /// Takes [`Self::watch`] back.
    pub fn unwatch(self, thread: &Thread) {
        DEVICE.unwatch(self.0, thread);
    }
}
