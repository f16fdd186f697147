use alloc::vec::Vec;

use smoltcp::time::Duration;

use super::cable::Faults;
use super::world::{World, read_into, write};

const LEN: usize = 60_000;

fn pattern(seed: usize) -> Vec<u8> {
    (0..LEN).map(|i| (i * 31 + i / 251 + seed) as u8).collect()
}

/// Both sides send at once and each gets what the other sent.
fn exchange(seed: u64, faults: Faults, room: usize) {
    let mut world = World::new(seed);
    let listener = world.listen(4);
    let (server, client) = world.connect(listener);
    for link in [world.server.link(), world.client.link()] {
        (link.faults, link.room) = (faults, room);
    }
    let (down, up) = (pattern(1), pattern(2));
    let (mut down_sent, mut up_sent) = (0, 0);
    let (mut down_got, mut up_got) = (Vec::new(), Vec::new());
    for _ in 0..20_000 {
        let now = world.now;
        down_sent += write(&mut world.server, server, &down[down_sent..], now).unwrap();
        up_sent += write(&mut world.client, client, &up[up_sent..], now).unwrap();
        world.pass(Duration::from_millis(20));
        read_into(&mut world.client, client, &mut down_got, world.now).unwrap();
        read_into(&mut world.server, server, &mut up_got, world.now).unwrap();
        if down_got.len() == LEN && up_got.len() == LEN {
            break;
        }
    }
    assert!(down_got == down && up_got == up, "seed {seed}");
}

#[test]
fn a_perfect_cable_delivers() {
    exchange(30, Faults::default(), 64);
}

#[test]
fn a_link_with_room_for_two_frames_delivers() {
    exchange(31, Faults::default(), 2);
}

#[test]
fn loss_is_made_good() {
    let lost = 100;
    exchange(
        32,
        Faults {
            lost,
            ..Faults::default()
        },
        64,
    );
}

#[test]
fn everything_at_once_is_made_good() {
    for seed in 33..37 {
        let faults = Faults {
            lost: 50,
            doubled: 50,
            reordered: 100,
            damaged: 50,
        };
        exchange(seed, faults, 64);
    }
}

#[test]
fn damage_is_noticed_and_counted() {
    let mut world = World::new(38);
    let listener = world.listen(4);
    let (server, client) = world.connect(listener);
    world.client.set_nodelay(client, true, world.now).unwrap();
    world.client.link().faults.damaged = 1000;
    for _ in 0..50 {
        write(&mut world.client, client, b"damaged on the way", world.now).unwrap();
        world.run_until_quiet();
    }
    let mut got = Vec::new();
    let _ = read_into(&mut world.server, server, &mut got, world.now);
    let counters = world.server.counters();
    assert!(counters.bad_checksum > 10, "{counters:?}");
    // What got through was damaged in its Ethernet header alone.
    assert!(got.len() % 18 == 0 && got.chunks(18).all(|c| c == b"damaged on the way"));
}
