//! Workers with real threads, over the loopback.

use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::SeqCst;
use core::time::Duration;

use super::{Service, Stream, Transport, TransportError, start};
use crate::io::{Read, Write};
use crate::net::{TcpListener, TcpStream};
use crate::sync::Arc;
use crate::thread;

/// Sends bytes back, to two clients at a time.
#[derive(Clone, Default)]
struct Echo {
    open: Arc<AtomicUsize>,
}

impl Service for Echo {
    const NAME: &'static str = "echo";

    fn has_room(&self) -> bool {
        self.open.load(SeqCst) < 2
    }

    fn serve(&self, mut stream: Stream) {
        self.open.fetch_add(1, SeqCst);
        let mut buf = [0; 100];
        while let Ok(n @ 1..) = stream.receive(&mut buf, None) {
            let (head, tail) = buf[..n].split_at(n / 2);
            let sent = stream.send(&[head, tail], Duration::from_secs(1));
            assert_eq!(sent, Ok(n));
        }
        self.open.fetch_sub(1, SeqCst);
    }

    fn refuse(&self, mut stream: Stream) {
        stream.send(&[b"full"], Duration::from_secs(1)).unwrap();
        stream.finish();
    }
}

fn connect(port: u16) -> TcpStream {
    TcpStream::connect(("127.0.0.1", port)).unwrap()
}

fn assert_served(client: &mut TcpStream) {
    let mut got = [0; 5];
    client.write_all(b"hello").unwrap();
    client.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"hello");
}

#[test]
fn connections_beyond_the_limit_are_refused_until_one_ends() {
    let echo = Echo::default();
    start(TcpListener::bind("127.0.0.1:9011").unwrap(), echo.clone()).unwrap();
    for _ in 0..3 {
        let mut clients = [connect(9011), connect(9011)];
        clients.iter_mut().for_each(assert_served);

        let mut refused = Vec::new();
        connect(9011).read_to_end(&mut refused).unwrap();
        assert_eq!(refused, b"full");

        clients.iter_mut().for_each(assert_served);
        drop(clients);
        while echo.open.load(SeqCst) > 0 {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn a_quiet_peer_differs_from_one_that_has_ended() {
    let listener = TcpListener::bind("127.0.0.1:9012").unwrap();
    let client = connect(9012);
    let mut stream = Stream::new(listener.accept().unwrap().0);
    let within = Some(Duration::from_millis(5));
    let quiet = stream.receive(&mut [0; 8], within);
    assert_eq!(quiet, Err(TransportError::TimedOut));
    drop(client);
    assert_eq!(stream.receive(&mut [0; 8], None), Ok(0));
}
