//! Tests of sockets of AF_UNIX.

use alloc::vec::Vec;

use super::super::channel::{CAPACITY, MOST_MESSAGES};
use super::*;

fn listener() -> Unix {
    let listener = Unix::new(SocketKind::Stream);
    assert_eq!(listener.listen(1), Err(Errno::EINVAL));
    listener.bind(b"/run/x"[..].into()).expect("unnamed yet");
    assert_eq!(listener.listen(1), Ok(()));
    listener
}

#[test]
fn a_connection_carries_bytes_both_ways_and_ends() {
    let listener = listener();
    assert_eq!(listener.accept().err(), Some(Errno::EAGAIN));
    let client = Unix::new(SocketKind::Stream);
    assert_eq!(client.ready(), POLLOUT | POLLHUP);
    assert_eq!(client.connect(&listener), Ok(()));
    assert_eq!(client.connect(&listener), Err(Errno::EISCONN));
    assert_eq!(listener.ready(), POLLIN);
    let (server, _) = listener.accept().expect("one waits");
    assert_eq!(client.write(b"hello"), Ok(5));
    let mut bytes = [0; 8];
    assert_eq!(server.read(&mut bytes), Ok(5));
    assert_eq!(server.read(&mut bytes), Err(Errno::EAGAIN));
    assert_eq!(client.shutdown(Half::Write), Ok(()));
    assert_eq!(server.read(&mut bytes), Ok(0));
    assert_eq!(server.write(b"x"), Ok(1));
    drop(server);
    assert_eq!(client.ready() & POLLERR, 0);
    assert_eq!(client.read(&mut bytes), Ok(1));
    assert_eq!(client.write(b"x"), Err(Errno::EPIPE));
    assert_eq!(client.ready() & POLLHUP, POLLHUP);
}

#[test]
fn bytes_that_a_peer_left_unread_are_a_reset() {
    let (one, two) = Unix::pair(SocketKind::Stream);
    assert_eq!(one.write(b"lost"), Ok(4));
    assert_eq!(two.write(b"x"), Ok(1));
    drop(two);
    assert_eq!(one.ready() & POLLERR, POLLERR);
    let mut bytes = [0; 8];
    assert_eq!(one.read(&mut bytes), Ok(1));
    assert_eq!(one.read(&mut bytes), Err(Errno::ECONNRESET));
    assert_eq!(one.read(&mut bytes), Ok(0));
}

#[test]
fn a_full_backlog_waits_and_a_closed_listener_refuses() {
    let listener = listener();
    let clients: Vec<_> = (0..3).map(|_| Unix::new(SocketKind::Stream)).collect();
    assert_eq!(clients[0].connect(&listener), Ok(()));
    assert_eq!(clients[1].connect(&listener), Ok(()));
    assert_eq!(clients[2].connect(&listener), Err(Errno::EAGAIN));
    let named = Named(Arc::downgrade(&listener.0));
    let watched = named.watched().expect("it is open");
    drop(listener);
    // Who waits for it does not keep it open.
    assert_eq!(named.socket().err(), Some(Errno::ECONNREFUSED));
    drop(watched);
    assert_eq!(clients[0].ready() & POLLERR, POLLERR);
    assert_eq!(clients[0].read(&mut [0; 1]), Err(Errno::ECONNRESET));
    assert_eq!(clients[0].read(&mut [0; 1]), Ok(0));
}

#[test]
fn a_listener_that_is_shut_takes_no_more_connections() {
    let listener = listener();
    let client = Unix::new(SocketKind::Stream);
    assert_eq!(client.connect(&listener), Ok(()));
    assert_eq!(listener.shutdown(Half::Write), Ok(()));
    assert_eq!(Unix::new(SocketKind::Stream).connect(&listener), Ok(()));
    assert_eq!(listener.shutdown(Half::Both), Ok(()));
    let late = Unix::new(SocketKind::Stream);
    assert_eq!(late.connect(&listener), Err(Errno::ECONNREFUSED));
    assert!(listener.accept().is_ok() && listener.accept().is_ok());
    assert_eq!(listener.accept().err(), Some(Errno::EINVAL));
    assert_eq!(listener.ready(), POLLIN | POLLRDHUP | POLLHUP);
}

