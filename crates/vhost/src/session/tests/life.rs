//! Front-ends that behave.

use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use tare_policy::coalesce::{Mode, Ratio};
use vhost::VhostBackend as _;
use vhost::vhost_user::VhostUserFrontend as _;
use vhost::vhost_user::message::VhostUserConfigFlags;

use super::daemon::Daemon;
use crate::front::{self, eventually};

#[test]
fn a_front_end_reads_goes_and_comes_back() {
    let daemon = Daemon::new();
    for turn in 1..=2 {
        let mut front = daemon.connect();
        front.share();
        front.start(0, 0).unwrap();
        front.offer_read(0, 7);
        front.notify();
        assert_eq!(front.answer(1), 7);
        drop(front);
        eventually("it is gone", || daemon.counters.disconnects.get() == turn);
    }
    assert_eq!(daemon.counters.protocol_errors.get(), 0);
}

#[test]
fn a_stopped_queue_goes_on_where_it_was() {
    let daemon = Daemon::new();
    let mut front = daemon.connect();
    front.share();
    front.start(0, 0).unwrap();
    front.offer_read(0, 1);
    front.notify();
    assert_eq!(front.answer(1), 1);
    let base = front.link.get_vring_base(0).unwrap();
    assert_eq!(base, 1);
    // Offered while the queue is disabled.
    front.offer_read(1, 2);
    front.start(1, 0).unwrap();
    assert_eq!(front.answer(2), 2);
}

#[test]
fn a_disabled_queue_waits() {
    let daemon = Daemon::new();
    let mut front = daemon.connect();
    front.share();
    front.start(0, 0).unwrap();
    front.link.set_vring_enable(0, false).unwrap();
    front.offer_read(0, 3);
    front.notify();
    front.link.get_features().unwrap();
    assert_eq!(front.used(), 0);
    front.link.set_vring_enable(0, true).unwrap();
    assert_eq!(front.answer(1), 3);
}

#[test]
fn notifiers_that_are_replaced_lose_no_notification_and_no_interrupt() {
    let daemon = Daemon::new();
    let mut front = daemon.connect();
    front.share();
    front.start(0, 0).unwrap();
    front.take_call();
    front.offer_read(0, 5);
    front.notify();
    eventually("an answer", || front.used() == 1);
    // Offered, and no notification that was read.
    front.offer_read(1, 6);
    front.renew_notifiers();
    eventually("an answer", || front.used() == 2);
    assert_eq!(front.answer(2), 6);
    front.take_call();
    front.offer_read(2, 7);
    front.notify();
    eventually("an answer", || front.used() == 3);
    front.renew_notifiers();
    assert_eq!(front.answer(3), 7);
}

#[test]
fn memory_changes_below_a_queue_that_works() {
    let daemon = Daemon::new();
    let mut front = daemon.connect();
    front.share();
    front.start(0, 0).unwrap();
    let whole = front.region(front::MEMORY_BYTES);
    for turn in 0..3 {
        front.offer_read(turn, u64::from(turn) + 4);
        front.notify();
        assert_eq!(u16::from(front.answer(turn + 1)), turn + 4);
        front.link.set_mem_table(&[whole]).unwrap();
    }
}

/// More than may be in flight at once, and answers that are held: what is stopped, or gets other
/// memory, has answered what it took, and takes nothing on the way.
#[test]
fn a_stop_takes_no_requests_that_waited_for_a_place() {
    const REQUESTS: u16 = 600;
    let held = Mode::Fixed(Ratio::new(1, 1000).unwrap());
    let daemon = Daemon::coalescing(Duration::from_millis(300), held);
    let mut front = daemon.connect();
    let whole = front.region(front::MEMORY_BYTES);
    front.link.set_mem_table(&[whole]).unwrap();
    front.start_large(0).unwrap();
    front.offer_many(REQUESTS);
    front.notify();
    eventually("all places are taken", || daemon.disk()["backpressure"] > 0);
    let base = front.link.get_vring_base(0).unwrap();
    let answered = front.answered_of_many();
    assert_eq!(base as usize, answered.len());
    assert!(answered.len() < usize::from(REQUESTS), "{base}");
    front.start_large(base as u16).unwrap();
    front.notify();
    let all = || front.answered_of_many();
    eventually("all are answered", || all().len() == usize::from(REQUESTS));
    let mut heads = all();
    heads.sort_unstable();
    assert_eq!(heads, (0..u32::from(REQUESTS)).collect::<Vec<_>>());
}

#[test]
fn what_a_killed_process_took_is_done_again() {
    let daemon = Daemon::new();
    let mut front = daemon.connect();
    front.share();
    front.start(0, 0).unwrap();
    front.offer_read(0, 9);
    front.notify();
    assert_eq!(front.answer(1), 9);
    // As if the process had been killed after it took the next request.
    front.link.get_vring_base(0).unwrap();
    front.offer_read(1, 10);
    let (_, log) = front.log.as_ref().unwrap();
    log.write_all_at(&[1], 16).unwrap();
    front.share();
    front.start(1, 0).unwrap();
    assert_eq!(front.answer(2), 10);
    assert_eq!(daemon.counters.resubmitted.get(), 1);
    assert_eq!(front.link.get_vring_base(0).unwrap(), 2);
    let (_, log) = front.log.as_ref().unwrap();
    let mut entry = [0xff];
    log.read_exact_at(&mut entry, 16).unwrap();
    assert_eq!(entry, [0], "answered");
}

