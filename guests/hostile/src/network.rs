//! Connections to addresses that may be closed to guests.

use alloc::string::String;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};

use tare_libos::net::{TcpStream, UdpSocket};
use tare_libos::println;
use tare_libos::thread;
use tare_libos::time::{Duration, Instant};

/// How long an answer may take.
const LIMIT: Duration = Duration::from_secs(3);

/// Tries to reach `address` by UDP and TCP.
pub(crate) fn reach(address: &str) {
    // With its own address known, frames go out.
    let _ = tare_libos::net::wait_configured(Some(LIMIT));
    let sent = UdpSocket::bind("0.0.0.0:0").and_then(|socket| socket.send_to(b"datagram", address));
    println!("datagram: {sent:?}");
    let connected = Arc::new(AtomicBool::new(false));
    let (result, address) = (Arc::clone(&connected), String::from(address));
    // It waits for an answer longer than this test does.
    thread::spawn(move || {
        let stream = TcpStream::connect(address.as_str());
        println!("tcp: {:?}", stream.as_ref().map(|_| ()));
        result.store(stream.is_ok(), Ordering::Release);
    });
    let begin = Instant::now();
    while !connected.load(Ordering::Acquire) && begin.elapsed() < LIMIT {
        thread::sleep(Duration::from_millis(5));
    }
    if connected.load(Ordering::Acquire) {
        println!("connected");
    } else {
        println!("no connection");
    }
}
