//! Who accepts and who serves, by [`tare_libos::serve`].

use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tare_libos::io::{Error, ErrorKind, Result};
use tare_libos::net::{Ipv6Addr, TcpListener};
use tare_libos::serve::{self, Service, Stream};

use crate::connection::{converse, refuse};
use crate::limits::MAX_CONNECTIONS;
use crate::{Request, Response};

/// Answers requests on a TCP port of all addresses, IPv4 and IPv6. Returns only if it
/// cannot begin.
pub fn serve<F>(port: u16, answer: F) -> Result<()>
where
    F: Fn(&Request) -> Response + Send + Sync + 'static,
{
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))?;
    start(listener, answer)?;
    serve::stay()
}

/// The same in the background, on a listener.
pub(crate) fn start<F>(listener: TcpListener, answer: F) -> Result<()>
where
    F: Fn(&Request) -> Response + Send + Sync + 'static,
{
    let web = Web {
        answer,
        open: Arc::default(),
    };
    serve::start(listener, web)
        .map_err(|_| Error::new(ErrorKind::Other, "no memory for the server's thread"))
}

struct Web<F> {
    answer: F,
    open: Arc<AtomicUsize>,
}

impl<F: Fn(&Request) -> Response + Send + Sync + 'static> Service for Web<F> {
    const NAME: &'static str = "web";
    /// The function is the application's, and may format and parse.
    const STACK_BYTES: usize = 64 * 1024;

    fn has_room(&self) -> bool {
        self.open.load(Relaxed) < MAX_CONNECTIONS
    }

    fn serve(&self, stream: Stream) {
        self.open.fetch_add(1, Relaxed);
        converse(stream, &self.answer);
        self.open.fetch_sub(1, Relaxed);
    }

    fn refuse(&self, stream: Stream) {
        refuse(stream);
    }
}

#[cfg(test)]
mod tests {
    use tare_libos::io::{Read, Write};
    use tare_libos::net::TcpStream;

    use super::*;

    #[test]
    fn requests_are_answered_over_sockets() {
        let listener = TcpListener::bind("127.0.0.1:9021").unwrap();
        start(listener, |request| Response::text(request.path())).unwrap();
        let mut client = TcpStream::connect(("127.0.0.1", 9021)).unwrap();
        let request = b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        client.write_all(request).unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.ends_with("GMT\r\n\r\n/a"), "{answer}");
    }
}
