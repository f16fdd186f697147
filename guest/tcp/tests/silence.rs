//! Scripts of peers that are silent.

mod script;

use script::{ACK, Script, modern};
use tare_tcp::time::Duration;
use tare_tcp::{KeepAlive, Loss, State};

const KEEP: KeepAlive = KeepAlive {
    idle: Duration::from_secs(60),
    interval: Duration::from_secs(10),
    probes: 3,
};

#[test]
fn rfc9293_keepalive_gives_a_dead_peer_up() {
    let mut script = Script::open(modern());
    script.tcp.set_keep_alive(Some(KEEP), script.now);
    assert_eq!(script.wait_for_deadline(), 60_000);
    script.expect(ACK, 0, 1, 0);
    script.inject(ACK, 1, 1, b"");
    script.nothing();
    let mut probes = 0;
    while script.tcp.state() == State::Established {
        script.wait_for_deadline();
        probes += usize::from(script.sent().is_some_and(|sent| sent.flags == ACK));
        assert!(probes <= 3);
    }
    assert_eq!((probes, script.tcp.loss()), (3, Some(Loss::TimedOut)));
}

#[test]
fn rfc9293_a_peer_that_acknowledges_nothing_is_given_up_after_a_minute() {
    let mut script = Script::open(modern());
    script.send(100);
    let start = script.now;
    while script.tcp.state() == State::Established {
        script.data();
        script.wait_for_deadline();
        script.data();
    }
    assert_eq!(script.now.since(start), Duration::from_secs(60));
    assert_eq!(script.tcp.loss(), Some(Loss::TimedOut));
}

#[test]
fn rfc5482_a_user_says_when_a_peer_is_given_up() {
    for (limit, ms) in [(Some(2500), 2500), (Some(90_000), 90_000), (None, 60_000)] {
        let mut script = Script::open(modern());
        let other = Some(Duration::from_secs(7));
        script.tcp.set_user_timeout(other, script.now);
        script.send(100);
        let start = script.now;
        script.data();
        // Also of what is on its way.
        let limit = limit.map(Duration::from_millis);
        script.tcp.set_user_timeout(limit, script.now);
        while script.tcp.state() == State::Established {
            script.wait_for_deadline();
            script.data();
        }
        assert_eq!(script.now.since(start), Duration::from_millis(ms));
        assert_eq!(script.tcp.loss(), Some(Loss::TimedOut));
    }
    let mut script = Script::open(modern());
    script.tcp.set_keep_alive(Some(KEEP), script.now);
    script
        .tcp
        .set_user_timeout(Some(Duration::from_secs(95)), script.now);
    let start = script.now;
    while script.tcp.state() == State::Established {
        script.wait_for_deadline();
        script.sent();
    }
    assert_eq!(script.now.since(start), Duration::from_secs(100));
}
