//! A disk that does not answer delays neither settings, statistics nor the end.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::Command;

use rustix::fs::OFlags;
use rustix::process::Signal;
use tare_vhost::front::Front;

use crate::daemon::{Daemon, started};
use crate::kinds::{Loop, Mounted};
use crate::support::fuse::{Call, FuseDisk, HostCache, Mood};
use crate::support::needs::{built, kvm, skip};
use crate::support::{TestDir, end, eventually};

/// Bytes of a disk.
const BYTES: usize = 8 << 20;

/// Reads and changes settings, and reads statistics.
#[track_caller]
fn answers(place: &TestDir, name: &str) {
    place
        .run(&["set", name, "disk0.iops=100000"])
        .expect(0, "100000");
    place.run(&["stats", name]).expect(0, "main");
}

/// A daemon with a request that the disk never answers, and a front-end that has disconnected.
fn hung(place: &TestDir, disk: &FuseDisk, offer: impl FnOnce(&Front)) -> Daemon {
    let daemon = Daemon::start(place, &disk.path());
    let front = started(place);
    disk.set(Mood::Hangs);
    offer(&front);
    front.notify();
    eventually("the disk has the request", || disk.hanging() > 0);
    answers(place, "disk");
    // When the front-end disconnects the daemon waits for requests in flight.
    drop(front);
    answers(place, "disk");
    daemon
}

/// A sector that the check of the format does not bring into the cache of the host.
const FAR: u64 = 12_000;

/// A wait that no signal ends keeps the process alive (Linux' state D). Its socket, its control
/// socket and its run directory are removed all the same; the process ends when the disk answers.
#[test]
fn a_daemon_whose_disk_hangs_answers_and_leaves_its_places() {
    for cache in [HostCache::Yes, HostCache::No] {
        let place = TestDir::new();
        let Some(mut disk) = FuseDisk::mount(&place.path().join("fs"), BYTES, cache) else {
            return;
        };
        let mut daemon = hung(&place, &disk, |front| match cache {
            HostCache::Yes => front.offer_read(0, FAR),
            HostCache::No => front.offer_write(0, 1, 0x5a),
        });
        daemon.ask(Signal::TERM);
        eventually("its places are free", || {
            !place.path().join("s").exists() && place.run_directories().is_empty()
        });
        disk.abort();
        let left = "requests in flight did not end within 1.5 s";
        daemon.ended().expect(143, left);
    }
}

/// Leaves each kind of the kernel's requests unanswered in turn, as a dead NFS server would: the
/// daemon answers, whatever the guest does and whichever client requests another size, and SIGTERM
/// frees its places. The process ends without the file system unless that has one of its requests
/// (ADR 44).
#[test]
fn whatever_call_hangs_a_daemon_answers_and_leaves_its_places() {
    let mut asked = Vec::new();
    for call in Call::ALL {
        let place = TestDir::new();
        let fs = place.path().join("fs");
        let Some(mut disk) = FuseDisk::mount(&fs, BYTES, HostCache::No) else {
            return;
        };
        let mut daemon = Daemon::start(&place, &disk.path());
        let front = started(&place);
        disk.set(Mood::HangsAt(call));
        front.offer_write_in(0, 0, 1, 0x5a);
        front.offer_flush_in(1, 1);
        front.offer_zeroes(2, 8, 8);
        front.notify();
        daemon.until("it has the requests", |stats| {
            stats.devices[0].counters["notifications"] >= 1
        });
        // The answer differs with the call.
        let _ = place.run(&["set", "disk", "disk0.size=16M"]);
        answers(&place, "disk");
        drop(front);
        answers(&place, "disk");
        let hangs_before = disk.hanging() > 0;
        daemon.ask(Signal::TERM);
        eventually("its places are free", || {
            !place.path().join("s").exists() && place.run_directories().is_empty()
        });
        if disk.hanging() == 0 {
            assert_eq!(daemon.ended().code, Some(143), "{call:?}");
        } else {
            asked.push((call, hangs_before));
            disk.abort();
            assert_eq!(daemon.ended().code, Some(143), "{call:?}");
        }
    }
    println!("hung in the file system: {asked:?}");
    for call in [Call::GetAttr, Call::Write, Call::Fsync, Call::Allocate] {
        assert!(asked.contains(&(call, true)), "{call:?} is not asked for");
    }
}

