use alloc::vec::Vec;

use smoltcp::time::Duration;

use super::world::{World, read_into, write};

#[test]
fn a_thousand_quiet_connections_arm_no_timer() {
    let mut world = World::new(20);
    let listener = world.listen(16);
    let open: Vec<_> = (0..1000).map(|_| world.connect(listener)).collect();
    for &(server, client) in &open {
        write(&mut world.client, client, b"GET", world.now).unwrap();
        world.run_until_quiet();
        read_into(&mut world.server, server, &mut Vec::new(), world.now).unwrap();
        write(&mut world.server, server, b"200", world.now).unwrap();
        world.run_until_quiet();
        read_into(&mut world.client, client, &mut Vec::new(), world.now).unwrap();
    }
    world.pass(Duration::from_secs(2));
    assert_eq!(world.server.counters().connections, 1000);
    assert_eq!(world.next_deadline(), None);
    let before = world.server.link().sent;
    world.pass(Duration::from_secs(3600));
    assert_eq!(world.server.link().sent, before);
}

#[test]
fn an_answer_carries_the_acknowledgement() {
    let mut world = World::new(21);
    let listener = world.listen(4);
    let (server, client) = world.connect(listener);
    world.pass(Duration::from_secs(1));
    let before = world.server.link().sent;
    write(&mut world.client, client, b"GET", world.now).unwrap();
    world.run_until_quiet();
    read_into(&mut world.server, server, &mut Vec::new(), world.now).unwrap();
    write(&mut world.server, server, b"200", world.now).unwrap();
    world.pass(Duration::from_secs(1));
    assert_eq!(world.server.link().sent - before, 1);
}

#[test]
fn deadlines_of_an_interactive_connection_are_far() {
    let mut world = World::new(24);
    let listener = world.listen(4);
    let (server, client) = world.connect(listener);
    let ask = |world: &mut World| {
        write(&mut world.client, client, b"?", world.now).unwrap();
        world.run_until_quiet();
        let due = world.server.deadline().unwrap() - world.now;
        read_into(&mut world.server, server, &mut Vec::new(), world.now).unwrap();
        due
    };
    let answer = |world: &mut World| {
        write(&mut world.server, server, b"!", world.now).unwrap();
        world.run_until_quiet();
        read_into(&mut world.client, client, &mut Vec::new(), world.now).unwrap();
    };
    assert_eq!(ask(&mut world), Duration::from_millis(40));
    for _ in 0..8 {
        answer(&mut world);
        ask(&mut world);
    }
    answer(&mut world);
    assert_eq!(ask(&mut world), Duration::from_millis(200));
    // The application does not answer: the acknowledgement is sent alone, the next one sooner.
    let before = world.server.link().sent;
    world.pass(Duration::from_millis(201));
    assert_eq!(world.server.link().sent, before + 1);
    assert_eq!(ask(&mut world), Duration::from_millis(40));
}

#[test]
fn closed_connections_answer_for_ten_seconds() {
    let mut world = World::new(22);
    let listener = world.listen(4);
    for _ in 0..100 {
        let (server, client) = world.connect(listener);
        world.server.close(server, world.now);
        world.run_until_quiet();
        world.client.close(client, world.now);
        world.run_until_quiet();
    }
    let kept = world.server.counters().connections;
    assert_eq!(kept, 100);
    world.pass(Duration::from_secs(11));
    assert_eq!(world.server.counters().connections, 0);
}

#[test]
fn a_peer_that_never_closes_does_not_keep_a_closed_connection() {
    let mut world = World::new(23);
    let listener = world.listen(4);
    let (server, _client) = world.connect(listener);
    world.server.close(server, world.now);
    world.pass(Duration::from_secs(29));
    assert_eq!(world.server.counters().connections, 1);
    world.pass(Duration::from_secs(2));
    assert_eq!(world.server.counters().connections, 0);
}
