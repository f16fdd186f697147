//! Profiles of other versions, cut off, or edited by hand.

use super::*;
use crate::Durations;

fn good() -> Profile {
    let mut profile = Profile::empty();
    let mut time = Durations::default();
    time.add(120);
    time.add(90);
    profile.calls.insert(
        "read".to_owned(),
        Call {
            count: 2,
            time,
            ..Call::default()
        },
    );
    profile
}

fn error_of(profile: &Profile) -> String {
    Profile::read(&profile.to_json().unwrap())
        .unwrap_err()
        .to_string()
}

#[test]
fn a_profile_is_read_as_it_was_written() {
    let json = good().to_json().unwrap();
    assert_eq!(Profile::read(&json).unwrap(), good());
}

#[test]
fn every_cut_is_refused() {
    let json = good().to_json().unwrap();
    for end in 0..json.len() - 2 {
        assert!(Profile::read(&json[..end]).is_err(), "cut at {end}");
    }
}

#[test]
fn another_version_is_named() {
    let mut profile = good();
    profile.schema = "tare-profile/9".to_owned();
    let error = error_of(&profile);
    assert!(error.contains("tare-profile/9"), "{error}");
    assert!(error.contains("profile the application again"), "{error}");
}

#[test]
fn a_profile_without_paths_is_read_and_says_what_it_lacks() {
    let text = String::from_utf8(good().to_json().unwrap()).unwrap();
    let older = text
        .replace("tare-profile/2", "tare-profile/1")
        .replace("  \"paths\": {},\n", "");
    let read = Profile::read(older.as_bytes()).unwrap();
    assert_eq!(read.calls, good().calls);
    assert_eq!(read.schema, SCHEMA);
    assert!(read.unavailable[0].contains("paths are not recorded"));
    let without = text.replace("  \"paths\": {},\n", "");
    assert!(Profile::read(without.as_bytes()).is_err());
}

#[test]
fn a_relative_path_is_refused() {
    let mut profile = good();
    profile
        .paths
        .insert("../x".to_owned(), [crate::Asked::Stat].into());
    assert!(error_of(&profile).contains("../x"));
}

#[test]
fn figures_that_contradict_each_other_are_named_with_their_call() {
    let edits: [fn(&mut Call); 5] = [
        |call| call.count = 1,
        |call| call.time.shortest_ns = 1,
        |call| call.time.fastest_ns.reverse(),
        |call| call.time.histogram = vec![0; 99],
        |call| {
            call.errors.insert("EIO".to_owned(), 3);
        },
    ];
    for edit in edits {
        let mut profile = good();
        edit(profile.calls.get_mut("read").unwrap());
        let error = error_of(&profile);
        assert!(error.contains("read: "), "{error}");
    }
}