#[test]
fn messages_keep_their_borders() {
    for kind in [SocketKind::Datagram, SocketKind::Packets] {
        let (one, two) = Unix::pair(kind);
        assert_eq!(one.write(b"one"), Ok(3));
        assert_eq!(one.write(b"three"), Ok(5));
        let mut bytes = [0; 2];
        let cut = two.receive(&mut bytes, true).expect("a message");
        assert_eq!((cut.count, cut.length), (2, 3));
        assert_eq!(two.read(&mut bytes), Ok(2));
        assert_eq!(two.read(&mut [0; 9]), Ok(5));
        assert_eq!(two.read(&mut bytes), Err(Errno::EAGAIN));
    }
}

#[test]
fn a_packet_socket_finds_a_reset_before_what_came() {
    let (one, two) = Unix::pair(SocketKind::Packets);
    assert_eq!(one.write(b"lost"), Ok(4));
    assert_eq!(two.write(b"x"), Ok(1));
    drop(two);
    assert_eq!(one.take_error(), Errno::ECONNRESET.0);
    assert_eq!(one.take_error(), 0);
    assert_eq!(one.read(&mut [0; 8]), Ok(1));
    assert_eq!(one.read(&mut [0; 8]), Ok(0));
    assert_eq!(one.write(b"x"), Err(Errno::EPIPE));
    let alone = Unix::new(SocketKind::Packets);
    assert_eq!(alone.read(&mut [0; 8]), Err(Errno::ENOTCONN));
}

#[test]
fn a_datagram_socket_loses_its_peer_once_and_takes_from_its_peer_only() {
    let (one, two) = Unix::pair(SocketKind::Datagram);
    let other = Unix::new(SocketKind::Datagram);
    assert_eq!(other.send_to(b"x", &one), Err(Errno::EPERM));
    assert_eq!(other.connect(&one), Err(Errno::EPERM));
    assert_eq!(two.write(b"gone with its sender"), Ok(20));
    drop(two);
    assert_eq!(one.write(b"x"), Err(Errno::ECONNREFUSED));
    assert_eq!(one.write(b"x"), Err(Errno::ENOTCONN));
    assert_eq!(one.read(&mut [0; 8]), Err(Errno::EAGAIN));
    assert_eq!(other.connect(&one), Ok(()));
    assert_eq!(other.shutdown(Half::Write), Ok(()));
    assert_eq!(other.may_send_messages(), Err(Errno::EPIPE));
    assert_eq!(other.write(b"x"), Err(Errno::EPIPE));
}

#[test]
fn a_name_that_comes_later_is_the_peers_too() {
    let (one, two) = Unix::pair(SocketKind::Stream);
    one.bind(b"/run/late"[..].into()).expect("unnamed yet");
    assert_eq!(two.peer(), Ok(Address::Unix(b"/run/late"[..].into())));
}

#[test]
fn what_waits_in_a_channel_is_bounded() {
    let (one, two) = Unix::pair(SocketKind::Stream);
    assert_eq!(one.write(&[1; CAPACITY + 5]), Ok(CAPACITY));
    assert_eq!(one.write(b"x"), Err(Errno::EAGAIN));
    assert_eq!(one.ready() & POLLOUT, 0);
    assert_eq!(two.read(&mut [0; 9]), Ok(9));
    assert_eq!(one.ready() & POLLOUT, POLLOUT);
    let (one, _two) = Unix::pair(SocketKind::Datagram);
    let sent = (0..2 * MOST_MESSAGES).take_while(|_| one.write(b"").is_ok());
    assert_eq!(sent.count(), MOST_MESSAGES);
}
