//! The store against a plain model, with a clock that jumps and a limit that
//! is reached.

#![allow(clippy::unwrap_used)]

mod model;

use std::cell::Cell;
use std::rc::Rc;

use model::Model;
use proptest::prelude::*;
use tare_guest_kv::request::{Direction, Entry, Form, Verb};
use tare_guest_kv::store::{Clock, OVERHEAD, Seed, Store, Stored};

const START_S: u32 = 1_800_000_000;
const SEED: Seed = Seed([1, 2]);

#[derive(Clone)]
struct Time(Rc<Cell<u32>>);

impl Clock for Time {
    fn unix_s(&self) -> u32 {
        self.0.get()
    }
}

fn store(limit_bytes: usize) -> (Store<Time>, Rc<Cell<u32>>) {
    let now = Rc::new(Cell::new(START_S));
    (Store::new(Time(Rc::clone(&now)), limit_bytes, SEED), now)
}

fn set<'a>(key: &'a [u8], value: &'a [u8]) -> Entry<'a> {
    Entry {
        verb: Verb::Set,
        key,
        flags: 0,
        exptime: 0,
        value,
    }
}

fn has(store: &mut Store<Time>, key: &[u8]) -> bool {
    store.get(key, Form::Plain, None, &mut Vec::new()).unwrap()
}

#[derive(Clone, Debug)]
enum Act {
    Get(u8, Form, Option<i32>),
    Touch(u8, i32),
    Store(Verb, u8, u32, i32, Vec<u8>),
    Compute(u8, Direction, u64),
    Delete(u8),
    Flush(i32),
    Pass(u32),
}

fn exptime() -> impl Strategy<Value = i32> {
    prop_oneof![
        6 => Just(0),
        3 => 1..20i32,
        1 => Just(-1),
        1 => (START_S as i32 - 5)..(START_S as i32 + 40),
    ]
}

