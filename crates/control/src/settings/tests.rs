//! The two documents against each other.

use tare_policy::coalesce::{Mode, Parameters};
use tare_policy::limit::NetLimits;

use super::*;
use crate::config::DiskCoalesce;
use crate::halt::HaltPolicy;

/// With its causes, as people get it.
fn sentence(error: &SettingsError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

fn one_disk() -> Settings {
    let disk = DiskSettings {
        path: "data.img".to_owned(),
        coalesce: Coalesce::from(&tare_policy::coalesce::Settings::default()),
        iops: 0,
        bytes_per_s: 1 << 20,
        size: 1 << 30,
    };
    Settings {
        halt: Some(HaltPolicy::default()),
        net: Some(NetLimits::default().into()),
        disks: [("disk0".to_owned(), disk)].into(),
    }
}

fn change(pairs: &[&str]) -> SettingsChange {
    let mut change = SettingsChange::default();
    for word in pairs {
        change.set(word).unwrap();
    }
    change
}

#[test]
fn every_row_can_be_set_to_what_it_says() {
    let settings = one_disk();
    let rows = settings.rows();
    assert_eq!(rows.len(), 13);
    let pairs: Vec<_> = rows
        .iter()
        .map(|row| format!("{}={}", row.key, row.value))
        .collect();
    let pairs: Vec<_> = pairs.iter().map(String::as_str).collect();
    assert_eq!(settings.changed(&change(&pairs)), Ok(settings));
}

#[test]
fn the_rule_gets_what_was_set_and_the_rest_stays() {
    let pairs = [
        "disk0.coalesce=off",
        "disk0.coalesce.longest_hold_us=500",
        "disk0.coalesce.read_urgent_below=0",
    ];
    let settings = one_disk().changed(&change(&pairs)).unwrap();
    let rule = settings.disks["disk0"].coalesce.settings().unwrap();
    let expected = Parameters {
        mode: Mode::Off,
        longest_hold_ns: 500_000,
        read_urgent_below: 0,
        ..Parameters::default()
    };
    assert_eq!(rule.parameters(), &expected);
    assert_eq!(Coalesce::from(&rule), settings.disks["disk0"].coalesce);
}

#[test]
fn both_documents_survive_json() {
    let settings = one_disk()
        .changed(&change(&["disk0.coalesce=3/4"]))
        .unwrap();
    let ratio = DiskCoalesce::Ratio {
        delivered: 3,
        of: 4,
    };
    assert_eq!(settings.disks["disk0"].coalesce.mode, ratio);
    let text = serde_json::to_string(&settings).unwrap();
    assert!(text.contains(r#""mode":"3/4""#), "{text}");
    assert_eq!(serde_json::from_str::<Settings>(&text).unwrap(), settings);
}

#[test]
fn one_wrong_value_refuses_the_whole_change() {
    let settings = one_disk();
    let refused = |pairs: &[&str]| sentence(&settings.changed(&change(pairs)).unwrap_err());
    assert_eq!(
        refused(&["disk0.coalesce=off", "disk0.coalesce.epoch_us=10"]),
        "disk0: epoch of 10000 ns is not in 1 ms..=60 s"
    );
    assert_eq!(
        refused(&["disk0.coalesce.longest_hold_us=18446744073709551615"]),
        "disk0: longest hold of 18446744073709551615 ns is not in 1 ns..=1 s"
    );
    assert!(refused(&["disk7.coalesce=off"]).starts_with("disk7 does not exist"));
}

#[test]
fn how_a_halted_cpu_waits_is_set_and_dedicated_is_not() {
    let settings = one_disk();
    let polling = settings.changed(&change(&["halt=poll=50000"])).unwrap();
    assert_eq!(polling.halt, Some(HaltPolicy::Poll(50_000)));
    assert_eq!(polling.disks, settings.disks);
    let refused = settings.changed(&change(&["halt=dedicated"])).unwrap_err();
    assert!(sentence(&refused).contains("can only be set at start"));
    let dedicated = Settings {
        halt: Some(HaltPolicy::Dedicated),
        ..settings
    };
    assert!(dedicated.changed(&change(&["halt=never"])).is_err());
    assert!(dedicated.changed(&change(&["halt=dedicated"])).is_ok());
}

#[test]
fn words_that_are_no_setting_are_named() {
    let error = |word: &str| {
        let error = SettingsChange::default().set(word).unwrap_err();
        sentence(&error)
    };
    assert_eq!(
        error("disk0.coalesce"),
        "\"disk0.coalesce\" is not KEY=VALUE"
    );
    assert_eq!(error("speed=1"), "speed: unknown setting");
    assert_eq!(error("disk0.speed=1"), "disk0.speed: unknown setting");
    assert!(error("halt=budget=0").starts_with("halt: a budget is a share"));
    assert_eq!(
        error("disk0.coalesce=5/4"),
        "disk0.coalesce: invalid coalescing \"5/4\": use auto, off, or a ratio such as 1/4"
    );
    assert_eq!(
        error("disk0.coalesce.epoch_us=1s"),
        "disk0.coalesce.epoch_us: \"1s\" is not a whole number up to 18446744073709551615"
    );
    let json = r#"{"disks":{"disk0":{"coalesce":{"speed":1}}}}"#;
    assert!(serde_json::from_str::<SettingsChange>(json).is_err());
}

#[test]
fn a_daemon_without_vcpus_refuses_halt_and_changes_nothing() {
    let disks = Settings {
        halt: None,
        ..one_disk()
    };
    let change = change(&["disk0.coalesce=4/5", "halt=never"]);
    let refused = disks.changed(&change).unwrap_err();
    assert_eq!(sentence(&refused), "halt: unknown setting");
    assert!(disks.rows().iter().all(|row| row.key != "halt"));
    assert!(!serde_json::to_string(&disks).unwrap().contains("halt"));
}

#[test]
fn a_change_in_json_is_made_of_objects() {
    assert_eq!(
        SettingsChange::from_json(b"{}").unwrap(),
        SettingsChange::default()
    );
    for document in [
        "[]",
        "[null,{}]",
        r#"{"disks":[]}"#,
        r#"{"disks":{"disk0":[]}}"#,
        "null",
        "7",
    ] {
        let refused = SettingsChange::from_json(document.as_bytes());
        assert!(refused.is_err(), "{document}");
    }
}

#[test]
fn limits_of_a_network_are_set_where_there_is_one() {
    let change = change(&["net.frames_per_s=1000"]);
    let settings = one_disk().changed(&change).unwrap();
    let limits = NetLimits::from(settings.net.as_ref().unwrap());
    let expected = NetLimits {
        frames_per_s: 1_000,
        bytes_per_s: 0,
    };
    assert_eq!(limits, expected);
    let without = Settings {
        net: None,
        ..one_disk()
    };
    let refused = without.changed(&change).unwrap_err();
    assert_eq!(
        sentence(&refused),
        "net does not exist: the machine has no network"
    );
    let unknown = SettingsChange::default().set("net.speed=1").unwrap_err();
    assert_eq!(sentence(&unknown), "net.speed: unknown setting");
}

#[test]
fn the_size_of_one_disk_can_be_changed_at_a_time() {
    let mut settings = one_disk();
    let second = settings.disks["disk0"].clone();
    settings.disks.insert("disk1".to_owned(), second);
    let changed = settings.changed(&change(&["disk1.size=2G"])).unwrap();
    assert_eq!(changed.disks["disk1"].size, 2 << 30);
    assert_eq!(changed.disks["disk0"], settings.disks["disk0"]);
    let both = settings.changed(&change(&["disk0.size=2G", "disk1.size=2G"]));
    assert_eq!(both, Err(SettingsError::SeveralSizes));
    // Setting the size that a disk has changes nothing.
    let one = settings.changed(&change(&["disk0.size=1G", "disk1.size=2G"]));
    assert_eq!(one.unwrap().disks["disk1"].size, 2 << 30);
    let none = settings.changed(&change(&["disk0.size=1G", "disk1.size=1G"]));
    assert_eq!(none, Ok(settings));
}
