use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};

use smoltcp::time::{Duration, Instant};
use tare_io::{ErrorKind, IoSlice};

use super::super::{ConnectionId, Half, Interest, Sending};
use super::cable::Sleeper;
use super::world::{CLIENT, HTTP, TestStack, World, read_into, write};

#[test]
fn a_request_is_answered_and_both_sides_close() {
    let mut world = World::new(1);
    let listener = world.listen(4);
    let (server, client) = world.connect(listener);
    assert_eq!(world.server.flow(server).unwrap().remote.ip(), CLIENT);

    write(&mut world.client, client, b"ping", world.now).unwrap();
    world.run_until_quiet();
    let mut got = Vec::new();
    assert!(!read_into(&mut world.server, server, &mut got, world.now).unwrap());
    write(&mut world.server, server, b"pong", world.now).unwrap();
    world.server.close(server, world.now);
    world.run_until_quiet();
    let mut answer = Vec::new();
    assert!(read_into(&mut world.client, client, &mut answer, world.now).unwrap());
    world.client.close(client, world.now);
    world.pass(Duration::from_secs(30));
    assert_eq!(
        (got.as_slice(), answer.as_slice()),
        (&b"ping"[..], &b"pong"[..])
    );
    assert_eq!(world.server.counters().connections, 0);
    assert_eq!(world.client.counters().connections, 0);
    assert_eq!(world.next_deadline(), None);
}

