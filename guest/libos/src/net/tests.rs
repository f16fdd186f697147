//! The sockets with real threads, over the loopback.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use super::UdpSocket;
use super::{Interests, Observer, PollItem, Shutdown, Source, TcpListener, TcpStream, poll};
use crate::io::{ErrorKind, IoSlice, Read, Write};
use crate::thread;

#[test]
fn many_threads_echo_over_the_loopback() {
    let listener = TcpListener::bind("0.0.0.0:9001").unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut buf = [0; 3000];
                while let Ok(n @ 1..) = stream.read(&mut buf) {
                    stream.write_all(&buf[..n]).unwrap();
                }
            });
        }
    });
    let clients: Vec<_> = (0..8u8)
        .map(|client| thread::spawn(move || echo(client)))
        .collect();
    clients.into_iter().for_each(|client| client.join());
}

fn echo(client: u8) {
    let mut stream = TcpStream::connect("127.0.0.1:9001").unwrap();
    let sent: Vec<_> = (0..100_000u32)
        .map(|i| (i as u8).wrapping_mul(client))
        .collect();
    let mut writer = stream.try_clone().unwrap();
    let data = sent.clone();
    let writing = thread::spawn(move || {
        writer.write_all(&data).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    writing.join();
    assert!(got == sent);
}

#[test]
fn time_limits_end_waiting() {
    let listener = TcpListener::bind("127.0.0.1:9002").unwrap();
    listener
        .set_accept_timeout(Some(Duration::from_millis(5)))
        .unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::TimedOut);

    let mut stream = TcpStream::connect("127.0.0.1:9002").unwrap();
    let (mut peer, from) = listener.accept().unwrap();
    assert_eq!(from, stream.local_addr().unwrap());
    assert!(stream.set_read_timeout(Some(Duration::ZERO)).is_err());
    stream
        .set_read_timeout(Some(Duration::from_millis(5)))
        .unwrap();
    assert_eq!(
        stream.read(&mut [0]).unwrap_err().kind(),
        ErrorKind::TimedOut
    );

    stream
        .set_write_timeout(Some(Duration::from_millis(5)))
        .unwrap();
    let error = stream.write_all(&[0; 4 << 20]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);

    peer.set_nonblocking(true).unwrap();
    while peer.readable() {
        peer.read(&mut [0; 4096]).unwrap();
    }
    let parts = [IoSlice::new(b"head"), IoSlice::new(b"body")];
    assert_eq!(peer.write_vectored(&parts).unwrap(), 8);
    let mut got = [0; 8];
    stream.set_read_timeout(None).unwrap();
    stream.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"headbody");
}

#[test]
fn a_closed_port_refuses_and_an_absent_host_times_out() {
    let refused = TcpStream::connect("127.0.0.1:9").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    let no_route = TcpStream::connect("192.0.2.1:80").unwrap_err();
    assert_eq!(no_route.kind(), ErrorKind::NetworkUnreachable);
    let late = super::wait_configured(Some(Duration::from_millis(1))).unwrap_err();
    assert_eq!(late.kind(), ErrorKind::TimedOut);
}

/// An event queue as an application builds one on [`Source::watch`].
#[derive(Default)]
struct Events {
    tokens: crate::sync::SpinLock<Vec<u64>>,
    calls: core::sync::atomic::AtomicU32,
}

impl Observer for Events {
    fn ready(&self, token: u64) {
        self.tokens.lock().push(token);
        self.calls
            .fetch_add(1, core::sync::atomic::Ordering::Relaxed);
    }
}

#[test]
fn connecting_without_waiting_is_done_when_writable() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    assert_ne!(address.port(), 0);
    assert_eq!(
        listener.try_accept().unwrap_err().kind(),
        ErrorKind::WouldBlock
    );
    let stream = TcpStream::connect_nonblocking(address).unwrap();
    let mut items = [PollItem::new(&stream, Interests::WRITE)];
    assert_eq!(poll(&mut items, None).unwrap(), 1);
    assert_eq!(stream.take_error().unwrap(), None);
    let mut items = [PollItem::new(&listener, Interests::READ)];
    assert_eq!(poll(&mut items, None).unwrap(), 1);
    let (peer, _) = listener.try_accept().unwrap();
    assert_eq!(
        peer.try_read(&mut [0]).unwrap_err().kind(),
        ErrorKind::WouldBlock
    );
    assert_eq!(stream.try_write(&[IoSlice::new(b"hello")]).unwrap(), 5);
    let mut items = [PollItem::new(&peer, Interests::READ)];
    assert_eq!(poll(&mut items, None).unwrap(), 1);
    assert_eq!(peer.bytes_readable().unwrap(), 5);
    assert!(!peer.readiness().peer_finished);
    drop(stream);
    let mut items = [PollItem::new(&peer, Interests::NONE)];
    assert_eq!(poll(&mut items, Some(Duration::from_millis(1))).unwrap(), 0);
    assert!(peer.readiness().peer_finished && !peer.readiness().closed);
}

