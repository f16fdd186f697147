//! Several disks in one daemon, and a daemon below systemd.

use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::process::Command;

use rustix::process::Signal;
use tare_vhost::front::Front;

use crate::daemon::Daemon;
use crate::support::needs::skip;
use crate::support::{IO_TIMEOUT, TestDir, eventually, installed, is_listening};

const BYTES: usize = 1 << 20;

/// Reads sector 1 of the disk behind `socket`.
fn read(place: &TestDir, socket: &str) -> u8 {
    let mut front = Front::connect(&place.path().join(socket));
    front.share();
    front.start(0, 0).unwrap();
    front.offer_read(0, 1);
    front.notify();
    front.answer(1)
}

#[test]
fn one_daemon_serves_several_disks_each_on_a_thread_of_its_own() {
    let place = TestDir::new();
    let args: Vec<String> = ["a", "b", "c"]
        .iter()
        .zip(1..)
        .flat_map(|(name, byte)| {
            let disk = place.file(&format!("{name}.img"), &[byte; BYTES]);
            let socket = place.path().join(name).to_str().unwrap().to_owned();
            ["--socket".to_owned(), socket, "--disk".to_owned(), disk]
        })
        .collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut daemon = Daemon::start_with(&place, &args);
    // All front-ends at once, each on its disk.
    let place_ref = &place;
    std::thread::scope(|scope| {
        for (socket, byte) in ["a", "b", "c"].into_iter().zip(1..) {
            scope.spawn(move || assert_eq!(read(place_ref, socket), byte));
        }
    });
    let stats = daemon.stats().unwrap();
    assert_eq!(stats.devices.len(), 3);
    assert!(stats.devices.iter().all(|it| it.counters["reads"] == 1));
    let threads: Vec<_> = stats.threads.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(threads, ["main", "io0", "io1", "io2"]);
    let set = ["set", "disk", "disk2.iops=77", "disk0.coalesce=off"];
    place.run(&set).expect(0, "77");
    let none = ["set", "disk", "disk3.iops=1"];
    place.run(&none).expect(2, "disk3");
    assert_eq!(daemon.signal(Signal::TERM).code, Some(143));
    for socket in ["a", "b", "c"] {
        assert!(!place.path().join(socket).exists());
    }
}

#[test]
fn disks_and_sockets_that_do_not_go_together_are_refused() {
    let place = TestDir::new();
    let disk = place.file("d.img", &[0; BYTES]);
    let other = place.file("e.img", &[0; BYTES]);
    let socket = place.path().join("s");
    let socket = socket.to_str().unwrap();
    let refused = |args: &[&str], why: &str| {
        place.run(args).expect(2, why);
        assert!(place.run_directories().is_empty());
    };
    refused(&["blk", "--disk", &disk], "no socket");
    let two = ["blk", "--disk", &disk, "--disk", &other, "--socket", socket];
    refused(&two, "2 disks and 1 sockets");
    let twice = ["blk", "--disk", &disk, "--disk", &disk, "--socket", socket];
    place.run(&twice).expect(36, "in use");
}

#[test]
fn disks_that_cannot_have_their_descriptors_are_refused() {
    let place = TestDir::new();
    let disk = place.file("d.img", &[0; BYTES]);
    let socket = place.path().join("s");
    let tare = place.tare(&["blk", "--disk", &disk, "--socket", socket.to_str().unwrap()]);
    let refused = by_shell("ulimit -n 200; exec \"$@\"", &tare)
        .output()
        .unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("this process may have 200"), "{said}");
    assert!(!socket.exists() && place.run_directories().is_empty());
}

/// `script` with the command as its arguments.
fn by_shell(script: &str, command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell
        .args(["-c", script, "sh"])
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell
}

/// As systemd starts it: a listening socket as descriptor 3, and a socket that hears of
/// its state.
#[test]
fn a_daemon_takes_a_socket_that_was_passed_and_says_when_it_is_ready() {
    let place = TestDir::new();
    let disk = place.file("d.img", &[9; BYTES]);
    let listener = UnixListener::bind(place.path().join("s")).unwrap();
    let heard = UnixDatagram::bind(place.path().join("notify")).unwrap();
    heard.set_read_timeout(Some(IO_TIMEOUT)).unwrap();
    // As a supervisor does: what its socket has no room for is lost.
    let (sender, said) = std::sync::mpsc::channel();
    let listening = std::thread::spawn(move || {
        loop {
            let mut text = [0; 256];
            let count = heard.recv(&mut text).unwrap();
            let text = String::from_utf8(text[..count].to_vec()).unwrap();
            let last = text == "STOPPING=1";
            sender.send(text).unwrap();
            if last {
                return;
            }
        }
    });
    let hear = || said.recv().unwrap();
    // A front-end that comes before the daemon waits for it.
    let early = UnixStream::connect(place.path().join("s")).unwrap();
    let tare = place.tare(&["blk", "--disk", &disk, "--name", "disk"]);
    let script = "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$@\"";
    let mut shell = by_shell(script, &tare);
    shell.env("NOTIFY_SOCKET", place.path().join("notify"));
    shell.env("WATCHDOG_USEC", "1000000");
    shell
        .stdin(OwnedFd::from(listener))
        .stdout(std::process::Stdio::null());
    shell.stderr(std::process::Stdio::piped());
    let mut daemon = Daemon::of(&place, shell.spawn().unwrap());
    assert!(hear().starts_with("READY=1\n"));
    drop(early);
    // Again and again, while all threads take their turns.
    for _ in 0..3 {
        assert_eq!(hear(), "WATCHDOG=1");
    }
    assert_eq!(read(&place, "s"), 9);
    place.run(&["stop", "disk"]).expect(0, "");
    while hear() != "STOPPING=1" {}
    listening.join().unwrap();
    assert_eq!(daemon.ended().code, Some(0));
    assert!(place.path().join("s").exists(), "it is systemd's");
    assert!(place.run_directories().is_empty());
}

/// systemd's own code makes the socket and passes it, when a front-end comes.
#[test]
fn systemds_socket_activation_starts_a_daemon_when_a_front_end_comes() {
    if !installed("systemd-socket-activate") {
        skip("systemd-socket-activate is not installed");
        return;
    }
    let place = TestDir::new();
    let disk = place.file("d.img", &[9; BYTES]);
    let socket = place.path().join("s");
    let tare = place.tare(&["blk", "--disk", &disk, "--name", "disk"]);
    let script = "exec systemd-socket-activate --listen=\"$SOCKET\" -E TARE_RUN_ROOT \"$@\"";
    let mut shell = by_shell(script, &tare);
    shell.env("SOCKET", &socket);
    shell.stderr(std::process::Stdio::piped());
    let mut daemon = Daemon::of(&place, shell.spawn().unwrap());
    eventually("it listens", || is_listening(&socket));
    assert!(place.run_directories().is_empty(), "no run directory");
    assert_eq!(read(&place, "s"), 9);
    place.run(&["stop", "disk"]).expect(0, "");
    assert_eq!(daemon.ended().code, Some(0));
    assert!(place.run_directories().is_empty());
}
