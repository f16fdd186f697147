//! Disks of running machines: watched and set from outside. They need /dev/kvm
//! and `tare-monitor`, and SKIP without.

mod support;

use std::io::Read as _;

use support::guest::{self, Then};
use support::needs::kvm;
use support::{TestDir, end};

/// A machine called `db` and the place it runs in; a test that fails leaves
/// none.
struct Running(TestDir);

impl Drop for Running {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.run(&["stop", "db", "--time", "1"]);
        }
    }
}

/// A halted machine with a disk.
fn with_disk() -> Running {
    let place = TestDir::new();
    let image = place.file("tiny", &guest::image("hello", Then::Halt));
    let disk = place.file("disk.img", &[0; 64 * 512]);
    let disk = format!("{disk},coalesce=off");
    let args = ["run", &image, "-d", "--net", "none", "--name", "db"];
    let args = [&args[..], &["--disk", &disk]].concat();
    place.run(&args).expect(0, "db");
    Running(place)
}

#[test]
fn settings_of_a_machine_are_listed_and_changed() {
    if !kvm() {
        return;
    }
    let running = with_disk();
    let place = &running.0;
    let listed = place.run(&["set", "db"]);
    listed.expect(0, "disk0.coalesce ");
    assert!(listed.out.contains(" off "), "{listed:#?}");
    let set = [
        "set",
        "db",
        "disk0.coalesce=4/5",
        "disk0.coalesce.epoch_us=50000",
    ];
    let changed = place.run(&set);
    changed.expect(0, "4/5");
    assert_eq!(changed.out.lines().count(), 2, "{changed:#?}");
    let wrong = [
        "set",
        "db",
        "disk0.coalesce=off",
        "disk0.coalesce.epoch_us=1",
    ];
    place.run(&wrong).expect(2, "disk0: epoch of 1000 ns");
    let json = place.run(&["set", "db", "--json"]);
    json.expect(0, "\"mode\": \"4/5\"");
    json.expect(0, "\"epoch_us\": 50000");
    place.run(&["stop", "db"]).expect(0, "");
}

#[test]
fn a_disk_is_watched_line_by_line_or_as_json() {
    if !kvm() {
        return;
    }
    let running = with_disk();
    let place = &running.0;
    let watch = ["stats", "db", "--watch", "0.05", "--count", "2"];
    let seen = place.run(&watch);
    seen.expect(0, "INTERRUPTS/IO");
    assert_eq!(seen.out.lines().count(), 3, "{seen:#?}");
    let json = place.run(&[&watch[..], &["--json"]].concat());
    json.expect(0, "\"disks\":[{\"disk\":\"disk0\"");
    assert_eq!(json.out.lines().count(), 2, "{json:#?}");
    place
        .run(&["stats", "db", "-w", "0"])
        .expect(2, "0.05 to 3600");
    // As `head` reads it.
    let mut endless = place.tare(&["stats", "db", "--watch", "0.05"]);
    let mut endless = endless.spawn().unwrap();
    let mut out = endless.stdout.take().unwrap();
    out.read_exact(&mut [0; 9]).unwrap();
    drop(out);
    end(endless).expect(0, "");
    place.run(&["stop", "db"]).expect(0, "");
}

#[test]
fn a_machine_without_disks_has_nothing_to_watch() {
    if !kvm() {
        return;
    }
    let place = TestDir::new();
    let image = place.file("tiny", &guest::image("hello", Then::Halt));
    let args = ["run", &image, "-d", "--net", "none", "--name", "dry"];
    place.run(&args).expect(0, "dry");
    place
        .run(&["stats", "dry", "--watch"])
        .expect(2, "has no disk to watch");
    place.run(&["stop", "dry"]).expect(0, "");
}
