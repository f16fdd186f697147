//! Connecting to a host with several addresses: the next one is tried when the last has
//! not answered for [`DELAY`], and the first that answers is kept (RFC 8305, 5).

use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;

use super::addr::{Addresses, ToSocketAddrs};
use super::{Interests, PollItem, TcpStream, poll};
use crate::io::{Error, ErrorKind, Result};

/// Time between two attempts (RFC 8305, 8).
const DELAY: Duration = Duration::from_millis(250);
/// Most addresses that are tried.
const ATTEMPTS: usize = 8;

impl TcpStream {
    /// Connects to an address, or to the first of a host's that answers: one is tried
    /// after the other, 250 ms apart. Gives each up after 30 seconds.
    pub fn connect(address: impl ToSocketAddrs) -> Result<Self> {
        let addresses = address.to_socket_addrs()?;
        match addresses.only() {
            Some(address) => Self::connect_within(address, None),
            None => connect(&addresses),
        }
    }
}

/// A connection to the first of `addresses` that answers; the last error if none does.
fn connect(addresses: &Addresses) -> Result<TcpStream> {
    let mut waiting = order(addresses).into_iter();
    let mut open: Vec<TcpStream> = Vec::new();
    let mut failure = Error::from(ErrorKind::TimedOut);
    loop {
        match waiting.next().map(TcpStream::connect_nonblocking) {
            Some(Ok(stream)) => open.push(stream),
            Some(Err(error)) => {
                failure = error;
                continue;
            }
            None if open.is_empty() => return Err(failure),
            None => {}
        }
        let delay = (waiting.len() > 0).then_some(DELAY);
        if let Some(stream) = first(&mut open, delay, &mut failure)? {
            stream.set_nonblocking(false)?;
            return Ok(stream);
        }
    }
}

/// Waits until one attempt has ended, or `delay` has passed. Those that failed are gone.
fn first(
    open: &mut Vec<TcpStream>,
    delay: Option<Duration>,
    failure: &mut Error,
) -> Result<Option<TcpStream>> {
    let mut items = Vec::new();
    items.extend(
        open.iter()
            .map(|stream| PollItem::new(stream, Interests::WRITE)),
    );
    poll(&mut items, delay)?;
    let ready: Vec<_> = items.iter().map(PollItem::readiness).collect();
    for (at, ready) in ready.iter().enumerate().rev() {
        if !ready.matches(Interests::WRITE) {
            continue;
        }
        match open[at].take_error()? {
            None => return Ok(Some(open.swap_remove(at))),
            Some(error) => {
                *failure = error;
                open.remove(at);
            }
        }
    }
    Ok(None)
}

/// The families in turn, in the order that each has (RFC 8305, 4).
fn order(addresses: &Addresses) -> Vec<SocketAddr> {
    let first = addresses.first();
    let is_first = |address: &SocketAddr| address.is_ipv4() == first.is_ipv4();
    let mut same = addresses.iter().filter(|it| is_first(it));
    let mut others = addresses.iter().filter(|it| !is_first(it));
    let mut turns = Vec::new();
    loop {
        let turn = [same.next(), others.next()];
        turns.extend(turn.into_iter().flatten());
        if turn == [None; 2] || turns.len() >= ATTEMPTS {
            turns.truncate(ATTEMPTS);
            return turns;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::TcpListener;

    fn addresses(texts: &[&str]) -> Addresses {
        Addresses::from_list(texts.iter().map(|text| text.parse().unwrap())).unwrap()
    }

    #[test]
    fn families_take_turns() {
        let of = |texts: &[&str]| {
            let order = order(&addresses(texts));
            order
                .iter()
                .map(|it| it.ip().to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            of(&["[::1]:1", "[::2]:1", "[::3]:1", "1.0.0.1:1"]),
            ["::1", "1.0.0.1", "::2", "::3"]
        );
        assert_eq!(of(&["1.0.0.1:1"; 20]).len(), ATTEMPTS);
    }

    #[test]
    fn the_first_address_that_answers_is_connected() {
        let _listener = TcpListener::bind("127.0.0.1:9031").unwrap();
        // The first is refused, the second has no route.
        let list = addresses(&["127.0.0.1:9030", "192.0.2.1:9031", "127.0.0.1:9031"]);
        let stream = connect(&list).unwrap();
        assert_eq!(
            stream.peer_addr().unwrap(),
            "127.0.0.1:9031".parse().unwrap()
        );
        let refused = connect(&addresses(&["192.0.2.1:9", "127.0.0.1:9030"]));
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    }
}
