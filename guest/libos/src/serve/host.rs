//! Connections over a host's sockets.

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::{Transport, TransportError};

/// A standard TCP stream.
#[derive(Debug)]
pub struct Stream {
    tcp: TcpStream,
    began: Instant,
}

impl Stream {
    /// Wraps an accepted stream.
    pub fn new(tcp: TcpStream) -> Self {
        // Only latency suffers without it.
        let _ = tcp.set_nodelay(true);
        let began = Instant::now();
        Self { tcp, began }
    }
}

impl Transport for Stream {
    fn receive(
        &mut self,
        into: &mut [u8],
        within: Option<Duration>,
    ) -> Result<usize, TransportError> {
        self.tcp.set_read_timeout(within).map_err(failed)?;
        self.tcp.read(into).map_err(failed)
    }

    fn send<const N: usize>(
        &mut self,
        parts: &[&[u8]; N],
        within: Duration,
    ) -> Result<usize, TransportError> {
        self.tcp.set_write_timeout(Some(within)).map_err(failed)?;
        match self.tcp.write_vectored(&parts.map(IoSlice::new)) {
            Ok(0) => Err(TransportError::Broken),
            sent => sent.map_err(failed),
        }
    }

    fn peer(&self) -> Option<IpAddr> {
        self.tcp.peer_addr().ok().map(|address| address.ip())
    }

    fn finish(&mut self) {
        // A broken connection shows at the next read.
        let _ = self.tcp.shutdown(Shutdown::Write);
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }
}

fn failed(error: std::io::Error) -> TransportError {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => TransportError::TimedOut,
        _ => TransportError::Broken,
    }
}

/// Serves every connection of `listener` on its own thread, until the
/// listener fails.
pub fn serve(listener: &TcpListener, serve: impl Fn(Stream) + Clone + Send + 'static) {
    for tcp in listener.incoming().map_while(Result::ok) {
        let serve = serve.clone();
        std::thread::spawn(move || serve(Stream::new(tcp)));
    }
}
