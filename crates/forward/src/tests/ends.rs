//! How connections begin and end.

use super::*;

fn from(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn host_of(world: &World) -> SocketAddr {
    world.connections.keys().next().unwrap().remote
}

#[test]
fn a_client_keeps_its_address_unless_the_guest_could_not_answer_it() {
    for (client, seen) in [
        ("127.0.0.1:5000", "10.0.2.2:5000"),
        ("192.0.2.7:5000", "192.0.2.7:5000"),
        ("[::ffff:192.0.2.7]:5000", "192.0.2.7:5000"),
        ("10.0.2.15:5000", "10.0.2.2:5000"),
        ("[::1]:5000", "[fd00::2]:5000"),
        ("[2001:db8::7]:5000", "[2001:db8::7]:5000"),
        ("[fe80::1]:5000", "[fd00::2]:5000"),
    ] {
        let mut world = World::new();
        world.connect_from(from(client));
        assert_eq!(host_of(&world), from(seen), "{client}");
    }
}

#[test]
fn two_clients_with_one_port_are_told_apart() {
    let mut world = World::new();
    let clients = ["127.0.0.1:5000", "127.0.0.2:5000", "127.0.0.3:5000"];
    let slots: Vec<_> = clients
        .iter()
        .map(|client| world.connect_from(from(client)))
        .collect();
    assert_eq!(world.connections.len(), 3);
    for (n, (slot, client)) in slots.iter().enumerate() {
        world.send(*slot, client, &[n as u8; 10]);
    }
    for connection in world.connections.values_mut() {
        let mut bytes = [0xff; 20];
        assert_eq!(connection.peek(&mut bytes).unwrap(), 10);
        connection.send(&bytes[..10]).unwrap();
    }
    world.run();
    for (n, (_, client)) in slots.iter().enumerate() {
        assert_eq!(client.received(), [n as u8; 10]);
    }
}

#[test]
fn a_client_without_a_place_gets_its_stream_back() {
    let mut settings = settings();
    settings.limits.connections = 2;
    settings.v6 = None;
    let mut world = World::with(settings);
    let open = |world: &mut World, client| {
        let opened = world
            .table
            .open(Client::default(), from(client), PORT, world.now);
        opened.is_ok()
    };
    assert!(!open(&mut world, "[::1]:1"), "no address of this kind");
    assert!(open(&mut world, "127.0.0.1:1") && open(&mut world, "127.0.0.1:2"));
    assert!(!world.table.has_room());
    assert!(!open(&mut world, "127.0.0.1:3"));
    assert_eq!(world.counted("forward_refused"), 2);
}

#[test]
fn each_direction_ends_by_itself() {
    let mut world = World::new();
    let (slot, client) = world.connect();
    world.send(slot, &client, b"question");
    world.end(slot, &client);
    assert_eq!(world.guest_reads(), b"question");
    assert!(world.guest().is_finished());
    assert!(!client.0.borrow().finished);
    world.guest_sends(b"answer");
    world.guest().close();
    world.run();
    assert_eq!(client.received(), b"answer");
    assert!(client.0.borrow().finished && !client.0.borrow().reset);
    assert_eq!(world.table.open_connections(), 0);
    assert_eq!(world.table.buffered(), 0);
    assert_eq!(world.counted("forward_closed"), 1);
}

#[test]
fn the_guests_end_comes_first() {
    let mut world = World::new();
    let (slot, client) = world.connect();
    world.guest_sends(b"hello");
    world.guest().close();
    world.run();
    assert!(client.0.borrow().finished);
    world.send(slot, &client, b"late");
    assert_eq!(world.guest_reads(), b"late");
    world.end(slot, &client);
    assert_eq!(world.table.open_connections(), 0);
    world.wait(Duration::from_secs(1));
    assert_eq!(world.guest().state(), State::TimeWait);
}

#[test]
fn the_end_waits_for_a_slow_reader() {
    let mut world = World::new();
    let (slot, client) = world.connect();
    client.0.borrow_mut().room = 3;
    world.end(slot, &client);
    world.guest_sends(b"answer");
    world.guest().close();
    world.run();
    world.wait(Duration::from_secs(300));
    assert!(!client.0.borrow().finished);
    assert_eq!(world.table.open_connections(), 1);
    client.0.borrow_mut().room = 3;
    world.ready(slot);
    assert_eq!(client.received(), b"answer");
    assert!(client.0.borrow().finished && !client.0.borrow().reset);
    assert_eq!(world.table.open_connections(), 0);
}

#[test]
fn a_reset_passes_in_both_directions() {
    let mut world = World::new();
    let (_, client) = world.connect();
    world.guest().send(b"last words").unwrap();
    world.run();
    world.guest().abort();
    world.run();
    assert_eq!(client.received(), b"last words");
    assert!(client.0.borrow().reset);
    assert_eq!(world.counted("forward_lost"), 1);

    let mut world = World::new();
    let (slot, _) = world.connect();
    let failed = Readiness {
        failed: true,
        ..Readiness::default()
    };
    world.table.host_ready(slot, failed, world.now);
    world.run();
    assert_eq!(world.guest().loss(), Some(tare_tcp::Loss::Reset));
    assert_eq!(world.counted("forward_aborted"), 1);
    assert_eq!(world.table.open_connections(), 0);
}

#[test]
fn a_client_that_is_gone_while_the_guest_sends_resets_it() {
    let mut world = World::new();
    let (_, client) = world.connect();
    client.0.borrow_mut().broken = Some(ErrorKind::BrokenPipe);
    world.guest_sends(b"anyone?");
    assert_eq!(world.guest().loss(), Some(tare_tcp::Loss::Reset));
    assert_eq!(world.table.open_connections(), 0);
}

#[test]
fn a_guest_without_a_listener_refuses() {
    let mut world = World::new();
    world.mood = Mood::Refuses;
    world.wait(Duration::from_secs(10));
    let (_, client) = world.connect();
    assert!(client.0.borrow().reset);
    assert_eq!(world.table.open_connections(), 0);
    assert_eq!(world.table.next_closed_port(), Some(PORT));
}

#[test]
fn a_guest_that_is_not_listening_yet_is_waited_for() {
    let mut world = World::new();
    world.mood = Mood::Refuses;
    let (slot, client) = world.connect();
    world.send(slot, &client, b"early");
    world.wait(Duration::from_secs(2));
    assert!(!client.0.borrow().reset);
    world.mood = Mood::Serves;
    world.wait(Duration::from_secs(1));
    assert_eq!(world.guest_reads(), b"early");
    world.guest_sends(b"answer");
    assert_eq!(client.received(), b"answer");
    // It has listened by now: what it refuses, it refuses.
    world.mood = Mood::Refuses;
    let (_, late) = world.connect_from(from("127.0.0.1:9"));
    assert!(late.0.borrow().reset);
    // Clients see that by themselves.
    assert_eq!(world.table.next_closed_port(), Some(PORT));
    world.connect_from(from("127.0.0.1:10"));
    assert_eq!(world.table.next_closed_port(), None);
}

#[test]
fn a_guest_that_never_listens_refuses_in_the_end() {
    let mut world = World::new();
    world.mood = Mood::Refuses;
    let (_, client) = world.connect();
    world.wait(Duration::from_secs(1));
    assert_eq!(world.table.next_closed_port(), None, "it may be starting");
    world.wait(Duration::from_secs(1));
    assert_eq!(world.table.next_closed_port(), Some(PORT));
    world.wait(Duration::from_secs(9));
    world.connect();
    assert_eq!(world.table.next_closed_port(), None, "once");
    assert!(client.0.borrow().reset);
    assert_eq!(world.table.open_connections(), 0);
    assert!(world.table.deadline().is_none());
    let mut world = World::new();
    world.mood = Mood::Refuses;
    let (slot, _client) = world.connect();
    let failed = Readiness {
        failed: true,
        ..Readiness::default()
    };
    world.table.host_ready(slot, failed, world.now);
    world.run();
    assert_eq!(world.table.open_connections(), 0, "its client is gone");
}

/// Both are found in one turn of the I/O thread: that the client is gone, and that it is time to try again.
#[test]
fn a_client_that_is_gone_is_not_tried_again() {
    let mut world = World::new();
    world.mood = Mood::Refuses;
    let (slot, _client) = world.connect();
    world.now = world.table.deadline().unwrap();
    world.mood = Mood::Serves;
    let failed = Readiness {
        failed: true,
        ..Readiness::default()
    };
    world.table.host_ready(slot, failed, world.now);
    world.table.deadline_passed(world.now);
    assert!(world.table.peek(world.now).is_none(), "no further SYN");
    assert_eq!(world.table.open_connections(), 0);
    assert_eq!(world.table.deadline(), None);
    assert_eq!(world.counted("forward_aborted"), 1);
}

#[test]
fn a_guest_that_is_silent_is_given_up_some_time() {
    let mut world = World::new();
    let (slot, client) = world.connect();
    world.send(slot, &client, b"question");
    world.guest_reads();
    // Its answers are lost from here on, as those of a guest that hangs.
    world.mood = Mood::Absent;
    world.send(slot, &client, b"another");
    for _ in 0..10_000 {
        world.now = world.now + Duration::from_millis(100);
        world.table.deadline_passed(world.now);
        while world.table.peek(world.now).is_some() {
            world.table.consume();
        }
    }
    assert!(client.0.borrow().reset);
    assert_eq!(world.table.open_connections(), 0);
    assert!(world.counted("forward_resent") > 3);
}

#[test]
fn a_guest_that_begins_again_has_lost_its_connections() {
    let mut world = World::new();
    let clients: Vec<_> = (0..3)
        .map(|n| world.connect_from(SocketAddr::from(([127, 0, 0, 1], 1000 + n))))
        .collect();
    world.table.restart(RxOffload::default(), world.now);
    assert!(clients.iter().all(|(_, client)| client.0.borrow().reset));
    assert_eq!(world.table.open_connections(), 0);
    assert_eq!(world.table.deadline(), None);
    assert!(!world.table.has_output());
    world.connections.clear();
    let (slot, client) = world.connect();
    world.send(slot, &client, b"again");
    assert_eq!(world.guest_reads(), b"again");
}

/// A guest that has sent its end may reset what it waits for no longer: the client is still reading.
#[test]
fn a_reset_behind_the_guests_end_takes_nothing_from_a_slow_reader() {
    let mut world = World::new();
    let (slot, client) = world.connect();
    client.0.borrow_mut().room = 3;
    world.guest_sends(b"answer");
    world.guest().close();
    world.run();
    world.guest().abort();
    world.run();
    assert!(!client.0.borrow().reset);
    client.0.borrow_mut().room = 3;
    world.ready(slot);
    assert_eq!(client.received(), b"answer");
    assert!(client.0.borrow().finished && !client.0.borrow().reset);
    assert_eq!(world.table.open_connections(), 0);
}

/// What a client sends before the guest listens does not put the next try off.
#[test]
fn a_client_that_sends_is_tried_again_as_often_as_one_that_waits() {
    let mut world = World::new();
    world.mood = Mood::Refuses;
    let (slot, client) = world.connect();
    let turns = |world: &mut World| {
        for _ in 0..5 {
            world.send(slot, &client, b"x");
            world.wait(Duration::from_millis(200));
        }
    };
    turns(&mut world);
    world.mood = Mood::Serves;
    turns(&mut world);
    assert!(!world.guest_reads().is_empty());
}
