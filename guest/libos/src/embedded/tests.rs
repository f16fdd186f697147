use alloc::string::String;
use alloc::vec::Vec;

use edge_http::io::server::Connection;

use super::*;
use crate::net::TcpListener;
use crate::thread;

/// Room of a test's server for a head, bytes.
const HEAD: usize = 1024;

/// Sends all that `request` has and returns all that comes back.
fn exchange(port: u16, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    io::Write::write_all(&mut stream, request).unwrap();
    let mut answer = Vec::new();
    io::Read::read_to_end(&mut stream, &mut answer).unwrap();
    String::from_utf8(answer).unwrap()
}

/// `edge-http` is written against `embedded-io-async` and knows nothing of Tare.
#[test]
fn an_http_server_written_for_embedded_io_answers_here() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = thread::spawn(move || {
        task::block_on(async {
            let (stream, _) = listener.accept_async().await.unwrap();
            let mut buf = [0; HEAD];
            let mut connection = Connection::<_, 16>::new(&mut buf, &stream).await.unwrap();
            let path = String::from(connection.headers().unwrap().path);
            let head = [("Content-Length", "5"), ("Connection", "Close")];
            connection
                .initiate_response(200, None, &head)
                .await
                .unwrap();
            asynchronous::Write::write_all(&mut connection, b"hello")
                .await
                .unwrap();
            connection.complete().await.unwrap();
            path
        })
    });
    let answer = exchange(port, b"GET /greeting HTTP/1.1\r\nHost: tare\r\n\r\n");
    assert_eq!(server.join(), "/greeting");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nhello"), "{answer}");
}

/// What any crate does with a blocking stream.
fn echo<S: Read + Write>(mut stream: S) -> usize {
    let mut buf = [0; 1000];
    let mut sum = 0;
    loop {
        match stream.read(&mut buf).unwrap() {
            0 => return sum,
            n => stream.write_all(&buf[..n]).unwrap(),
        }
        stream.flush().unwrap();
        sum += 1;
    }
}

#[test]
fn blocking_traits_read_and_write_a_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = thread::spawn(move || echo(&listener.accept().unwrap().0));
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    assert!(!stream.read_ready().unwrap() && stream.write_ready().unwrap());
    assert_eq!(Read::read(&mut stream, &mut []), Ok(0));
    assert_eq!(Write::write(&mut stream, &[]), Ok(0));
    Write::write_all(&mut stream, b"abc").unwrap();
    let mut echoed = [0; 3];
    Read::read_exact(&mut stream, &mut echoed).unwrap();
    assert_eq!(&echoed, b"abc");
    stream.shutdown(crate::net::Shutdown::Write).unwrap();
    assert_eq!(Read::read(&mut stream, &mut echoed), Ok(0));
    assert!(server.join() >= 1);
}

/// More than both windows hold: the writer has to wait as a future too.
#[test]
fn a_long_write_waits_for_its_reader() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let sent: Vec<u8> = (0..1_000_000_u32).map(|i| (i % 251) as u8).collect();
    let copy = sent.clone();
    let writing = thread::spawn(move || {
        task::block_on(async {
            let (mut stream, _) = listener.accept_async().await.unwrap();
            asynchronous::Write::write_all(&mut stream, &copy)
                .await
                .unwrap();
        });
    });
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut got = Vec::new();
    io::Read::read_to_end(&mut stream, &mut got).unwrap();
    writing.join();
    assert!(got == sent);
}
