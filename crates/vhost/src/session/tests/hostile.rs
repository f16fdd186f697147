//! Front-ends that send nonsense or ask for what is not theirs: each is sent
//! away and counted, and the next one is served.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::SendFlags;
use vhost::VhostBackend as _;
use vhost::vhost_user::VhostUserFrontend as _;

use super::daemon::Daemon;
use crate::front::{MEMORY_BYTES, eventually};

#[track_caller]
fn serves_the_next(daemon: &Daemon) {
    let mut front = daemon.connect();
    front.share();
    front.start(0, 0).unwrap();
    front.offer_read(0, 5);
    front.notify();
    assert_eq!(front.answer(1), 5);
}

#[test]
fn memory_beyond_its_file_is_refused() {
    let daemon = Daemon::new();
    let front = daemon.connect();
    let beyond = front.region(MEMORY_BYTES + 4096);
    assert!(front.link.set_mem_table(&[beyond]).is_err());
    drop(front);
    let mut front = daemon.connect();
    assert!(front.link.add_mem_region(&beyond).is_err());
    eventually("counted", || daemon.counters.memory_refused.get() >= 1);
    drop(front);
    serves_the_next(&daemon);
    assert_eq!(daemon.counters.protocol_errors.get(), 2);
}

#[test]
fn rings_outside_memory_do_not_start() {
    let daemon = Daemon::new();
    for offset in [MEMORY_BYTES - 0x1008, MEMORY_BYTES, u64::MAX / 2] {
        let mut front = daemon.connect();
        front.share();
        assert!(front.start(0, offset).is_err(), "{offset:#x}");
    }
    eventually("counted", || daemon.counters.protocol_errors.get() == 3);
    serves_the_next(&daemon);
}

#[test]
fn memory_that_is_taken_away_ends_its_connection_only() {
    let daemon = Daemon::new();
    // Everything; all rings but the descriptors; data and status.
    for (times, left) in (1..).zip([0, 0x2000, 0x5000]) {
        let mut front = daemon.connect();
        front.share();
        front.start(0, 0).unwrap();
        front.offer_read(0, 1);
        front.file.set_len(left).unwrap();
        front.notify();
        eventually("counted", || daemon.counters.memory_lost.get() == times);
        eventually("sent away", || daemon.counters.disconnects.get() == times);
        assert!(front.link.get_features().is_err(), "{left:#x}");
    }
    serves_the_next(&daemon);
}

#[test]
fn a_log_that_is_taken_away_ends_its_connection_only() {
    let daemon = Daemon::new();
    let mut front = daemon.connect();
    front.share();
    front.start(0, 0).unwrap();
    front.offer_read(0, 1);
    let (_, log) = front.log.as_ref().unwrap();
    log.set_len(0).unwrap();
    front.notify();
    eventually("counted", || daemon.counters.memory_lost.get() == 1);
    eventually("sent away", || daemon.counters.disconnects.get() == 1);
    drop(front);
    serves_the_next(&daemon);
}

#[test]
fn memory_that_was_taken_away_before_it_is_changed_is_counted() {
    // What is in flight is answered before the memory changes.
    let daemon = Daemon::with_latency(Duration::from_millis(100));
    let mut front = daemon.connect();
    front.share();
    front.start(0, 0).unwrap();
    front.offer_read(0, 1);
    front.notify();
    eventually("in flight", || daemon.counters.notifications.get() == 1);
    let other = front.region(0x1000);
    front.file.set_len(0x1000).unwrap();
    let _ = front.link.set_mem_table(&[other]);
    eventually("counted", || daemon.counters.memory_lost.get() == 1);
    drop(front);
    serves_the_next(&daemon);
}

#[test]
fn nonsense_ends_its_connection_only() {
    let daemon = Daemon::new();
    for nonsense in [&[0xff; 64][..], b"GET / HTTP/1.1\r\n\r\n", &[0; 12]] {
        let mut stream = UnixStream::connect(daemon.socket()).unwrap();
        let _ = stream.write_all(nonsense);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        eventually("sent away", || {
            use std::io::Read as _;
            matches!(stream.read(&mut [0; 64]), Ok(0) | Err(_))
        });
    }
    serves_the_next(&daemon);
    assert!(daemon.counters.protocol_errors.get() >= 1);
}

#[test]
fn a_broken_chain_breaks_the_queue_until_it_is_started_anew() {
    let daemon = Daemon::new();
    let mut front = daemon.connect();
    front.share();
    front.start(0, 0).unwrap();
    front.offer_read(0, 1);
    front.notify();
    front.answer(1);
    // The second descriptor points outside.
    front.offer_read(1, 1);
    use vm_memory::{Bytes as _, GuestAddress};
    let outside = GuestAddress(0x1010);
    front.memory.write_obj(u64::MAX - 4096, outside).unwrap();
    front.notify();
    eventually("counted", || daemon.counters.malformed.get() == 1);
    // What was answered is not executed again by who goes on from here.
    assert_ne!(front.link.get_vring_base(0).unwrap(), 0);
    drop(front);
    serves_the_next(&daemon);
}

