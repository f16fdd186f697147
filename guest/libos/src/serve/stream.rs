//! A TCP stream as a transport.

use core::time::Duration;

use super::{Transport, TransportError};
use crate::io::{Error, ErrorKind, IoSlice, Read, Write};
use crate::net::{IpAddr, KeepAlive, Shutdown, TcpStream};
use crate::thread;
use crate::time::Instant;

/// A stream that remembers its timeouts, which rarely change.
#[derive(Debug)]
pub struct Stream {
    tcp: TcpStream,
    receive_within: Option<Duration>,
    send_within: Option<Duration>,
}

impl Stream {
    /// Wraps an accepted stream.
    pub fn new(tcp: TcpStream) -> Self {
        // An answer's last segment must not wait for an acknowledgement. A
        // stream that is gone already fails at the first read.
        let _ = tcp.set_nodelay(true);
        Self {
            tcp,
            receive_within: None,
            send_within: None,
        }
    }

    /// Probes a client that is silent, so that one that is gone is noticed.
    pub fn keep_alive(&self, probes: KeepAlive) {
        // A stream that is gone already fails at the first read.
        let _ = self.tcp.set_keepalive(Some(probes));
    }
}

impl Transport for Stream {
    #[inline]
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

    #[inline]
    fn send<const N: usize>(
        &mut self,
        parts: &[&[u8]; N],
        within: Duration,
    ) -> Result<usize, TransportError> {
        if self.send_within != Some(within) {
            self.tcp.set_write_timeout(Some(within)).map_err(failed)?;
            self.send_within = Some(within);
        }
        let slices = parts.map(IoSlice::new);
        self.tcp.write_vectored(&slices).map_err(failed)
    }

    fn finish(&mut self) {
        // A broken stream shows at the next read.
        let _ = self.tcp.shutdown(Shutdown::Write);
    }

    #[inline]
    fn now(&self) -> Duration {
        Duration::from_nanos(Instant::now().as_nanos())
    }

    fn peer(&self) -> Option<IpAddr> {
        self.tcp.peer_addr().ok().map(|address| address.ip())
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