#[test]
fn a_port_without_a_listener_refuses() {
    let mut world = World::new(2);
    let id = world.client.connect(HTTP, world.now).unwrap();
    world.run_until_quiet();
    let error = world.client.connected(id).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn an_absent_host_times_out() {
    let mut world = World::new(3);
    world.server.link().faults.lost = 1000;
    world.client.link().faults.lost = 1000;
    let id = world.client.connect(HTTP, world.now).unwrap();
    world.pass(Duration::from_secs(29));
    assert_eq!(
        world.client.connected(id).unwrap_err().kind(),
        ErrorKind::WouldBlock
    );
    world.pass(Duration::from_secs(3));
    assert_eq!(
        world.client.connected(id).unwrap_err().kind(),
        ErrorKind::TimedOut
    );
}

#[test]
fn a_full_backlog_lets_no_more_in_until_someone_accepts() {
    let mut world = World::new(4);
    let listener = world.listen(2);
    let ids: Vec<_> = (0..3)
        .map(|_| {
            let id = world.client.connect(HTTP, world.now).unwrap();
            world.run_until_quiet();
            id
        })
        .collect();
    assert_eq!(
        world.client.connected(ids[2]).unwrap_err().kind(),
        ErrorKind::WouldBlock
    );
    assert_eq!(world.server.counters().backlog_full, 1);
    world.server.accept(listener).unwrap();
    world.pass(Duration::from_secs(3));
    world.client.connected(ids[2]).unwrap();
}

#[test]
fn one_wait_is_one_wake_up() {
    let mut world = World::new(5);
    let listener = world.listen(4);
    let acceptor = Sleeper::default();
    world.server.wait_accept(listener, acceptor.clone());
    world.server.wait_accept(listener, acceptor.clone());
    let (server, client) = world.connect(listener);
    assert_eq!(acceptor.0.get(), 1);

    let (kept, cancelled) = (Sleeper::default(), Sleeper::default());
    world.server.wait(server, Interest::Readable, kept.clone());
    world
        .server
        .wait(server, Interest::Readable, cancelled.clone());
    world.server.cancel(server, Interest::Readable, &cancelled);
    write(&mut world.client, client, b"x", world.now).unwrap();
    world.run_until_quiet();
    assert_eq!((kept.0.get(), cancelled.0.get()), (1, 0));
}

#[test]
fn a_writer_is_woken_when_half_of_the_buffer_is_free() {
    let mut world = World::new(6);
    let listener = world.listen(4);
    let (server, client) = world.connect(listener);
    let data = [7; 64 * 1024];
    let sent = write(&mut world.server, server, &data, world.now).unwrap();
    assert!(sent < data.len());
    world.run_until_quiet();
    let writer = Sleeper::default();
    world
        .server
        .wait(server, Interest::Writable, writer.clone());
    let mut got = Vec::new();
    while writer.0.get() == 0 {
        read_into(&mut world.client, client, &mut got, world.now).unwrap();
        world.pass(Duration::from_millis(50));
    }
    let more = write(&mut world.server, server, &data, world.now).unwrap();
    assert!(more >= 8 * 1024, "{more}");
}

#[test]
fn closing_with_unread_data_resets() {
    let mut world = World::new(7);
    let listener = world.listen(4);
    let (server, client) = world.connect(listener);
    write(&mut world.client, client, b"unwanted", world.now).unwrap();
    world.run_until_quiet();
    world.server.close(server, world.now);
    world.run_until_quiet();
    let mut got = Vec::new();
    let error = read_into(&mut world.client, client, &mut got, world.now).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    let error = write(&mut world.client, client, b"x", world.now).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert_eq!(world.server.counters().connections, 0);
}

#[test]
fn a_connection_that_is_given_up_resets_and_sends_nothing_more() {
    let mut world = World::new(7);
    let listener = world.listen(4);
    let (server, client) = world.connect(listener);
    write_as(
        &mut world.server,
        server,
        b"unsent",
        Sending::WithMore,
        world.now,
    );
    world.server.abort(server, world.now);
    world.run_until_quiet();
    let mut got = Vec::new();
    let error = read_into(&mut world.client, client, &mut got, world.now).unwrap_err();
    assert_eq!(
        (error.kind(), &got[..]),
        (ErrorKind::ConnectionReset, &[][..])
    );
    assert_eq!(world.server.counters().connections, 0);
    // It is gone: giving it up again changes nothing.
    world.server.abort(server, world.now);
}

#[test]
fn a_half_closed_connection_still_answers() {
    let mut world = World::new(8);
    let listener = world.listen(4);
    let (server, client) = world.connect(listener);
    write(&mut world.client, client, b"all", world.now).unwrap();
    world
        .client
        .shutdown(client, Half::Write, world.now)
        .unwrap();
    let error = write(&mut world.client, client, b"x", world.now).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    world.run_until_quiet();
    let mut got = Vec::new();
    assert!(read_into(&mut world.server, server, &mut got, world.now).unwrap());
    write(&mut world.server, server, b"answer", world.now).unwrap();
    world.run_until_quiet();
    let mut answer = Vec::new();
    assert!(!read_into(&mut world.client, client, &mut answer, world.now).unwrap());
    assert_eq!(
        (got.as_slice(), answer.as_slice()),
        (&b"all"[..], &b"answer"[..])
    );
}

#[test]
fn a_peer_that_vanishes_is_given_up() {
    let mut world = World::new(9);
    let listener = world.listen(4);
    let (server, _client) = world.connect(listener);
    world.client.link().faults.lost = 1000;
    write(&mut world.server, server, b"anyone?", world.now).unwrap();
    world.pass(Duration::from_secs(50));
    assert!(write(&mut world.server, server, b"?", world.now).is_ok());
    world.pass(Duration::from_secs(60));
    assert!(write(&mut world.server, server, b"?", world.now).is_err());
    world.server.close(server, world.now);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.server.counters().connections, 0);
}

#[test]
fn a_long_silence_does_not_end_the_next_write() {
    let mut world = World::new(10);
    let listener = world.listen(4);
    let (server, client) = world.connect(listener);
    world.pass(Duration::from_secs(100_000));
    write(&mut world.server, server, b"still here", world.now).unwrap();
    world.pass(Duration::from_secs(2));
    world.server.close(server, world.now);
    world.pass(Duration::from_secs(2));
    let mut got = Vec::new();
    assert!(read_into(&mut world.client, client, &mut got, world.now).unwrap());
    assert_eq!(got, b"still here");
}

#[test]
fn a_closed_listener_resets_what_was_not_accepted() {
    let mut world = World::new(11);
    let listener = world.listen(4);
    let id = world.client.connect(HTTP, world.now).unwrap();
    world.run_until_quiet();
    world.client.connected(id).unwrap();
    world.server.close_listener(listener, world.now);
    world.run_until_quiet();
    assert!(world.server.accept(listener).is_err());
    assert_eq!(world.server.counters().connections, 0);
    assert!(world.server.listen(HTTP, 1).is_ok());
    assert!(read_into(&mut world.client, id, &mut Vec::new(), world.now).is_err());
}

