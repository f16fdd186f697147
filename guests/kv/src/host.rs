//! The same server on a host's sockets, for tests and measurements.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use tare_libos::serve::host;

use crate::connection;
use crate::server::Server;
use crate::store::Clock;

/// The host's wall clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostClock;

impl Clock for HostClock {
    fn unix_s(&self) -> u32 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.map_or(0, |since| since.as_secs() as u32)
    }
}

/// Serves every connection of `listener` on its own thread, until the
/// listener fails.
pub fn serve<C: Clock + Send + Sync + 'static>(listener: &TcpListener, server: &Arc<Server<C>>) {
    let server = Arc::clone(server);
    host::serve(listener, move |stream| connection::serve(stream, &server));
}