/// A file system that is frozen, until it is dropped.
struct Frozen(String);

impl Frozen {
    fn freeze(directory: &str) -> Option<Self> {
        let done = fsfreeze("-f", directory);
        if !done {
            skip("fsfreeze does not work here");
        }
        done.then(|| Self(directory.to_owned()))
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        fsfreeze("-u", &self.0);
    }
}

fn fsfreeze(what: &str, directory: &str) -> bool {
    let done = Command::new("fsfreeze")
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .args([what, directory])
        .status();
    done.is_ok_and(|status| status.success())
}

/// A mounted ext4 in a file.
fn file_system(place: &TestDir) -> Option<(Loop, Mounted)> {
    let image = place.file("fs.img", &vec![0; 4 * BYTES]);
    let made = Command::new("mke2fs")
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .args(["-q", "-t", "ext4", &image])
        .status();
    if !made.is_ok_and(|status| status.success()) {
        skip("mke2fs is not installed");
        return None;
    }
    let device = Loop::over(&image, &[])?;
    let directory = place.path().join("mounted");
    std::fs::create_dir(&directory).unwrap();
    let mounted = Command::new("mount")
        .arg(&device.0)
        .arg(&directory)
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        skip("mount does not work here");
        return None;
    }
    Some((device, Mounted(directory.to_str().unwrap().to_owned())))
}

#[test]
fn a_daemon_on_a_frozen_file_system_answers_and_leaves_its_places() {
    let place = TestDir::new();
    let Some((_device, mounted)) = file_system(&place) else {
        return;
    };
    let disk = format!("{}/d.img", mounted.0);
    std::fs::write(&disk, vec![0; BYTES]).unwrap();
    let mut daemon = Daemon::start(&place, &disk);
    let front = started(&place);
    let Some(frozen) = Frozen::freeze(&mounted.0) else {
        return;
    };
    front.offer_write(0, 1, 0x5a);
    front.notify();
    daemon.until("it has the request", |stats| {
        stats.devices[0].counters["notifications"] == 1
    });
    answers(&place, "disk");
    // A client that requests another size does not wait for the file system either.
    let grown = place.run(&["set", "disk", "disk0.size=16M"]);
    grown.expect(2, "did not answer within 1 s");
    drop(front);
    answers(&place, "disk");
    daemon.ask(Signal::TERM);
    eventually("its places are free", || {
        !place.path().join("s").exists() && place.run_directories().is_empty()
    });
    drop(frozen);
    assert_eq!(daemon.ended().code, Some(143));
}

/// A call that waits in the device holds a lock of it, which lseek(2) would wait for.
#[test]
fn the_size_of_a_device_that_hangs_is_set_without_waiting_for_it() {
    let place = TestDir::new();
    let Some((_device, mounted)) = file_system(&place) else {
        return;
    };
    let file = format!("{}/d.img", mounted.0);
    std::fs::write(&file, vec![0; BYTES]).unwrap();
    let Some(device) = Loop::over(&file, &[]) else {
        return;
    };
    let mut daemon = Daemon::start(&place, &device.0);
    let front = started(&place);
    let Some(frozen) = Frozen::freeze(&mounted.0) else {
        return;
    };
    front.offer_zeroes(0, 8, 8);
    front.notify();
    daemon.until("it has the request", |stats| {
        stats.devices[0].counters["notifications"] == 1
    });
    // The kernel's thread has the lock a moment later.
    std::thread::sleep(std::time::Duration::from_millis(200));
    let refused = place.run(&["set", "disk", "disk0.size=16M"]);
    refused.expect(2, "its device has 8388608 bytes: extend it first");
    answers(&place, "disk");
    drop(frozen);
    eventually("the request is answered", || front.used() == 1);
    assert_eq!(daemon.signal(Signal::TERM).code, Some(143));
}