#[test]
fn a_listening_port_is_taken_once() {
    let mut world = World::new(12);
    world.listen(1);
    assert_eq!(
        world.server.listen(HTTP, 1).unwrap_err().kind(),
        ErrorKind::AddrInUse
    );
}

fn write_as(stack: &mut TestStack, id: ConnectionId, data: &[u8], sending: Sending, now: Instant) {
    let written = stack.write_as(id, &[IoSlice::new(data)], sending, now);
    assert_eq!(written.unwrap(), data.len());
}

#[test]
fn a_connection_on_a_full_link_looks_again_by_itself() {
    let mut world = World::new(58);
    let listener = world.listen(4);
    let (server, client) = world.connect(listener);
    world.pass(Duration::from_secs(1));
    world.server.link().room = 0;
    write(&mut world.server, server, b"late", world.now).unwrap();
    for _ in 0..100 {
        let due = world.server.deadline().unwrap();
        assert!(due > world.now && due <= world.now + Duration::from_millis(1));
        world.now = due;
        world.server.poll(world.now, 16);
    }
    world.server.link().room = 64;
    world.pass(Duration::from_millis(2));
    let mut got = Vec::new();
    read_into(&mut world.client, client, &mut got, world.now).unwrap();
    assert_eq!(got, b"late");
}

#[test]
fn what_is_written_for_later_goes_in_one_segment() {
    let mut world = World::new(13);
    let listener = world.listen(4);
    let (server, client) = world.connect(listener);
    world.server.set_nodelay(server, true, world.now).unwrap();
    let before = world.server.link().sent;
    for part in [&b"head "[..], b"and ", b"body"] {
        write_as(&mut world.server, server, part, Sending::Later, world.now);
    }
    world.run_until_quiet();
    assert!(world.server.has_written());
    assert_eq!(world.server.link().sent, before);
    world.server.send_written(world.now);
    assert!(!world.server.has_written());
    assert_eq!(world.server.link().sent, before + 1);
    world.run_until_quiet();
    let mut got = Vec::new();
    read_into(&mut world.client, client, &mut got, world.now).unwrap();
    assert_eq!(got, b"head and body");
}

#[test]
fn what_fills_the_buffer_or_ends_the_connection_goes_at_once() {
    let mut world = World::new(14);
    let listener = world.listen(4);
    let (server, client) = world.connect(listener);
    let data = [7; 64 * 1024];
    let part = [IoSlice::new(&data)];
    let written = world
        .server
        .write_as(server, &part, Sending::Later, world.now);
    assert!(written.unwrap() < data.len());
    assert!(!world.server.has_written());
    write_as(
        &mut world.client,
        client,
        b"last",
        Sending::Later,
        world.now,
    );
    world
        .client
        .shutdown(client, Half::Write, world.now)
        .unwrap();
    world.run_until_quiet();
    let mut got = Vec::new();
    assert!(read_into(&mut world.server, server, &mut got, world.now).unwrap());
    assert_eq!(got, b"last");
    // The number may be another connection's when the list is looked at.
    write_as(
        &mut world.server,
        server,
        b"more",
        Sending::Later,
        world.now,
    );
    world.server.close(server, world.now);
    world.client.close(client, world.now);
    world.pass(Duration::from_secs(40));
    let (server, _) = world.connect(listener);
    let before = world.server.link().sent;
    world.server.send_written(world.now);
    assert_eq!(world.server.link().sent, before);
    write_as(
        &mut world.server,
        server,
        b"hello",
        Sending::Later,
        world.now,
    );
    assert_eq!(world.server.link().sent, before);
}

#[test]
fn what_more_follows_waits_for_it_and_a_cork_ends() {
    let mut world = World::new(15);
    let listener = world.listen(4);
    let (server, client) = world.connect(listener);
    world.server.set_nodelay(server, true, world.now).unwrap();
    let before = world.server.link().sent;
    write_as(
        &mut world.server,
        server,
        b"head ",
        Sending::WithMore,
        world.now,
    );
    world.server.send_written(world.now);
    assert_eq!(world.server.link().sent, before);
    write_as(&mut world.server, server, b"body", Sending::Now, world.now);
    assert_eq!(world.server.link().sent, before + 1);
    world.server.set_corked(server, true, world.now).unwrap();
    write_as(&mut world.server, server, b" cork", Sending::Now, world.now);
    assert_eq!(world.server.link().sent, before + 1);
    world.server.set_corked(server, false, world.now).unwrap();
    assert_eq!(world.server.link().sent, before + 2);
    world.run_until_quiet();
    let mut got = Vec::new();
    read_into(&mut world.client, client, &mut got, world.now).unwrap();
    assert_eq!(got, b"head body cork");
}

