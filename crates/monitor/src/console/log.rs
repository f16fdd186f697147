//! The console's log as the threads that write it share it.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tare_control::console_log::ConsoleLog;

/// The log, written by the vCPU threads (the serial port) and the I/O thread (ports).
#[derive(Clone, Debug)]
pub struct SharedLog(Arc<Mutex<ConsoleLog>>);

impl SharedLog {
    /// Shares `log`.
    pub fn new(log: ConsoleLog) -> Self {
        Self(Arc::new(Mutex::new(log)))
    }

    /// Appends.
    pub fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.append(bytes)
    }
}
