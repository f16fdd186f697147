//! The same server on a host's sockets, for tests and measurements.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::connection;
use crate::server::Server;
use crate::store::Clock;
use crate::transport::{Transport, TransportError};

/// The host's wall clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostClock;

impl Clock for HostClock {
    fn unix_s(&self) -> u32 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.map_or(0, |since| since.as_secs() as u32)
    }
}

/// A standard TCP stream.
#[derive(Debug)]
pub struct Stream(TcpStream);

impl Stream {
    /// Wraps an accepted stream.
    pub fn new(tcp: TcpStream) -> Self {
        // Only latency suffers without it.
        let _ = tcp.set_nodelay(true);
        Self(tcp)
    }
}

impl Transport for Stream {
    fn receive(
        &mut self,
        into: &mut [u8],
        within: Option<Duration>,
    ) -> Result<usize, TransportError> {
        self.0.set_read_timeout(within).map_err(transport_error)?;
        self.0.read(into).map_err(transport_error)
    }

    fn send(&mut self, bytes: &[u8], within: Duration) -> Result<usize, TransportError> {
        self.0
            .set_write_timeout(Some(within))
            .map_err(transport_error)?;
        match self.0.write(bytes) {
            Ok(0) => Err(TransportError::Broken),
            sent => sent.map_err(transport_error),
        }
    }
}

fn transport_error(error: std::io::Error) -> TransportError {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => TransportError::TimedOut,
        _ => TransportError::Broken,
    }
}

/// Serves every connection of `listener` on a thread of its own, until the
/// listener fails.
pub fn serve<C: Clock + Send + Sync + 'static>(listener: &TcpListener, server: &Arc<Server<C>>) {
    for tcp in listener.incoming().map_while(Result::ok) {
        let server = Arc::clone(server);
        std::thread::spawn(move || connection::serve(Stream::new(tcp), &server));
    }
}