#[test]
fn what_was_closed_goes_to_a_peer_that_reads_slowly() {
    let mut world = World::new(15);
    let listener = world.listen(4);
    let (server, client) = world.connect(listener);
    let mut written = 0;
    loop {
        match write(&mut world.server, server, &[7; 4096], world.now).unwrap() {
            0 => break,
            count => written += count,
        }
        world.run_until_quiet();
    }
    world.server.close(server, world.now);
    let mut got = 0;
    let mut buf = [0; 500];
    for _ in 0..120 {
        world.pass(Duration::from_secs(1));
        got += world.client.read(client, &mut buf, world.now).unwrap();
    }
    assert!(
        got < written,
        "{got} of {written}: too fast to show anything"
    );
    let mut rest = Vec::new();
    while !read_into(&mut world.client, client, &mut rest, world.now).unwrap() {
        world.pass(Duration::from_secs(1));
    }
    assert_eq!(got + rest.len(), written);
}

/// The peer has all, and keeps its own half open: it is not reset.
#[test]
fn a_closed_connection_is_forgotten_without_a_reset() {
    let mut world = World::new(16);
    let listener = world.listen(4);
    let (server, client) = world.connect(listener);
    world.server.close(server, world.now);
    world.pass(Duration::from_secs(31));
    assert_eq!(world.server.counters().connections, 0);
    assert!(world.client.failure(client).unwrap().is_none());
}

/// Its owner has not closed it yet, and the peer may use its ports again at once.
#[test]
fn the_ports_of_a_lost_connection_are_free_for_the_next() {
    let mut world = World::new(17);
    let listener = world.listen(4);
    let (server, client) = world.connect(listener);
    write(&mut world.client, client, b"last words", world.now).unwrap();
    world.run_until_quiet();
    world.client.abort(client, world.now);
    world.run_until_quiet();
    // The peer begins anew with the ports that it had before.
    world.client.tcp.next_port = world.server.flow(server).unwrap().remote.port() - 1;
    let (again, client) = world.connect(listener);
    assert_eq!(world.server.counters().connections, 2);
    assert_eq!(
        world.server.flow(again).unwrap(),
        world.server.flow(server).unwrap()
    );
    // Each number is its own connection's, in whichever order they end.
    world.server.close(server, world.now);
    write(&mut world.client, client, b"hello", world.now).unwrap();
    world.run_until_quiet();
    let mut got = Vec::new();
    read_into(&mut world.server, again, &mut got, world.now).unwrap();
    assert_eq!(got, b"hello");
    world.server.close(again, world.now);
    world.client.close(client, world.now);
    world.pass(Duration::from_secs(31));
    assert_eq!(world.server.counters().connections, 0);
}

#[test]
fn a_host_without_a_way_is_refused_at_once() {
    let mut world = World::new(18);
    let elsewhere = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 80);
    let error = world.client.connect(elsewhere, world.now).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NetworkUnreachable);
    assert_eq!(world.client.counters().connections, 0);
}

/// Half-closed, with a peer that answers and does not read for a while: it gets all of it.
#[test]
fn a_half_closed_connection_waits_for_a_reader_that_pauses() {
    let mut world = World::new(19);
    let listener = world.listen(4);
    let (server, client) = world.connect(listener);
    let data = [7; 4096];
    let mut written = 0;
    loop {
        let n = write(&mut world.server, server, &data, world.now).unwrap();
        world.run_until_quiet();
        written += n;
        if n == 0 {
            break;
        }
    }
    world
        .server
        .shutdown(server, Half::Write, world.now)
        .unwrap();
    world.pass(Duration::from_secs(200));
    let mut got = Vec::new();
    let mut is_end = false;
    while !is_end {
        is_end = read_into(&mut world.client, client, &mut got, world.now).unwrap();
        world.pass(Duration::from_millis(100));
        assert!(got.len() <= written);
    }
    assert_eq!(got.len(), written);
}
