//! Requests and answers on a connection.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

pub(crate) use tare_tailor::dialog::Dialog;

use super::catalog::Protocol;
use super::postgres;

/// Longest wait for an answer.
pub const ANSWER: Duration = Duration::from_secs(5);
/// Nothing more comes of an answer after this time.
pub(crate) const QUIET: Duration = Duration::from_millis(300);

/// Everything that is answered to one request, on its own connection.
pub fn ask(address: SocketAddr, limit: Duration, request: &[u8]) -> io::Result<Vec<u8>> {
    Dialog::open(address, limit)?.until_closed(request)
}

/// What follows the head of an HTTP answer.
pub fn body(answer: &[u8]) -> &[u8] {
    let end = b"\r\n\r\n";
    let head = answer.windows(end.len()).position(|window| window == end);
    head.map_or(&[], |at| &answer[at + end.len()..])
}

/// A connection that was opened as the protocol wants it: it takes requests. With it the length of
/// the answer to what opens it.
pub(crate) fn greeted(address: SocketAddr, protocol: Protocol) -> io::Result<(Dialog, usize)> {
    let mut dialog = Dialog::open(address, ANSWER)?;
    let greeting = protocol.greeting();
    let answer = match greeting.as_slice() {
        [] => Vec::new(),
        greeting => dialog.learn(greeting, QUIET)?,
    };
    Ok((dialog, answer.len()))
}

/// An answer without what differs from second to second or from start to start: its
/// date, the order in which a server's hash table gives what it allows, the number of its
/// process.
pub(crate) fn timeless(protocol: Protocol, answer: &[u8]) -> Vec<u8> {
    match protocol {
        Protocol::Http => {}
        Protocol::Redis | Protocol::Memcached => return answer.to_owned(),
        Protocol::Postgres => return postgres::without_cancel_key(answer),
    }
    let lines = answer.split_inclusive(|byte| *byte == b'\n');
    lines
        .filter(|line| !line.starts_with(b"Date: "))
        .flat_map(in_order)
        .collect()
}

/// The line with the methods of an `Allow` header in alphabetical order.
fn in_order(line: &[u8]) -> Vec<u8> {
    let name: &[u8] = b"Allow: ";
    let Some(list) = line.strip_prefix(name) else {
        return line.to_owned();
    };
    let mut methods: Vec<&[u8]> = list.trim_ascii().split(|byte| *byte == b',').collect();
    methods.sort_unstable();
    [name, &methods.join(&b','), b"\r\n"].concat()
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{Ipv4Addr, TcpListener};
    use std::thread;

    use super::*;

    /// Takes one connection, and answers to its first `bytes` bytes.
    fn answers(bytes: usize, answer: &'static [u8]) -> (SocketAddr, thread::JoinHandle<Vec<u8>>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = vec![0; bytes];
            stream.read_exact(&mut request).unwrap();
            stream.write_all(answer).unwrap();
            stream.read_to_end(&mut Vec::new()).unwrap();
            request
        });
        (address, server)
    }

    #[test]
    fn the_body_follows_the_first_empty_line() {
        assert_eq!(
            body(b"HTTP/1.1 200 OK\r\nA: b\r\n\r\none\r\n\r\ntwo"),
            b"one\r\n\r\ntwo"
        );
        assert_eq!(body(b"HTTP/1.1"), b"");
    }

    #[test]
    fn a_connection_is_opened_with_what_its_protocol_begins_with() {
        let startup = Protocol::Postgres.greeting();
        let (address, server) = answers(startup.len(), b"Z\0\0\0\x05I");
        let (dialog, answered) = greeted(address, Protocol::Postgres).unwrap();
        drop(dialog);
        assert_eq!(answered, 6);
        assert_eq!(server.join().unwrap(), startup);
        let (address, server) = answers(0, b"");
        drop(greeted(address, Protocol::Http).unwrap());
        assert_eq!(server.join().unwrap(), b"");
    }

    #[test]
    fn the_number_of_a_process_is_not_compared() {
        let answer = b"K\0\0\0\x0c12345678Z\0\0\0\x05I";
        assert_eq!(timeless(Protocol::Postgres, answer), b"Z\0\0\0\x05I");
    }

    #[test]
    fn the_date_is_not_compared() {
        let answer = b"HTTP/1.1 200 OK\r\nDate: now\r\nServer: x\r\n\r\nDate of birth\n";
        let kept = timeless(Protocol::Http, answer);
        assert_eq!(kept, b"HTTP/1.1 200 OK\r\nServer: x\r\n\r\nDate of birth\n");
        assert_eq!(timeless(Protocol::Redis, b"Date: x\n"), b"Date: x\n");
    }

    #[test]
    fn methods_are_allowed_in_any_order() {
        let answer = |list| format!("HTTP/1.1 405 No\r\nAllow: {list}\r\n\r\nbody").into_bytes();
        let kept = |list| timeless(Protocol::Http, &answer(list));
        assert_eq!(kept("POST,GET,HEAD"), answer("GET,HEAD,POST"));
        assert_ne!(kept("GET,HEAD"), kept("GET,HEAD,POST"));
    }
}
