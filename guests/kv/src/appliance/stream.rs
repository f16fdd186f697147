//! libos' TCP stream as a transport.

use core::time::Duration;

use tare_libos::io::{Error, ErrorKind, Read, Write};
use tare_libos::net::TcpStream;
use tare_libos::thread;

use crate::transport::{Transport, TransportError};

/// A stream that remembers its timeouts, which rarely change.
pub(super) struct Stream {
    tcp: TcpStream,
    receive_within: Option<Duration>,
    send_within: Option<Duration>,
}

impl Stream {
    pub(super) fn new(tcp: TcpStream) -> Self {
        // An answer's last segment must not wait for an acknowledgement. A
        // stream that is gone already fails at the first read.
        let _ = tcp.set_nodelay(true);
        Self {
            tcp,
            receive_within: None,
            send_within: None,
        }
    }
}

impl Transport for Stream {
    fn receive(
        &mut self,
        into: &mut [u8],
        within: Option<Duration>,
    ) -> Result<usize, TransportError> {
        if self.receive_within != within {
            self.tcp.set_read_timeout(within).map_err(failed)?;
            self.receive_within = within;
        }
        self.tcp.read(into).map_err(failed)
    }

    fn send(&mut self, bytes: &[u8], within: Duration) -> Result<usize, TransportError> {
        if self.send_within != Some(within) {
            self.tcp.set_write_timeout(Some(within)).map_err(failed)?;
            self.send_within = Some(within);
        }
        self.tcp.write(bytes).map_err(failed)
    }

    fn give_way(&mut self) {
        thread::yield_now();
    }
}

fn failed(error: Error) -> TransportError {
    match error.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => TransportError::TimedOut,
        _ => TransportError::Broken,
    }
}
