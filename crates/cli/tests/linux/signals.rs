//! Signals of the host for the command of a Linux guest in QEMU.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use super::support::compile::c;
use super::support::needs::skip;
use super::support::process::{self, signal};
use super::support::{TestDir, end, eventually, installed};
use super::{debian, root_in, with_debian};

/// `told.c` in the guest `told`, which prints each signal and ends by the last one with 7.
struct Told {
    place: TestDir,
    root: String,
}

impl Told {
    fn new() -> Option<Self> {
        if !debian() {
            return None;
        }
        let place = TestDir::new();
        let program = c(&place, "told.c", &["-static"])?;
        let root = place.path().join("root");
        fs::create_dir_all(&root).unwrap();
        fs::copy(program, root.join("told")).unwrap();
        let root = root.to_str().unwrap().to_owned();
        Some(Self { place, root })
    }

    /// The machine's arguments; it ends by `last`.
    fn args<'a>(&'a self, options: &[&'a str], last: &'a str) -> Vec<&'a str> {
        let named = [&["--name", "told", "--net", "none"], options].concat();
        with_debian(&self.root, &named, &["/told", last])
    }

    fn starts(&self, options: &[&str], last: &str) -> Child {
        let mut tare = self.place.tare(&self.args(options, last));
        // A group that a test may signal.
        tare.process_group(0).stdin(Stdio::null());
        let child = tare.spawn().unwrap();
        self.prints("ready");
        child
    }

    fn log(&self) -> String {
        self.place.run(&["logs", "told"]).out
    }

    fn prints(&self, text: &str) {
        eventually("the command prints it", || self.log().contains(text));
    }

    /// The command has this signal.
    fn has(&self, signal: i32) {
        self.prints(&format!("told {signal}."));
    }

    fn times(&self, signal: i32) -> usize {
        self.log().matches(&format!("told {signal}.")).count()
    }

    fn leaves_nothing(&self) {
        assert!(self.place.run_directories().is_empty());
    }
}

#[test]
fn signals_reach_the_command_of_a_guest_and_a_second_request_ends_the_machine() {
    let Some(told) = Told::new() else {
        return;
    };
    let child = told.starts(&[], "3");
    signal(&child, Signal::USR1);
    told.has(10);
    told.place
        .run(&["kill", "-s", "USR2", "told"])
        .expect(0, "");
    told.has(12);
    let refused = told.place.run(&["kill", "-s", "WINCH", "told"]);
    refused.expect(2, "not SIGWINCH");
    // As `timeout` does: each process of the job has it, QEMU too.
    kill_process_group(Pid::from_child(&child), Signal::TERM).unwrap();
    told.has(15);
    signal(&child, Signal::QUIT);
    // The command's own status.
    end(child).expect(7, "told 3.");
    told.leaves_nothing();

    let child = told.starts(&[], "1");
    signal(&child, Signal::INT);
    told.has(2);
    // Within a second it would be the same request.
    thread::sleep(Duration::from_secs(1));
    signal(&child, Signal::INT);
    end(child).expect(130, "told 2.");
    told.leaves_nothing();
}

#[test]
fn a_stop_waits_for_the_command_and_is_its_own_signal() {
    let Some(told) = Told::new() else {
        return;
    };
    for (restart, options) in [
        (false, &["-d", "--stop-signal", "RTMIN+3"][..]),
        (
            true,
            &["-d", "--stop-signal", "RTMIN+3", "--restart", "on-failure"],
        ),
    ] {
        told.place.run(&told.args(options, "37")).expect(0, "told");
        told.prints("ready");
        let record = told.place.run(&["ps", "--json"]).out;
        assert_eq!(record.contains("\"keeper\": null"), !restart, "{record}");
        told.place
            .run(&["stop", "--time", "60", "told"])
            .expect(0, "");
        told.leaves_nothing();
    }
    // A command that does not end by it: asked once, and killed when the time is over.
    told.place.run(&told.args(&["-d"], "1")).expect(0, "told");
    told.prints("ready");
    let stopping = told
        .place
        .tare(&["stop", "--time", "4", "told"])
        .spawn()
        .unwrap();
    told.has(15);
    thread::sleep(Duration::from_millis(2500));
    assert_eq!(told.times(15), 1, "{}", told.log());
    end(stopping).expect(0, "told did not end within 4 s: killed");
    told.leaves_nothing();
}

#[test]
fn before_the_command_there_is_nothing_to_wait_for() {
    let Some(told) = Told::new() else {
        return;
    };
    // QEMU does not run the guest for its first second at least.
    // On a busy host the command may run by now: then it ends by its signal.
    told.place.run(&told.args(&["-d"], "15")).expect(0, "told");
    let stopped = told.place.run(&["stop", "--time", "60", "told"]);
    stopped.expect(0, "");
    assert!(!stopped.err.contains("killed"), "{stopped:#?}");
    told.leaves_nothing();
}

/// Ctrl-C in a shell of the guest, which has the terminal as its console.
#[test]
fn keys_of_a_terminal_are_for_what_is_in_the_foreground_of_the_guests() {
    if !debian() || !(installed("script") || skip("script is not installed")) {
        return;
    }
    let place = TestDir::new();
    let root = root_in(&place);
    let script = "trap 'echo the shell too' INT; echo ready
        busybox sleep 1000; echo after-$?; busybox sleep 1001; echo again-$?; exit 9";
    fs::write(root.join("srv/keys.sh"), script).unwrap();
    let options = ["--name", "told", "--net", "none"];
    let command = ["/bin/busybox", "sh", "/srv/keys.sh"];
    let line = format!(
        "cd {}; exec {} {}",
        place.path().display(),
        env!("CARGO_BIN_EXE_tare"),
        with_debian(root.to_str().unwrap(), &options, &command).join(" "),
    );
    let tare = place.tare(&["--quiet", "--return", "--command", &line, "/dev/null"]);
    let mut terminal = process::of(Path::new("script"), &tare);
    terminal.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut terminal = terminal.stderr(Stdio::piped()).spawn().unwrap();
    let mut keys = terminal.stdin.take().unwrap();
    let log = || place.run(&["logs", "told"]).out;
    let prints = |text: &str| eventually("the guest prints it", || log().contains(text));
    let mut presses = |key: &[u8]| {
        use std::io::Write as _;
        keys.write_all(key).unwrap();
        keys.flush().unwrap();
    };
    prints("ready");
    presses(b"\x03");
    // A signal to the shell alone would wait for the end of its child.
    prints("after-130");
    thread::sleep(Duration::from_secs(1));
    presses(b"\x03");
    let ended = end(terminal);
    ended.expect(9, "again-130");
    assert_eq!(ended.out.matches("the shell too").count(), 2, "{ended:#?}");
    assert!(place.run_directories().is_empty());
}
