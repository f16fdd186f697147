//! The driver's choice of a cache mode: kept over a restart of the daemon, and
//! what is not known is durable.

use vhost::vhost_user::VhostUserFrontend as _;
use vhost::vhost_user::message::VhostUserConfigFlags;

use super::daemon::Daemon;
use crate::front::Front;

const WRITEBACK: u32 = 32;

fn choose(front: &mut Front, mode: u8) {
    let flags = VhostUserConfigFlags::WRITABLE;
    front.link.set_config(WRITEBACK, flags, &[mode]).unwrap();
    assert_eq!(shown(front), mode);
}

fn shown(front: &mut Front) -> u8 {
    let flags = VhostUserConfigFlags::WRITABLE;
    let read = front.link.get_config(WRITEBACK, 1, flags, &[0]);
    read.unwrap().1[0]
}

/// Writes a sector as the `number`th request; whether the daemon made it durable.
fn is_durable(daemon: &Daemon, front: &Front, number: u16) -> bool {
    let before = daemon.durable_writes();
    front.offer_write(number, 3, 0xaa);
    front.notify();
    front.answer(number + 1);
    daemon.durable_writes() > before
}

#[test]
fn the_driver_switches_the_write_cache() {
    let daemon = Daemon::new();
    let mut front = daemon.connect();
    assert_eq!(shown(&mut front), 1, "as the command line has it");
    front.share();
    front.start(0, 0).unwrap();
    assert!(!is_durable(&daemon, &front, 0));
    choose(&mut front, 0);
    assert!(is_durable(&daemon, &front, 1));
    choose(&mut front, 1);
    assert!(!is_durable(&daemon, &front, 2));
    assert_eq!(daemon.counters.cache_changes.get(), 2);
    // A driver's reset: the front-end goes on showing what was chosen.
    choose(&mut front, 0);
    let base = front.link.reset_device();
    base.unwrap();
    assert_eq!(shown(&mut front), 0);
}

#[test]
fn a_successor_knows_what_the_driver_chose() {
    for (mode, durable) in [(0, true), (1, false)] {
        let daemon = Daemon::new();
        let mut front = daemon.connect();
        front.share();
        choose(&mut front, mode);
        let log = front.log.take();
        drop((front, daemon));
        let successor = Daemon::new();
        let mut front = successor.connect();
        front.log = log;
        front.share();
        front.start(0, 0).unwrap();
        assert_eq!(is_durable(&successor, &front, 0), durable);
        assert_eq!(shown(&mut front), mode);
    }
}

#[test]
fn writes_are_durable_while_it_is_not_known_what_the_driver_believes() {
    let daemon = Daemon::new();
    let mut front = daemon.connect();
    front.share();
    front.start(0, 0).unwrap();
    assert!(is_durable(&daemon, &front, 0));
    assert_eq!(shown(&mut front), 1);
    assert!(!is_durable(&daemon, &front, 1), "now it has asked");
}
