//! The server on real sockets: what only a kernel's stream does to it.

#![allow(clippy::unwrap_used)]

mod support;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use support::{big, responses, server};
use tare_guest_http::host;

const GET: &[u8] = b"GET /ten.txt HTTP/1.1\r\nHost: a\r\n\r\n";
const LAST: &[u8] = b"GET /ten.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

/// A server on its own port, for the rest of the test's process.
fn start() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || host::serve(&listener, &Arc::new(server())));
    address
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    stream
}

fn read_all(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn a_thousand_pipelined_requests_get_their_answers() {
    let mut stream = connect(start());
    let mut writer = stream.try_clone().unwrap();
    let sender = std::thread::spawn(move || {
        writer.write_all(&GET.repeat(999)).unwrap();
        writer.write_all(LAST).unwrap();
    });
    let answers = responses(&read_all(&mut stream), &[]);
    sender.join().unwrap();
    assert_eq!(answers.len(), 1000);
    assert!(answers.iter().all(|answer| answer.body == b"0123456789"));
}

#[test]
fn slow_and_silent_clients_do_not_hold_up_others() {
    let address = start();
    let silent: Vec<_> = (0..50).map(|_| connect(address)).collect();
    let mut slow: Vec<_> = (0..50).map(|_| connect(address)).collect();
    for stream in &mut slow {
        stream.write_all(&GET[..10]).unwrap();
    }
    let began = Instant::now();
    let mut stream = connect(address);
    stream.write_all(LAST).unwrap();
    assert_eq!(responses(&read_all(&mut stream), &[]).len(), 1);
    assert!(began.elapsed() < Duration::from_secs(5));
    for stream in &mut slow {
        stream.write_all(&GET[10..]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(responses(&read_all(stream), &[]).len(), 1);
    }
    drop(silent);
}

#[test]
fn a_refusal_arrives_though_more_was_sent() {
    let mut stream = connect(start());
    stream.write_all(b"GET / HTTP/3.0\r\n\r\n").unwrap();
    stream.write_all(&[b'x'; 30_000]).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let answers = responses(&read_all(&mut stream), &[]);
    assert_eq!((answers.len(), answers[0].status), (1, 505));
}

#[test]
fn a_large_file_comes_whole_to_a_reader_with_pauses() {
    let mut stream = connect(start());
    stream
        .write_all(b"GET /big.bin HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let answer = responses(&read_all(&mut stream), &[]).remove(0);
    assert!(answer.body == big());
}

#[test]
fn curl_resumes_and_revalidates() {
    let curl = |args: &[&str]| {
        Command::new("curl")
            .args(["-s", "-m", "20"])
            .args(args)
            .output()
    };
    if curl(&["--version"]).is_err() {
        tare_vmtest::lacks("curl is not installed");
        return;
    }
    let url = format!("http://{}/ten.txt", start());
    assert_eq!(curl(&["-C", "4", &url]).unwrap().stdout, b"456789");
    assert_eq!(curl(&["-r", "-3", &url]).unwrap().stdout, b"789");
    let code = |args: &[&str]| {
        let all = [args, &["-o", "/dev/null", "-w", "%{http_code}", &url]].concat();
        String::from_utf8(curl(&all).unwrap().stdout).unwrap()
    };
    assert_eq!(code(&["-I"]), "200");
    assert_eq!(code(&["-z", "Sun, 06 Nov 1994 08:49:37 GMT"]), "304");
    assert_eq!(code(&["-d", "a=b"]), "405");
    assert_eq!(
        code(&["-H", "Transfer-Encoding: chunked", "-d", "a=b"]),
        "405"
    );
    assert_eq!(code(&["--http1.0"]), "200");
}
