//! Bytes in both directions, and what holds them back.

use tare_devices::net::{FLAG_NEEDS_CSUM, GSO_TCPV4};

use super::*;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| ((n * 31) >> 3) as u8).collect()
}

#[test]
fn bytes_go_both_ways() {
    let mut world = World::new();
    let (slot, client) = world.connect();
    world.send(slot, &client, b"question");
    assert_eq!(world.guest_reads(), b"question");
    world.guest_sends(b"answer");
    assert_eq!(client.received(), b"answer");
    assert_eq!(world.counted("forward_in_bytes"), 8);
    assert_eq!(world.counted("forward_out_bytes"), 6);
}

/// The guest answers with the acknowledgement, and the client asks again: each question and each
/// answer is one frame.
#[test]
fn a_request_costs_a_frame_each_way() {
    let mut world = World::new();
    let (slot, client) = world.connect();
    for _ in 0..10 {
        world.frames = 0;
        client.0.borrow_mut().sent.extend(b"question");
        let ready = Readiness {
            readable: true,
            ..Readiness::default()
        };
        world.table.host_ready(slot, ready, world.now);
        world.run();
        world.guest_reads();
        world.guest_sends(&[1; 1000]);
        assert_eq!(world.frames, 1);
        assert!(!world.table.has_output(), "no acknowledgement alone");
    }
    world.wait(Duration::from_secs(1));
    assert_eq!(world.counted("forward_resent"), 0);
}

#[test]
fn a_guest_that_takes_segments_together_gets_them_so() {
    let mut world = World::new();
    let accepted = RxOffload {
        csum: true,
        tso4: true,
        tso6: false,
    };
    world.table.restart(accepted, world.now);
    let (slot, client) = world.connect();
    let bytes = pattern(12_000);
    client.0.borrow_mut().sent.extend(&bytes);
    let ready = Readiness {
        readable: true,
        ..Readiness::default()
    };
    world.table.host_ready(slot, ready, world.now);
    let frame = world.table.peek(world.now).unwrap();
    let header = frame.header;
    assert_eq!(frame.bytes.len(), 66 + 8 * 1448);
    assert_eq!((header.gso_type, header.gso_size), (GSO_TCPV4, 1448));
    assert_eq!((header.hdr_len, header.flags), (66, FLAG_NEEDS_CSUM));
    world.run();
    assert_eq!(world.guest_reads(), bytes);
    assert_eq!(world.frames, 2);
}

#[test]
fn what_a_client_sends_before_the_guest_answers_goes_with_the_handshake() {
    let mut world = World::new();
    world.mood = Mood::Absent;
    let (slot, client) = world.connect();
    world.send(slot, &client, b"early");
    world.end(slot, &client);
    world.wait(Duration::from_secs(10));
    world.mood = Mood::Serves;
    world.wait(Duration::from_secs(10));
    assert_eq!(world.guest_reads(), b"early");
    assert!(world.guest().is_finished());
}

#[test]
fn many_bytes_arrive_in_order() {
    let mut world = World::new();
    let (slot, client) = world.connect();
    let bytes = pattern(3 << 20);
    world.send(slot, &client, &bytes);
    let mut got = Vec::new();
    for _ in 0..1000 {
        got.extend(world.guest_reads());
        world.wait(Duration::from_millis(1));
    }
    assert!(got == bytes);
    let mut sent = 0;
    while sent < bytes.len() {
        sent += world.guest().send(&bytes[sent..]).unwrap();
        world.run();
        world.wait(Duration::from_millis(1));
    }
    assert!(client.received() == bytes);
    assert_eq!(world.counted("forward_resent"), 0);
}

#[test]
fn a_guest_that_does_not_read_holds_its_client_back() {
    let mut world = World::new();
    let (slot, client) = world.connect();
    let bytes = pattern(8 << 20);
    world.send(slot, &client, &bytes);
    world.wait(Duration::from_secs(5));
    assert!(client.0.borrow().sent.len() > 6 << 20);
    assert!(world.table.buffered() <= 1 << 20);
    let mut got = Vec::new();
    for _ in 0..5000 {
        got.extend(world.guest_reads());
        world.wait(Duration::from_millis(1));
    }
    assert!(got == bytes);
}

#[test]
fn a_client_that_does_not_read_holds_the_guest_back() {
    let mut world = World::new();
    let (slot, client) = world.connect();
    client.0.borrow_mut().room = 10;
    let bytes = pattern(2 << 20);
    let mut sent = 0;
    for _ in 0..100 {
        sent += world.guest().send(&bytes[sent..]).unwrap();
        world.run();
        world.wait(Duration::from_millis(10));
    }
    assert!(sent < bytes.len());
    assert!(world.table.buffered() <= 1 << 20);
    assert_eq!(client.received(), bytes[..10]);
    for _ in 0..200_000 {
        client.0.borrow_mut().room += 50_000;
        world.ready(slot);
        world.wait(Duration::from_millis(1));
        if sent == bytes.len() && client.received().len() == sent {
            break;
        }
        sent += world.guest().send(&bytes[sent..]).unwrap();
        world.run();
    }
    assert!(client.received() == bytes);
}

#[test]
fn buffers_of_all_connections_have_one_bound() {
    let mut settings = settings();
    settings.limits.buffers = 256 << 10;
    let mut world = World::with(settings);
    let clients: Vec<_> = (0..50)
        .map(|n| world.connect_from(SocketAddr::from(([127, 0, 0, 1], 1000 + n))))
        .collect();
    for (slot, client) in &clients {
        world.send(*slot, client, &[7; 100_000]);
    }
    world.wait(Duration::from_secs(1));
    assert!(world.table.buffered() <= 256 << 10);
    let now = world.now;
    let mut got = vec![0; 50];
    for _ in 0..400 {
        for (place, connection) in got.iter_mut().zip(world.connections.values_mut()) {
            let mut bytes = [0; 10_000];
            *place += connection.recv(&mut bytes, now).unwrap();
        }
        world.wait(Duration::from_millis(20));
    }
    assert_eq!(got, [100_000; 50], "each of them goes on");
}

#[test]
fn an_idle_connection_has_no_deadline() {
    let mut world = World::new();
    let (slot, client) = world.connect();
    world.send(slot, &client, b"question");
    world.guest_reads();
    world.guest_sends(b"answer");
    world.wait(Duration::from_secs(2));
    assert_eq!(world.table.deadline(), None);
    assert!(!world.table.has_output());
}
