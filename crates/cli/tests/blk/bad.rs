//! Bad input and the end: one sentence, a documented code, nothing left behind.

use std::fs;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, prlimit};
use tare_control::client::Client;
use tare_vhost::front::Front;

use crate::daemon::{Daemon, started};
use crate::support::{TestDir, eventually};

fn with_disk() -> (TestDir, String) {
    let place = TestDir::new();
    let disk = place.file("d.img", &[0; 1 << 20]);
    (place, disk)
}

#[track_caller]
fn refused(place: &TestDir, socket: &str, disk: &str, code: i32, says: &str) {
    let path = place.path().join(socket);
    let ended = place.run(&["blk", "--socket", path.to_str().unwrap(), "--disk", disk]);
    assert_eq!(ended.code, Some(code), "{ended:?}");
    assert!(ended.err.contains(says), "{ended:?}");
    assert_eq!(ended.err.lines().count(), 1, "{ended:?}");
    assert!(place.run_directories().is_empty(), "{ended:?}");
}

#[test]
fn a_socket_in_use_is_refused_and_left_alone() {
    let (place, disk) = with_disk();
    let _other = UnixListener::bind(place.path().join("s")).unwrap();
    refused(&place, "s", &disk, 33, "is in use by another program");
    assert!(UnixStream::connect(place.path().join("s")).is_ok());
    fs::write(place.path().join("file"), "x").unwrap();
    refused(&place, "file", &disk, 33, "is not a socket");
    refused(&place, "missing/s", &disk, 33, "cannot create the socket");
}

#[test]
fn a_disk_that_cannot_be_served_leaves_no_socket() {
    let (place, disk) = with_disk();
    let missing = format!("{disk}.missing");
    refused(&place, "s", &missing, 34, "does not exist");
    let empty = place.file("empty", b"");
    refused(&place, "s", &empty, 35, "is empty");
    let _holder = Daemon::start(&place, &disk);
    let path = place.path().join("t");
    let again = place.run(&["blk", "--socket", path.to_str().unwrap(), "--disk", &disk]);
    assert_eq!(again.code, Some(36), "{again:?}");
    assert!(!path.exists());
}

#[test]
fn signals_and_stop_leave_nothing_behind() {
    let (place, disk) = with_disk();
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let mut daemon = Daemon::start(&place, &disk);
        assert_eq!(daemon.signal(signal).code, Some(code));
        assert!(!place.path().join("s").exists());
        assert!(place.run_directories().is_empty());
    }
    let mut daemon = Daemon::start(&place, &disk);
    assert_eq!(place.run(&["stop", "disk"]).code, Some(0));
    assert_eq!(daemon.ended().code, Some(0));
    assert!(!place.path().join("s").exists());
    assert!(place.run_directories().is_empty());
}

#[test]
fn a_front_end_in_the_middle_of_a_message_does_not_hold_up_the_end() {
    use std::io::Write as _;
    let (place, disk) = with_disk();
    let mut daemon = Daemon::start(&place, &disk);
    let mut half = UnixStream::connect(place.path().join("s")).unwrap();
    half.write_all(&[1, 0, 0]).unwrap();
    daemon.until("it came", |stats| {
        stats.devices[0].counters.get("frontends") == Some(&1)
    });
    assert_eq!(daemon.signal(Signal::TERM).code, Some(143));
    assert!(!place.path().join("s").exists());
}

#[test]
fn a_front_end_that_shortens_its_memory_is_sent_away_and_the_next_is_served() {
    let (place, disk) = with_disk();
    let mut daemon = Daemon::start(&place, &disk);
    let served = |front: &mut Front| {
        front.share();
        front.start(0, 0).unwrap();
        front.offer_read(0, 1);
    };
    let mut front = Front::connect(&place.path().join("s"));
    served(&mut front);
    front.file.set_len(0).unwrap();
    front.notify();
    daemon.until("it is sent away", |stats| {
        let counters = &stats.devices[0].counters;
        (counters["memory_lost"], counters["disconnects"]) == (1, 1)
    });
    let mut front = Front::connect(&place.path().join("s"));
    served(&mut front);
    front.notify();
    assert_eq!(front.answer(1), 0);
    assert_eq!(daemon.counter("reads"), 1);
    let ended = daemon.signal(Signal::TERM);
    assert_eq!(ended.code, Some(143));
    let said = ended.err.matches("it shortened the file").count();
    // One line more says where it serves.
    assert_eq!((said, ended.err.lines().count()), (1, 2), "{ended:?}");
}

