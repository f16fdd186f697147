//! The network by itself: what a request costs without a web server around it.
//!
//! | port | answers |
//! |---|---|
//! | 7 | each byte with itself (RFC 862) |
//! | 9 | nothing (RFC 863) |
//! | 80 | whatever is read with a fixed HTTP answer of 1 KiB, keep-alive |
//! | 5001 | 16 MiB of zeros, then the end |
//!
//! UDP port 7 echoes datagrams.

#![cfg_attr(target_os = "none", no_std)]
#![cfg_attr(target_os = "none", no_main)]

extern crate alloc;

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use tare_libos::io::{self, Read, Write};
use tare_libos::net::{self, Ipv6Addr, TcpListener, TcpStream, UdpSocket};
use tare_libos::{println, thread};

/// Stack of a connection's thread in bytes.
const STACK: usize = 16 * 1024;
const BODY: usize = 1024;
const BULK: usize = 16 << 20;

fn main() -> io::Result<()> {
    serve(7, |stream| echo(&stream))?;
    serve(
        9,
        |mut stream| while matches!(stream.read(&mut [0; 4096]), Ok(1..)) {},
    )?;
    serve(5001, |mut stream| {
        let _ = bulk(&mut stream);
    })?;
    let answer: &'static [u8] = answer().leak();
    serve(80, move |mut stream| {
        let _ = respond(&mut stream, answer);
    })?;
    thread::spawn(|| {
        let _ = echo_datagrams();
    });
    println!("serving");
    let address = net::wait_configured(None)?;
    println!("address {address}");
    loop {
        thread::park();
    }
}

tare_libos::entry!(main);

/// A thread for the port and one for each of its connections.
fn serve(port: u16, run: impl Fn(TcpStream) + Send + Clone + 'static) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))?;
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { continue };
            let run = run.clone();
            let spawned = thread::Builder::new()
                .stack_size(STACK)
                .spawn(move || run(stream));
            if let Err(error) = spawned {
                println!("connection dropped: {error}");
            }
        }
    });
    Ok(())
}

fn echo(mut stream: &TcpStream) {
    let mut buf = [0; 4096];
    while let Ok(n @ 1..) = stream.read(&mut buf) {
        if stream.write_all(&buf[..n]).is_err() {
            return;
        }
    }
}

fn answer() -> Vec<u8> {
    let mut answer =
        format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {BODY}\r\n\r\n")
            .into_bytes();
    answer.resize(answer.len() + BODY, b'.');
    answer
}

fn respond(stream: &mut TcpStream, answer: &[u8]) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buf = [0; 2048];
    while stream.read(&mut buf)? > 0 {
        stream.write_all(answer)?;
    }
    Ok(())
}

fn bulk(stream: &mut TcpStream) -> io::Result<()> {
    let zeros = vec![0; 64 * 1024];
    (0..BULK / zeros.len()).try_for_each(|_| stream.write_all(&zeros))
}

fn echo_datagrams() -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 7))?;
    let mut buf = [0; 2048];
    loop {
        let (n, from) = socket.recv_from(&mut buf)?;
        // A datagram that cannot be sent is lost, as datagrams are.
        let _ = socket.send_to(&buf[..n], from);
    }
}
