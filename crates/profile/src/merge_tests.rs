//! Merging loses nothing and invents nothing.

use std::collections::BTreeMap;

use super::*;
use crate::{Argument, Durations};

fn call(times: &[u64], argument: u64) -> Call {
    let mut time = Durations::default();
    times.iter().for_each(|ns| time.add(*ns));
    Call {
        number: 257,
        count: times.len() as u64,
        errors: BTreeMap::from([("ENOENT".to_owned(), 1)]),
        time,
        arguments: vec![Argument::Constant(7), Argument::Constant(argument)],
        tasks: vec!["server".to_owned()],
    }
}

fn profile(times: &[u64], argument: u64) -> Profile {
    let mut profile = Profile::empty();
    profile
        .calls
        .insert("openat".to_owned(), call(times, argument));
    profile.features.sockets.push(SocketUse {
        family: "AF_INET".to_owned(),
        kind: "SOCK_STREAM".to_owned(),
        protocol: 0,
        count: times.len() as u64,
    });
    profile.modules.push("ext4".to_owned());
    profile
}

#[test]
fn counts_add_up_and_constants_survive_only_when_equal() {
    let mut merged = Profile::empty();
    merged.merge(&profile(&[10, 20], 1));
    merged.merge(&profile(&[5], 2));
    let call = &merged.calls["openat"];
    assert_eq!(call.count, 3);
    assert_eq!(call.errors["ENOENT"], 2);
    assert_eq!(call.time.shortest_ns, 5);
    assert_eq!(call.arguments, [Argument::Constant(7), Argument::Varies]);
    assert_eq!(call.tasks, ["server"]);
    assert_eq!(merged.features.sockets.len(), 1);
    assert_eq!(merged.features.sockets[0].count, 3);
    assert_eq!(merged.modules, ["ext4"]);
    assert_eq!(merged.call_count(), 3);
}

#[test]
fn merging_into_nothing_changes_nothing() {
    let one = profile(&[1, 2, 3], 4);
    let mut merged = Profile::empty();
    merged.merge(&one);
    assert_eq!(merged, one);
}

/// Looking for each of them among all others would take hours.
#[test]
fn uses_of_any_number_and_order_are_merged() {
    const USES: usize = 200_000;
    let of = |number: usize| MountUse {
        file_system: format!("fs{number:06}"),
        count: 1,
    };
    let mut many = Profile::empty();
    many.features.mounts = (0..USES).rev().map(of).collect();
    let mut merged = Profile::empty();
    merged.merge(&many);
    merged.merge(&many);
    let mounts = &merged.features.mounts;
    assert_eq!(mounts.len(), USES);
    assert!(mounts.is_sorted() && mounts.iter().all(|it| it.count == 2));
}

#[test]
fn twins_in_one_list_become_one_use() {
    let of = |path: &str, count| FileUse {
        file_system: "ext4".to_owned(),
        path: path.to_owned(),
        count,
    };
    let mut edited = Profile::empty();
    edited.features.files = vec![of("/b", 1), of("/a", 2), of("/b", u64::MAX)];
    let mut merged = Profile::empty();
    merged.merge(&edited);
    assert_eq!(merged.features.files, [of("/a", 2), of("/b", u64::MAX)]);
}