/// Without free descriptors a front-end waits, and the daemon retries only at intervals.
#[test]
fn a_daemon_without_descriptors_is_not_busy_and_accepts_when_it_has_some() {
    use std::io::{Read as _, Write as _};
    use std::time::Instant;
    let (place, disk) = with_disk();
    let _daemon = Daemon::start(&place, &disk);
    // A connected client needs no further descriptor.
    let mut control = Client::new(place.run_root().join("disk/control.sock"));
    let mut stats = || control.stats().unwrap();
    let pid = Pid::from_raw(stats().pid as i32);
    // The daemon has inherited the test's limit.
    let all = getrlimit(Resource::Nofile);
    let none = Rlimit {
        current: Some(3),
        maximum: all.maximum,
    };
    prlimit(pid, Resource::Nofile, none).unwrap();
    let begin = Instant::now();
    let mut front = UnixStream::connect(place.path().join("s")).unwrap();
    let mut tries = 0;
    eventually("it tries again", || {
        tries = stats().devices[0].counters["accept_failures"];
        tries >= 3
    });
    let intervals = begin.elapsed().as_millis() / 200;
    assert!(
        u128::from(tries) <= intervals + 2,
        "{tries} in {intervals} intervals"
    );
    prlimit(pid, Resource::Nofile, all).unwrap();
    // GET_FEATURES.
    front
        .write_all(&[1u32, 1, 0].map(u32::to_le_bytes).concat())
        .unwrap();
    front.read_exact(&mut [0; 20]).unwrap();
}

#[test]
fn it_is_a_machine_to_the_other_verbs() {
    let (place, disk) = with_disk();
    let _daemon = Daemon::start(&place, &format!("{disk},coalesce=1/4"));
    let ps = place.run(&["ps"]);
    assert!(ps.out.contains("disk"), "{ps:?}");
    let set = place.run(&["set", "disk", "disk0.coalesce=off"]);
    assert_eq!(set.code, Some(0), "{set:?}");
    let limit = place.run(&["set", "disk", "disk0.iops=100", "disk0.bytes_per_s=1048576"]);
    assert_eq!(limit.code, Some(0), "{limit:?}");
    let now = place.run(&["set", "disk"]);
    assert!(now.out.contains("off"), "{now:?}");
    assert!(now.out.contains("1048576"), "{now:?}");
    let stats = place.run(&["stats", "disk"]);
    assert!(stats.out.contains("io "), "{stats:?}");
    let wrong = place.run(&["set", "disk", "disk0.coalesce=5/4"]);
    assert_ne!(wrong.code, Some(0), "{wrong:?}");
}

#[test]
fn a_umask_that_lets_others_write_hides_no_machine() {
    let (place, disk) = with_disk();
    let socket = place.path().join("s");
    let usual = place.tare(&[
        "blk",
        "--socket",
        socket.to_str().unwrap(),
        "--disk",
        &disk,
        "--name",
        "disk",
    ]);
    let set = usual.get_envs();
    let mut child = Command::new("sh")
        .args(["-c", "umask 0; exec \"$0\" \"$@\""])
        .arg(usual.get_program())
        .args(usual.get_args())
        .envs(set.filter_map(|(name, value)| Some((name, value?))))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually("it is listed", || place.run(&["ps"]).out.contains("disk "));
    place.run(&["logs", "disk"]).expect(52, "has no console");
    place.run(&["stop", "disk"]).expect(0, "");
    child.wait().unwrap();
}

#[test]
fn what_a_disk_does_not_have_is_refused_and_nothing_is_changed() {
    let (place, disk) = with_disk();
    let daemon = Daemon::start(&place, &disk);
    let before = place.run(&["set", "disk", "--json"]);
    for args in [
        &["set", "disk", "halt=never"] as &[&str],
        &["set", "disk", "disk0.coalesce=4/5", "halt=never"],
    ] {
        place.run(args).expect(2, "halt: unknown setting");
        assert_eq!(place.run(&["set", "disk", "--json"]).out, before.out);
    }
    place.run(&["stats", "disk"]).expect(0, "no requests yet");
    place.run(&["logs", "disk"]).expect(52, "has no console");
    drop(daemon);
}

#[test]
fn a_limit_holds_requests_back_until_it_is_lifted() {
    let (place, disk) = with_disk();
    let daemon = Daemon::start(&place, &format!("{disk},bytes_per_s=1"));
    let front = started(&place);
    front.offer_read(0, 1);
    front.notify();
    assert_eq!(front.answer(1), 0);
    // The first one's bytes are 512 seconds' worth.
    front.offer_read(1, 1);
    front.notify();
    daemon.until("it waits", |stats| {
        stats.devices[0].counters.get("limited") >= Some(&1)
    });
    assert_eq!(front.used(), 1);
    place
        .run(&["set", "disk", "disk0.bytes_per_s=0"])
        .expect(0, "");
    assert_eq!(front.answer(2), 0);
}
