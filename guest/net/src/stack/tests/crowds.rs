//! Crowds and floods, with the limits of a machine of 64 MiB.

use alloc::vec::Vec;
use core::net::Ipv4Addr;

use smoltcp::time::Duration;

use super::super::{ConnectionId, Limits, ListenerId};
use super::hostile::segment;
use super::world::{HTTP, World, read_into, write};
use crate::frame::flags;
use crate::memory::Memory;

/// Between two looks of server and clients at their connections.
const TURN: Duration = Duration::from_millis(10);
/// A client that behaves waits no longer.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// A crowd that is larger than the table is served in turns, by what its peers send
/// again after 1, 3 and 7 s.
const LONGEST_CROWD_WAIT: Duration = Duration::from_secs(15);

/// A client's connection, and whether it has sent its request.
struct Client {
    id: ConnectionId,
    has_asked: bool,
}

struct Crowd {
    world: World,
    listener: ListenerId,
    limits: Limits,
    accepted: Vec<ConnectionId>,
    clients: Vec<Client>,
    served: usize,
    lost: usize,
}

impl Crowd {
    fn new(seed: u64) -> Self {
        let mut world = World::new(seed);
        let limits = Limits::within(Memory::UNLIMITED);
        let listener = world.listen(limits.backlog);
        world.client.set_limits(Limits {
            connections: 30_000,
            ..limits
        });
        world.client.link().room = 100_000;
        world.server.link().room = 100_000;
        Self {
            world,
            listener,
            limits,
            accepted: Vec::new(),
            clients: Vec::new(),
            served: 0,
            lost: 0,
        }
    }

    fn connect(&mut self) {
        let id = self.world.client.connect(HTTP, self.world.now).unwrap();
        self.clients.push(Client {
            id,
            has_asked: false,
        });
    }

    /// The server answers and closes all that it can, and each client goes on.
    fn turn(&mut self) {
        let world = &mut self.world;
        world.pass(TURN);
        while let Ok((id, _)) = world.server.accept(self.listener) {
            self.accepted.push(id);
        }
        let now = world.now;
        self.accepted.retain(|id| {
            let mut request = Vec::new();
            let end = read_into(&mut world.server, *id, &mut request, now);
            if !request.is_empty() {
                write(&mut world.server, *id, &[b'.'; 1000], now).unwrap();
            }
            let goes_on = end == Ok(false);
            if !goes_on {
                world.server.close(*id, now);
            }
            goes_on
        });
        let (mut served, mut lost) = (0, 0);
        self.clients.retain_mut(|client| {
            match world.client.connected(client.id) {
                Err(error) if error.kind() == tare_io::ErrorKind::WouldBlock => return true,
                Err(_) => lost += 1,
                Ok(()) if !client.has_asked => {
                    client.has_asked = true;
                    write(&mut world.client, client.id, b"GET", now).unwrap();
                    return true;
                }
                Ok(()) => {
                    let mut answer = Vec::new();
                    match read_into(&mut world.client, client.id, &mut answer, now) {
                        Ok(_) if answer.len() == 1000 => served += 1,
                        Ok(false) => return true,
                        _ => lost += 1,
                    }
                }
            }
            world.client.close(client.id, now);
            false
        });
        self.served += served;
        self.lost += lost;
        let counters = world.server.counters();
        assert!(counters.connections as usize <= self.limits.connections);
        assert!(counters.orphans as usize <= self.limits.orphans);
    }

    /// Turns until no client waits or `limit` has passed.
    fn run(&mut self, limit: Duration) {
        let end = self.world.now + limit;
        while !self.clients.is_empty() && self.world.now < end {
            self.turn();
        }
    }
}

#[test]
fn ten_thousand_connects_at_once_are_served() {
    let mut crowd = Crowd::new(120);
    (0..10_000).for_each(|_| crowd.connect());
    crowd.turn();
    // One that comes while the crowd waits.
    let came = crowd.world.now;
    crowd.connect();
    let normal = crowd.clients[crowd.clients.len() - 1].id;
    let mut waited = None;
    while !crowd.clients.is_empty() && crowd.world.now < came + LONGEST_CROWD_WAIT {
        crowd.turn();
        let is_served = !crowd.clients.iter().any(|client| client.id == normal);
        if is_served && waited.is_none() {
            waited = Some(crowd.world.now - came);
        }
    }
    let waited = waited.expect("it was served");
    assert!(waited <= LONGEST_WAIT, "it waited for {waited}");
    assert_eq!((crowd.served, crowd.lost), (10_001, 0));
}

#[test]
fn a_client_is_served_within_two_seconds_during_a_flood_of_syns() {
    let mut crowd = Crowd::new(121);
    let mut number = 0u32;
    for turn in 0..500 {
        // 10,000 a second, each from another address and port.
        for _ in 0..100 {
            number += 1;
            let from = Ipv4Addr::new(10, 0, 0, 3 + (number % 250) as u8);
            let syn = segment(from, 1024 + (number / 250) as u16, flags::SYN, number);
            crowd.world.server.link().inject(&syn);
        }
        if turn % 50 == 0 {
            assert!(crowd.clients.is_empty(), "the last client still waits");
            crowd.connect();
        }
        crowd.turn();
        // The answers to the flood reach no host.
        crowd.world.client.link().take_sent();
    }
    crowd.run(LONGEST_WAIT);
    assert_eq!((crowd.served, crowd.lost), (10, 0));
    assert!(crowd.world.server.counters().cookies_sent > 40_000);
}