/// The host's kernel knows a length of a file on FUSE that may be old.
#[test]
fn what_the_owner_of_a_fuse_file_has_extended_is_taken_over() {
    for cache in [HostCache::No, HostCache::Yes] {
        let place = TestDir::new();
        let Some(disk) = FuseDisk::mount(&place.path().join("fs"), BYTES, cache) else {
            return;
        };
        let daemon = Daemon::start(&place, &disk.path());
        let set = ["set", "disk", "disk0.size=16M"];
        place.run(&set).expect(2, "truncate -s");
        disk.extend(2 * BYTES);
        place.run(&set).expect(0, "16777216");
        let mut front = Front::connect(&place.path().join("s"));
        assert_eq!(front.config(0), 32_768);
        front.share();
        front.start(0, 0).unwrap();
        front.offer_read(0, 32_767);
        front.notify();
        assert_eq!(front.answer(1), 0);
        drop(daemon);
    }
}

/// A hung request does not stop the others: the thread that submits them continues.
#[test]
fn beside_a_request_that_hangs_others_are_served() {
    let place = TestDir::new();
    let Some(mut disk) = FuseDisk::mount(&place.path().join("fs"), BYTES, HostCache::No) else {
        return;
    };
    let mut daemon = Daemon::start(&place, &disk.path());
    let front = started(&place);
    disk.set(Mood::Hangs);
    front.offer_write(0, 1, 0x5a);
    front.notify();
    eventually("the disk has the request", || disk.hanging() > 0);
    disk.set(Mood::Serves);
    // The driver has one buffer for data, and the write's request has been read.
    front.offer_read(1, 2);
    front.notify();
    eventually("the read is answered", || front.used() == 1);
    assert_eq!((daemon.counter("reads"), daemon.counter("writes")), (1, 0));
    disk.abort();
    assert_eq!(daemon.signal(Signal::TERM).code, Some(143));
}

/// The same for a machine's disk.
#[test]
fn whatever_call_hangs_a_machine_answers_and_leaves_its_place() {
    let Some(image) = kvm().then(|| built("blk")).flatten() else {
        return;
    };
    for call in Call::ALL {
        let place = TestDir::new();
        let fs = place.path().join("fs");
        let Some(mut disk) = FuseDisk::mount(&fs, BYTES, HostCache::No) else {
            return;
        };
        let job = "cif=4 read=50 flush_every=4 ms=600000 warm_ms=0";
        let machine = place.loads_disk(&image, &disk.path(), job);
        eventually("the guest reads", || {
            let stats = place.run(&["stats", "db", "--json"]).out;
            stats.contains("\"reads\"") && !stats.contains("\"reads\": 0")
        });
        disk.set(Mood::HangsAt(call));
        let _ = place.run(&["set", "db", "disk0.size=16M"]);
        answers(&place, "db");
        let pid = rustix::process::Pid::from_child(&machine);
        rustix::process::kill_process(pid, Signal::TERM).unwrap();
        eventually("its place is free", || place.run_directories().is_empty());
        if disk.hanging() > 0 {
            disk.abort();
        }
        assert_eq!(end(machine).code, Some(143), "{call:?}");
    }
}

