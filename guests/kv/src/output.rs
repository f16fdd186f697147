//! The answers that a connection has yet to send.

use alloc::vec::Vec;

use tare_libos::serve::{Transport, TransportError};

use crate::limits;
use crate::server::Traffic;

/// Answers, and the stream that they go to.
pub(crate) struct Output<'s, T> {
    pub(crate) transport: T,
    pub(crate) bytes: Vec<u8>,
    traffic: &'s Traffic,
}

impl<'s, T: Transport> Output<'s, T> {
    pub(crate) fn new(transport: T, traffic: &'s Traffic) -> Self {
        let bytes = Vec::new();
        Self {
            transport,
            bytes,
            traffic,
        }
    }

    /// Sends if enough has gathered.
    pub(crate) fn flush_if_full(&mut self) -> Result<(), TransportError> {
        if self.bytes.len() >= limits::SEND_AT {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Sends everything.
    pub(crate) fn flush(&mut self) -> Result<(), TransportError> {
        let mut sent = 0;
        while sent < self.bytes.len() {
            sent += self.transport.send(&[&self.bytes[sent..]], limits::WRITE)?;
        }
        self.traffic.sent(sent);
        self.bytes.clear();
        if self.bytes.capacity() > 2 * limits::SEND_AT {
            self.bytes = Vec::new();
        }
        Ok(())
    }
}
