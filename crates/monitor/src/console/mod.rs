//! The serial console: the port, where its output goes, where input comes from. A program's
//! standard streams are ports of a separate device (`ports`).
//!
//! Output is written by the vCPU thread that wrote the port, byte by byte and
//! unbuffered, so that nothing is lost however the run ends; it never waits
//! long for a reader ([`output`]). Input is read by the I/O thread when the port
//! has room for it (`input`).

pub mod input;
pub mod log;
pub mod output;
pub(crate) mod ports;
pub mod stream;
pub mod terminal;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tare_devices::CounterSource;
use tare_devices::serial::SerialPort;
use vmm_sys_util::eventfd::EventFd;

use output::Output;

/// The port, shared by the vCPU threads and the I/O thread.
pub struct Console {
    port: Mutex<SerialPort<Output>>,
    /// Input waits for room in the port.
    waiting: AtomicBool,
    /// Tells the I/O thread that there is room.
    room: EventFd,
}

impl Console {
    /// A console; `room` is signalled when the port takes input again.
    pub fn new(port: SerialPort<Output>, room: EventFd) -> Self {
        Self {
            port: Mutex::new(port),
            waiting: AtomicBool::new(false),
            room,
        }
    }

    /// vCPU thread: a read of the port's register.
    pub fn read(&self, offset: u16, data: &mut [u8]) {
        self.port().read(offset, data);
        self.tell_room();
    }

    /// vCPU thread: a write to the port's register.
    pub fn write(&self, offset: u16, data: &[u8]) {
        self.port().write(offset, data);
        self.tell_room();
    }

    /// Bytes of input that the port takes now. If there are none, the event of
    /// [`Self::room`] comes when there are some.
    pub fn input_room(&self) -> usize {
        let port = self.port();
        let room = port.input_room();
        // Under the port's lock, so that no access slips between the two.
        self.waiting.store(room == 0, Ordering::Relaxed);
        room
    }

    /// I/O thread: input for the guest, not more than [`Self::input_room`].
    pub fn push_input(&self, input: &[u8]) {
        // What does not fit in spite of that check is lost, as on a line without flow control.
        let _ = self.port().push_input(input);
    }

    /// Signalled when the port takes input again.
    pub fn room(&self) -> &EventFd {
        &self.room
    }

    /// The port's counters.
    pub fn counters(&self) -> Arc<dyn CounterSource> {
        self.port().counters()
    }

    fn tell_room(&self) {
        if self.waiting.load(Ordering::Relaxed)
            && self.port().input_room() > 0
            && self.waiting.swap(false, Ordering::Relaxed)
        {
            let _ = self.room.write(1);
        }
    }

    fn port(&self) -> MutexGuard<'_, SerialPort<Output>> {
        self.port.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