#[test]
fn a_machine_whose_disk_hangs_answers_and_ends() {
    let Some(image) = kvm().then(|| built("blk")).flatten() else {
        return;
    };
    let place = TestDir::new();
    let Some(mut disk) = FuseDisk::mount(&place.path().join("fs"), BYTES, HostCache::No) else {
        return;
    };
    let path = disk.path();
    let job = "cif=4 read=50 ms=600000 warm_ms=0";
    let machine = place.loads_disk(&image, &path, job);
    eventually("the guest reads", || {
        let stats = place.run(&["stats", "db", "--json"]).out;
        stats.contains("\"reads\"") && !stats.contains("\"reads\": 0")
    });
    disk.set(Mood::Hangs);
    eventually("the disk has requests", || disk.hanging() > 0);
    answers(&place, "db");
    let pid = rustix::process::Pid::from_child(&machine);
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    eventually("its place is free", || place.run_directories().is_empty());
    disk.abort();
    assert_eq!(end(machine).code, Some(143));
}

/// Where no signal ends a request, the machine's process stays until the file system thaws.
#[test]
fn a_machine_on_a_frozen_file_system_answers_and_leaves_its_place() {
    let Some(image) = kvm().then(|| built("blk")).flatten() else {
        return;
    };
    let place = TestDir::new();
    let Some((_device, mounted)) = file_system(&place) else {
        return;
    };
    // Before the machine starts, so that nothing is left on a host that cannot freeze.
    if Frozen::freeze(&mounted.0).is_none() {
        return;
    }
    let disk = format!("{}/d.img", mounted.0);
    std::fs::write(&disk, vec![0; BYTES]).unwrap();
    let job = "cif=4 read=50 flush_every=4 ms=600000 warm_ms=0";
    let machine = place.loads_disk(&image, &disk, job);
    let writes = || {
        let stats = place.run(&["stats", "db", "--json"]).out;
        let stats: serde_json::Value = serde_json::from_str(&stats).unwrap_or_default();
        stats["devices"][0]["counters"]["writes"].as_u64()
    };
    eventually("the guest writes", || {
        writes().is_some_and(|count| count > 0)
    });
    let frozen = Frozen::freeze(&mounted.0);
    let mut before = None;
    eventually("nothing is written any more", || {
        let now = writes();
        std::thread::sleep(std::time::Duration::from_millis(100));
        now.is_some() && std::mem::replace(&mut before, now) == now
    });
    answers(&place, "db");
    let grown = place.run(&["set", "db", "disk0.size=16M"]);
    grown.expect(2, "did not answer within 1 s");
    let pid = rustix::process::Pid::from_child(&machine);
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    eventually("its place is free", || place.run_directories().is_empty());
    drop(frozen);
    assert_eq!(end(machine).code, Some(143));
}

/// Beside the build, which is on a disk: /tmp may be memory.
fn file_for_o_direct(bytes: u64) -> Option<(tempfile::TempDir, String)> {
    let dir = tempfile::tempdir_in(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let path = dir.path().join("d.img");
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true);
    let file = options
        .custom_flags(OFlags::DIRECT.bits() as i32)
        .open(&path);
    let Ok(file) = file else {
        skip("this file system has no O_DIRECT");
        return None;
    };
    file.set_len(bytes).unwrap();
    Some((dir, path.to_str().unwrap().to_owned()))
}

/// Sixteen reads of 62 MiB each whose buffers O_DIRECT does not take.
#[test]
fn long_unaligned_reads_hold_up_neither_control_nor_the_end() {
    let Some((_dir, disk)) = file_for_o_direct(64 << 20) else {
        return;
    };
    let place = TestDir::new();
    let mut daemon = Daemon::start(&place, &disk);
    let front = started(&place);
    for number in 0..16 {
        front.offer_long_read(number);
    }
    front.notify();
    daemon.until("they are taken", |stats| {
        let counters = &stats.devices[0].counters;
        counters.get("bounced").is_some_and(|it| *it == 16)
            || counters.get("reads").is_some_and(|it| *it == 16)
    });
    answers(&place, "disk");
    assert_eq!(daemon.signal(Signal::TERM).code, Some(143));
    assert!(!place.path().join("s").exists());
}
