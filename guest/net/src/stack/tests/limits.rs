//! What peers can make the stack hold is bounded.

use alloc::vec::Vec;

use smoltcp::time::Duration;

use super::super::Limits;
use super::world::{HTTP, World, write};

fn limited(seed: u64) -> World {
    let mut world = World::new(seed);
    world.server.set_limits(Limits {
        connections: 8,
        orphans: 3,
        backlog: 4,
    });
    world
}

#[test]
fn connections_that_peers_do_not_end_are_forgotten_beyond_a_limit() {
    let mut world = limited(90);
    let listener = world.listen(4);
    for _ in 0..20 {
        // The client never closes, so the server's end stays in FIN-WAIT-2.
        let (server, _) = world.connect(listener);
        world.server.close(server, world.now);
        world.run_until_quiet();
        assert!(world.server.counters().orphans <= 3);
    }
    let counters = world.server.counters();
    assert_eq!((counters.orphans, counters.orphans_evicted), (3, 17));
    world.pass(Duration::from_secs(31));
    assert_eq!(world.server.counters().orphans, 0);
    assert_eq!(world.server.counters().connections, 0);
}

#[test]
fn closed_connections_give_way_to_new_ones() {
    let mut world = limited(91);
    let listener = world.listen(4);
    let open: Vec<_> = (0..8).map(|_| world.connect(listener)).collect();
    for (server, _) in &open[..3] {
        world.server.close(*server, world.now);
    }
    world.run_until_quiet();
    for _ in 0..3 {
        world.connect(listener);
    }
    let counters = world.server.counters();
    assert_eq!((counters.connections, counters.orphans_evicted), (8, 3));
}

#[test]
fn a_full_table_drops_what_asks_and_serves_what_it_has() {
    let mut world = limited(92);
    let listener = world.listen(4);
    let open: Vec<_> = (0..8).map(|_| world.connect(listener)).collect();
    let late = world.client.connect(HTTP, world.now).unwrap();
    world.run_until_quiet();
    assert!(world.client.connected(late).is_err());
    assert_eq!(world.server.counters().refused, 1);
    let (server, _) = open[0];
    assert!(write(&mut world.server, server, b"still here", world.now).is_ok());
    // Its retransmitted SYN is answered as soon as there is room.
    world.server.close(server, world.now);
    world.pass(Duration::from_secs(2));
    assert!(world.client.connected(late).is_ok());
}