#[test]
fn a_second_front_end_waits_for_the_first() {
    let daemon = Daemon::new();
    let first = daemon.connect();
    let path = daemon.socket();
    let second = std::thread::spawn(move || {
        let link = vhost::vhost_user::Frontend::connect(path, 2).unwrap();
        link.get_features().unwrap()
    });
    first.link.get_features().unwrap();
    assert!(!second.is_finished());
    assert_eq!(daemon.counters.frontends.get(), 1);
    drop(first);
    second.join().unwrap();
    eventually("counted", || daemon.counters.frontends.get() == 2);
}

#[test]
fn every_counter_is_counted_somewhere() {
    let mut text = String::new();
    for part in ["io.rs", "session/mod.rs", "session/requests.rs"] {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let source = std::fs::read_to_string(path.join(part)).unwrap();
        text.extend(source.split_whitespace());
    }
    for name in crate::VhostCounters::NAMES {
        let counted = ["increment(", "add("]
            .iter()
            .any(|act| text.contains(&format!(".{name}.{act}")));
        assert!(counted, "{name}");
    }
}

/// GET_FEATURES, byte by byte, and SET_FEATURES whose body comes later.
#[test]
fn a_message_in_parts_is_answered_when_its_last_byte_came() {
    use std::io::Read as _;
    let daemon = Daemon::new();
    let mut stream = UnixStream::connect(daemon.socket()).unwrap();
    let get_features = [1u32, 1, 0].map(u32::to_le_bytes).concat();
    for byte in &get_features {
        stream.write_all(&[*byte]).unwrap();
        std::thread::sleep(Duration::from_millis(2));
    }
    let mut reply = [0; 20];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(reply[..4], 1u32.to_le_bytes());
    let set_features = [2u32, 1, 8].map(u32::to_le_bytes).concat();
    stream.write_all(&set_features).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    stream.write_all(&reply[12..16]).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    stream.write_all(&reply[16..]).unwrap();
    eventually("both", || daemon.counters.messages.get() == 2);
    assert_eq!(daemon.counters.protocol_errors.get(), 0);
}

#[test]
fn a_connection_that_sends_nothing_makes_room() {
    let daemon = Daemon::with_timeout(Duration::from_secs(5));
    let _silent = UnixStream::connect(daemon.socket()).unwrap();
    let mut half = UnixStream::connect(daemon.socket()).unwrap();
    half.write_all(&[1, 0, 0]).unwrap();
    eventually("the first is sent away", || {
        daemon.counters.silent.get() == 1
    });
    eventually("so is the second", || daemon.counters.silent.get() == 2);
    serves_the_next(&daemon);
}

/// Half a header, and the end: there is nothing to wait for.
#[test]
fn a_connection_that_ends_in_a_message_makes_room_at_once() {
    let daemon = Daemon::new();
    let mut half = UnixStream::connect(daemon.socket()).unwrap();
    half.write_all(&[1, 0, 0, 0, 1]).unwrap();
    half.shutdown(std::net::Shutdown::Write).unwrap();
    eventually("it is let go", || daemon.counters.disconnects.get() == 1);
    assert_eq!(daemon.counters.silent.get(), 0);
    serves_the_next(&daemon);
}

/// GET_FEATURES again and again, and no reply is read: queues go on, and the front-end has
/// to read within the time for a message.
#[test]
fn a_front_end_that_does_not_read_its_replies_does_not_stop_its_queues() {
    use std::io::Read as _;
    let daemon = Daemon::with_timeout(Duration::from_secs(120));
    let mut front = daemon.connect();
    front.share();
    front.start(0, 0).unwrap();
    let get_features = [1u32, 1, 0].map(u32::to_le_bytes).concat();
    let send = || rustix::net::send(&front.stream, &get_features, SendFlags::DONTWAIT);
    // Until there is room for none, and the daemon, who takes no more, does not make any.
    let mut sent = 0_u64;
    let mut full = 0;
    while full < 50 {
        if send().is_ok() {
            (sent, full) = (sent + 1, 0);
        } else {
            full += 1;
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    assert!(sent > 100, "{sent}");
    front.offer_read(0, 3);
    front.notify();
    assert_eq!(front.answer(1), 3);
    // It reads at last.
    for _ in 0..sent {
        front.stream.read_exact(&mut [0; 20]).unwrap();
    }
    front.offer_read(1, 4);
    front.notify();
    assert_eq!(front.answer(2), 4);
    assert_eq!(daemon.counters.silent.get(), 0);
}
