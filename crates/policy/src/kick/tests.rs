use proptest::prelude::*;
use std::vec::Vec;

use super::*;

const US: u64 = 1_000;

fn running(kicks: &mut Coalescer, now_ns: u64) -> Kick {
    kicks.request(now_ns, Target::Running)
}

#[test]
fn a_second_kick_within_100_us_is_left_pending_until_the_windows_end() {
    let mut kicks = Coalescer::new(WINDOW_NS);
    assert_eq!(running(&mut kicks, 1_000 * US), Kick::Send);
    assert_eq!(kicks.deadline(), None);
    assert_eq!(running(&mut kicks, 1_099 * US), Kick::Wait);
    assert_eq!(kicks.deadline(), Some(1_100 * US));
    assert_eq!(kicks.expired(1_100 * US - 1), Kick::Wait);
    assert_eq!(kicks.expired(1_100 * US), Kick::Send);
    assert_eq!(kicks.expired(1_300 * US), Kick::Wait, "only once");
}

#[test]
fn kicks_further_apart_than_the_window_are_all_sent() {
    let mut kicks = Coalescer::new(WINDOW_NS);
    for turn in 0..100 {
        assert_eq!(running(&mut kicks, turn * WINDOW_NS), Kick::Send);
    }
}

#[test]
fn a_vcpu_that_looks_by_itself_saves_the_kick() {
    let mut kicks = Coalescer::new(WINDOW_NS);
    assert_eq!(running(&mut kicks, 0), Kick::Send);
    assert_eq!(running(&mut kicks, US), Kick::Wait);
    kicks.looked();
    assert_eq!((kicks.deadline(), kicks.counters().saved), (None, 1));
    kicks.looked();
    assert_eq!(kicks.counters().saved, 1);
}

#[test]
fn a_halted_vcpu_is_woken_at_once() {
    let mut kicks = Coalescer::new(WINDOW_NS);
    assert_eq!(running(&mut kicks, 0), Kick::Send);
    assert_eq!(running(&mut kicks, US), Kick::Wait);
    assert_eq!(kicks.request(2 * US, Target::Halted), Kick::Send);
    assert_eq!(kicks.deadline(), None, "it sees what was pending, too");
}

#[test]
fn a_window_of_zero_sends_every_kick() {
    let mut kicks = Coalescer::new(0);
    (0..9).for_each(|_| assert_eq!(running(&mut kicks, 7), Kick::Send));
    kicks.set_window_ns(US);
    assert_eq!(running(&mut kicks, 7), Kick::Send, "from the next on");
    assert_eq!(running(&mut kicks, 7), Kick::Wait);
    assert_eq!(kicks.window_ns(), US);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Request(Target),
    Look,
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Request(Target::Running)),
        1 => Just(Step::Request(Target::Halted)),
        2 => Just(Step::Look),
        6 => (0..150 * US).prop_map(Step::Pass),
    ]
}

proptest! {
    #[test]
    fn nothing_is_unseen_for_longer_than_the_window(steps in prop::collection::vec(step(), 1..200)) {
        let mut kicks = Coalescer::new(WINDOW_NS);
        let mut now_ns = 0;
        let mut unseen: Vec<u64> = Vec::new();
        let mut last_sent: Option<u64> = None;
        for step in steps {
            match step {
                Step::Request(target) => {
                    unseen.push(now_ns);
                    let due = last_sent.is_none_or(|sent| now_ns - sent >= WINDOW_NS);
                    let sent = kicks.request(now_ns, target) == Kick::Send;
                    prop_assert_eq!(sent, due || target == Target::Halted);
                    if sent {
                        unseen.clear();
                        last_sent = Some(now_ns);
                    }
                }
                Step::Look => {
                    kicks.looked();
                    unseen.clear();
                }
                Step::Pass(ns) => {
                    let until_ns = now_ns + ns;
                    if let Some(deadline_ns) = kicks.deadline().filter(|d| *d <= until_ns) {
                        prop_assert!(deadline_ns >= now_ns);
                        prop_assert_eq!(kicks.expired(deadline_ns), Kick::Send);
                        unseen.clear();
                        last_sent = Some(deadline_ns);
                    }
                    now_ns = until_ns;
                }
            }
            prop_assert_eq!(kicks.deadline().is_some(), !unseen.is_empty());
            prop_assert!(unseen.iter().all(|since| now_ns - since < WINDOW_NS));
        }
        let counted = kicks.counters();
        prop_assert_eq!(counted.requests, counted.sent + counted.deferred);
    }
}