/// QEMU's virtio-mmio offers a driver queues of 1024 descriptors, whatever its `queue-size`,
/// with which it asks for the log.
#[test]
fn a_queue_is_longer_than_the_log_that_was_asked_for() {
    let daemon = Daemon::new();
    let mut front = daemon.connect();
    front.share();
    front.start_sized(256, 0, 0).unwrap();
    // As if the process had been killed after it took the first request.
    front.link.get_vring_base(0).unwrap();
    front.offer_read(0, 11);
    let (_, log) = front.log.as_ref().unwrap();
    log.write_all_at(&[1], 16).unwrap();
    front.share();
    front.start_sized(256, 0, 0).unwrap();
    assert_eq!(front.answer(1), 11);
    assert_eq!(daemon.counters.resubmitted.get(), 1);
    assert_eq!(daemon.counters.protocol_errors.get(), 0);
}

#[test]
fn the_configuration_is_as_long_as_the_front_end_wants() {
    let daemon = Daemon::new();
    let mut front = daemon.connect();
    assert_eq!(front.link.get_queue_num().unwrap(), 2);
    let flags = VhostUserConfigFlags::WRITABLE;
    let (_, config) = front.link.get_config(0, 96, flags, &[0; 96]).unwrap();
    assert_eq!(config.len(), 96);
    assert_eq!(config[..8], 64u64.to_le_bytes());
    front.link.set_config(0, flags, &[0]).unwrap();
    assert_eq!(daemon.counters.config_writes_refused.get(), 1);
}

/// The front-end's end of the channel for the daemon's requests.
fn requests(front: &mut front::Front) -> UnixStream {
    let (ours, theirs) = UnixStream::pair().unwrap();
    front.link.set_backend_request_fd(&theirs).unwrap();
    ours
}

#[test]
fn a_front_end_hears_of_another_size_and_reads_beyond_the_old_end() {
    let mut daemon = Daemon::new();
    let mut front = daemon.connect();
    let mut ours = requests(&mut front);
    front.share();
    assert_eq!(front.config(0), 64);
    front.start(0, 0).unwrap();
    daemon.grow(1 << 20);
    let mut message = [0; 12];
    ours.read_exact(&mut message).unwrap();
    // VHOST_USER_BACKEND_CONFIG_CHANGE_MSG, version 1, no body.
    assert_eq!(message, [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(front.config(0), 2048);
    front.offer_read(0, 2047);
    front.notify();
    assert_eq!(front.answer(1), 0);
    assert_eq!(daemon.counters.config_changes.get(), 1);
    drop(front);
    assert_eq!(
        ours.read(&mut message).unwrap(),
        0,
        "closed with its front-end"
    );
}

/// QEMU leaves the message unread until it has started the device.
#[test]
fn a_size_from_before_the_start_is_told_again_when_the_queues_start() {
    let mut daemon = Daemon::new();
    let mut front = daemon.connect();
    let mut ours = requests(&mut front);
    front.share();
    assert_eq!(front.config(0), 64);
    daemon.grow(1 << 20);
    ours.read_exact(&mut [0; 12]).unwrap();
    front.start(0, 0).unwrap();
    ours.read_exact(&mut [0; 12]).unwrap();
    assert_eq!(front.config(0), 2048);
    assert_eq!(daemon.counters.config_changes.get(), 2);
    // What it has read since is not told again.
    front.link.get_vring_base(0).unwrap();
    front.start(0, 0).unwrap();
    assert_eq!(front.config(0), 2048);
    assert_eq!(daemon.counters.config_changes.get(), 2);
}

/// QEMU reads the configuration when its machine starts, and not when it comes back. Its channel
/// is another then.
#[test]
fn a_front_end_that_comes_back_hears_of_a_size_that_it_may_not_know() {
    let mut daemon = Daemon::new();
    let mut front = daemon.connect();
    let _ours = requests(&mut front);
    assert_eq!(front.config(0), 64);
    drop(front);
    daemon.grow(1 << 20);
    let mut front = daemon.connect();
    let mut ours = requests(&mut front);
    front.share();
    front.start(0, 0).unwrap();
    ours.read_exact(&mut [0; 12]).unwrap();
    assert_eq!(front.config(0), 2048);
    assert_eq!(daemon.counters.config_changes.get(), 1);
}

/// Cloud Hypervisor has no such channel.
#[test]
fn a_front_end_without_a_channel_sees_another_size_when_it_asks() {
    let mut daemon = Daemon::new();
    let mut front = daemon.connect();
    daemon.grow(1 << 20);
    front::eventually("the size is in force", || front.config(0) == 2048);
    assert_eq!(daemon.counters.config_changes.get(), 0);
    assert_eq!(daemon.counters.config_changes_lost.get(), 0);
}