#[test]
fn a_refused_connection_is_ready_and_says_why() {
    let stream = TcpStream::connect_nonblocking("127.0.0.1:9").unwrap();
    let mut items = [PollItem::new(&stream, Interests::WRITE)];
    assert_eq!(poll(&mut items, None).unwrap(), 1);
    assert!(items[0].readiness().failed && items[0].readiness().closed);
    let why = stream.take_error().unwrap().unwrap();
    assert_eq!(why.kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn an_observer_learns_once_for_each_watch() {
    let events = Arc::new(Events::default());
    let observer: Arc<dyn Observer> = events.clone();
    let calls = || events.calls.load(core::sync::atomic::Ordering::Relaxed);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    let ready = peer.watch(Interests::READ, &observer, 7);
    assert!(!ready.readable && ready.writable);
    peer.watch(Interests::READ, &observer, 7);
    stream.write_all(b"a").unwrap();
    stream.write_all(b"b").unwrap();
    while calls() == 0 {
        thread::yield_now();
    }
    assert_eq!(*events.tokens.lock(), [7]);
    // Watched again while there is data: the next data is another event.
    while peer.bytes_readable().unwrap() < 2 {
        thread::yield_now();
    }
    assert!(peer.watch(Interests::READ, &observer, 8).readable);
    stream.write_all(b"c").unwrap();
    while calls() < 2 {
        thread::yield_now();
    }
    assert_eq!(*events.tokens.lock(), [7, 8]);
    peer.read_exact(&mut [0; 3]).unwrap();
    peer.watch(Interests::READ, &observer, 9);
    peer.unwatch(&observer, 9);
    stream.write_all(b"d").unwrap();
    peer.read_exact(&mut [0]).unwrap();
    assert_eq!(calls(), 2);
}

/// Answers questions on port 53 of this host as a name server: over UDP cut short for
/// names that begin with `t`. How often it was asked.
fn serve_names() -> Arc<core::sync::atomic::AtomicU32> {
    let asked = Arc::new(core::sync::atomic::AtomicU32::new(0));
    let answer = |question: &[u8], flags: [u8; 2]| {
        let mut answer = question.to_vec();
        let is_ipv4 = question[question.len() - 3] == 1;
        answer[2..4].copy_from_slice(&flags);
        if flags == [0x80, 0] && is_ipv4 {
            answer[7] = 1;
            answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 77]);
        }
        answer
    };
    let socket = UdpSocket::bind("127.0.0.1:53").unwrap();
    let counted = Arc::clone(&asked);
    thread::spawn(move || {
        let mut buf = [0; 512];
        while let Ok((n, from)) = socket.recv_from(&mut buf) {
            counted.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
            let flags = match buf[13] {
                b't' => [0x82, 0],
                b'n' => [0x80, 3],
                _ => [0x80, 0],
            };
            // A stranger's answer comes first and has another number.
            let mut wrong = answer(&buf[..n], flags);
            wrong[0] ^= 1;
            socket.send_to(&wrong, from).unwrap();
            socket.send_to(&answer(&buf[..n], flags), from).unwrap();
        }
    });
    let listener = TcpListener::bind("127.0.0.1:53").unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut len = [0; 2];
            stream.read_exact(&mut len).unwrap();
            let mut question = alloc::vec![0; usize::from(u16::from_be_bytes(len))];
            stream.read_exact(&mut question).unwrap();
            let answer = answer(&question, [0x80, 0]);
            let len = (answer.len() as u16).to_be_bytes();
            stream.write_all(&len).unwrap();
            stream.write_all(&answer).unwrap();
        }
    });
    asked
}

#[test]
fn names_are_resolved_kept_and_asked_for_again_over_tcp() {
    let unknown = super::lookup_host("www.example.org").unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::NetworkUnreachable);
    let asked = serve_names();
    let count = || asked.load(core::sync::atomic::Ordering::Relaxed);
    super::system::lock().set_name_servers(alloc::vec![super::Ipv4Addr::LOCALHOST.into()]);
    let address = super::IpAddr::from([192, 0, 2, 77]);
    for _ in 0..3 {
        assert_eq!(
            super::lookup_host("www.example.org"),
            Ok(alloc::vec![address])
        );
    }
    assert_eq!(count(), 1, "kept");
    assert_eq!(
        super::lookup_host("tcp.example.org"),
        Ok(alloc::vec![address])
    );
    let none = super::lookup_host("none.example.org").unwrap_err();
    assert_eq!(none.kind(), ErrorKind::NotFound);
    assert_eq!(
        super::lookup_host("192.0.2.9"),
        Ok(alloc::vec![[192, 0, 2, 9].into()])
    );
    assert!(super::lookup_host("a b").is_err());
}
