//! Requests and answers on a connection.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

pub(crate) use tare_tailor::dialog::Dialog;

use super::catalog::Protocol;

/// Everything that is answered to one request, on its own connection.
pub(crate) fn ask(address: SocketAddr, limit: Duration, request: &[u8]) -> io::Result<Vec<u8>> {
    Dialog::open(address, limit)?.until_closed(request)
}

/// An answer without what differs from second to second or from start to start: its
/// date, and the order in which a server's hash table gives what it allows.
pub(crate) fn timeless(protocol: Protocol, answer: &[u8]) -> Vec<u8> {
    if protocol != Protocol::Http {
        return answer.to_owned();
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
    use super::*;

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
