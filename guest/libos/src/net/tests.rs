//! The sockets with real threads, over the loopback.

#![allow(clippy::unwrap_used)]

use core::time::Duration;

use super::{Shutdown, TcpListener, TcpStream};
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
fn nobody_listens_and_nobody_is_there() {
    let refused = TcpStream::connect("127.0.0.1:9").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    let no_route = TcpStream::connect("192.0.2.1:80").unwrap_err();
    assert_eq!(no_route.kind(), ErrorKind::NetworkUnreachable);
    let late = super::wait_configured(Some(Duration::from_millis(1))).unwrap_err();
    assert_eq!(late.kind(), ErrorKind::TimedOut);
}