fn verb() -> impl Strategy<Value = Verb> {
    prop_oneof![
        4 => Just(Verb::Set),
        1 => Just(Verb::Add),
        1 => Just(Verb::Replace),
        1 => Just(Verb::Append),
        1 => Just(Verb::Prepend),
        1 => (1..60u64).prop_map(Verb::Cas),
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => prop::collection::vec(b'a'..=b'z', 0..200),
        3 => (any::<u64>(), 0..64u32).prop_map(|(n, shift)| (n >> shift).to_string().into_bytes()),
        1 => prop::collection::vec(b'a'..=b'z', 1000..2500),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    let key = || 0..24u8;
    let form = prop_oneof![Just(Form::Plain), Just(Form::WithCas)];
    let direction = prop_oneof![Just(Direction::Up), Just(Direction::Down)];
    prop_oneof![
        6 => (key(), form, prop::option::weighted(0.2, exptime()))
            .prop_map(|(key, form, touch)| Act::Get(key, form, touch)),
        1 => (key(), exptime()).prop_map(|(key, exptime)| Act::Touch(key, exptime)),
        8 => (verb(), key(), any::<u32>(), exptime(), value())
            .prop_map(|(verb, key, flags, exptime, value)| {
                Act::Store(verb, key, flags, exptime, value)
            }),
        2 => (key(), direction, any::<u64>(), 0..64u32)
            .prop_map(|(key, direction, delta, shift)| Act::Compute(key, direction, delta >> shift)),
        1 => key().prop_map(Act::Delete),
        1 => prop_oneof![Just(0), 1..10i32, Just(-1)].prop_map(Act::Flush),
        2 => (1..8u32).prop_map(Act::Pass),
    ]
}

fn key(number: u8) -> Vec<u8> {
    format!("key-{number}").into_bytes()
}

fn compare(act: &Act, store: &mut Store<Time>, model: &mut Model, now: &Cell<u32>) {
    match act {
        Act::Get(number, form, touch) => {
            let mut out = Vec::new();
            let found = store.get(&key(*number), *form, *touch, &mut out).unwrap();
            assert_eq!(
                found.then_some(out),
                model.get(&key(*number), *form, *touch)
            );
        }
        Act::Touch(number, exptime) => {
            let touched = store.touch(&key(*number), *exptime);
            assert_eq!(touched, model.touch(&key(*number), *exptime));
        }
        Act::Store(verb, number, flags, exptime, value) => {
            let entry = Entry {
                verb: *verb,
                key: &key(*number),
                flags: *flags,
                exptime: *exptime,
                value,
            };
            assert_eq!(store.store(&entry), model.store(&entry));
        }
        Act::Compute(number, direction, delta) => {
            let computed = store.compute(&key(*number), *direction, *delta);
            assert_eq!(computed, model.compute(&key(*number), *direction, *delta));
        }
        Act::Delete(number) => {
            assert_eq!(store.delete(&key(*number)), model.delete(&key(*number)));
        }
        Act::Flush(delay) => {
            store.flush_all(*delay);
            model.flush_all(*delay);
        }
        Act::Pass(seconds) => {
            now.set(now.get() + seconds);
            model.now_s += seconds;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn the_store_does_what_the_model_does(
        acts in prop::collection::vec(act(), 1..200),
        limit in 500..4000usize,
    ) {
        let (mut store, now) = store(limit);
        let mut model = Model::new(limit, START_S);
        for act in &acts {
            compare(act, &mut store, &mut model, &now);
            assert_eq!((store.len(), store.used_bytes()), (model.len(), model.used_bytes()));
            assert!(store.used_bytes() <= limit);
        }
        let counts = store.counts();
        assert_eq!((counts.evictions, counts.reclaimed), (model.evictions, model.reclaimed));
    }
}

/// As memcached 1.6.18 does.
#[test]
fn a_number_ends_at_a_blank() {
    let (mut store, now) = store(4000);
    let mut model = Model::new(4000, START_S);
    let stored = |verb, value: &[u8]| Act::Store(verb, 0, 0, 0, value.to_owned());
    for act in [
        stored(Verb::Set, b"10"),
        Act::Compute(0, Direction::Down, 1),
        stored(Verb::Append, b"a"),
        Act::Get(0, Form::Plain, None),
        Act::Compute(0, Direction::Up, 1),
    ] {
        compare(&act, &mut store, &mut model, &now);
    }
    let mut out = Vec::new();
    assert_eq!(store.get(&key(0), Form::Plain, None, &mut out), Ok(true));
    assert_eq!(out, b"VALUE key-0 0 3\r\n10 \r\n");
}

#[test]
fn a_hundred_thousand_items_are_found_again() {
    let (mut store, _) = store(usize::MAX);
    let keys: Vec<String> = (0..100_000).map(|n| format!("item:{n}")).collect();
    for key in &keys {
        assert_eq!(
            store.store(&set(key.as_bytes(), key.as_bytes())),
            Stored::Stored
        );
    }
    assert!(keys.iter().all(|key| has(&mut store, key.as_bytes())));
    for key in keys.iter().step_by(2) {
        assert!(store.delete(key.as_bytes()));
    }
    let left = keys.iter().filter(|key| has(&mut store, key.as_bytes()));
    assert_eq!((left.count(), store.len()), (50_000, 50_000));
}

#[test]
fn what_was_used_stays_and_what_was_not_goes() {
    let (mut store, _) = store(10 * (OVERHEAD + 32));
    for number in 0..10u8 {
        store.store(&set(&[b'a' + number], b"1234567890"));
    }
    assert_eq!(store.len(), 10);
    assert!(has(&mut store, b"a"));
    store.store(&set(b"z", b"1234567890"));
    assert!(has(&mut store, b"a") && !has(&mut store, b"b"));
    assert_eq!(store.counts().evictions, 1);
}

#[test]
fn an_expired_item_makes_room_without_being_an_eviction() {
    let (mut store, now) = store(2 * (OVERHEAD + 32));
    let short = Entry {
        exptime: 5,
        ..set(b"a", b"1234567890")
    };
    store.store(&short);
    store.store(&set(b"b", b"1234567890"));
    now.set(START_S + 5);
    store.store(&set(b"c", b"1234567890"));
    let counts = store.counts();
    assert_eq!((counts.evictions, counts.reclaimed), (0, 1));
}

#[test]
fn thirty_days_are_relative_and_a_second_more_is_a_date() {
    let (mut store, now) = store(100_000);
    let month = 60 * 60 * 24 * 30;
    for (key, exptime) in [(b"a", month), (b"b", month + 1), (b"c", START_S as i32 + 1)] {
        let entry = Entry {
            exptime,
            ..set(key, b"")
        };
        store.store(&entry);
    }
    assert!(has(&mut store, b"a") && !has(&mut store, b"b") && has(&mut store, b"c"));
    now.set(START_S + 1);
    assert!(has(&mut store, b"a") && !has(&mut store, b"c"));
    now.set(START_S + month as u32);
    assert!(!has(&mut store, b"a"));
}

#[test]
fn a_set_that_does_not_fit_leaves_nothing_old() {
    let (mut store, _) = store(1000);
    store.store(&set(b"a", b"old"));
    store.store(&set(b"b", b"other"));
    assert_eq!(store.store(&set(b"a", &[b'x'; 1000])), Stored::NoMemory);
    assert!(!has(&mut store, b"a") && has(&mut store, b"b"));
    assert_eq!(store.counts().store_no_memory, 1);
}
