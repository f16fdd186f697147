//! Programs that a signal ends: by its default action, and where its handler cannot run. Signals of the
//! host, which the program gets.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tare_host::signals::is_ignored;
use tare_rootfs::oci::testing::{Entry, docker_archive, layer};

use crate::support::compile::c;
use crate::support::needs::{qemu, skip};
use crate::support::process::{self, signal};
use crate::support::{TestDir, end, eventually, installed};
use crate::{can_run, run};

#[test]
fn a_program_that_a_signal_ends_gives_128_and_its_number() {
    if !can_run() {
        return;
    }
    let place = TestDir::new();
    let Some(program) = c(&place, "limits.c", &["-static"]) else {
        return;
    };
    for (args, signal) in [
        (&["raise", "6"][..], 6),
        (&["raise", "9"], 9),
        (&["raise", "34"], 34),
        (&["null"], 11),
        (&["divide"], 8),
        (&["illegal"], 4),
    ] {
        let ended = run(&place, &program, &[&["--"], args].concat());
        ended.expect(128 + signal, &format!("was ended by signal {signal}"));
    }
}

#[test]
fn a_signal_stack_without_room_ends_the_program() {
    if !can_run() {
        return;
    }
    let place = TestDir::new();
    if let Some(program) = c(&place, "nested.c", &["-static"]) {
        let ended = run(&place, &program, &[]);
        ended.expect(139, "");
        assert_eq!(ended.out, "", "{ended:?}");
    }
}

/// `told.c` as the machine `told`.
struct Told {
    place: TestDir,
    child: Child,
}

/// What the program prints of a signal.
fn said(signal: i32) -> String {
    format!("told {signal}.")
}

impl Told {
    /// The program that ends by the signal with the number `last`, in the foreground.
    fn start(options: &[&str], last: Signal) -> Option<Self> {
        if !can_run() {
            return None;
        }
        let place = TestDir::new();
        let program = c(&place, "told.c", &["-static"])?;
        let args = [
            &["run", &program, "--name", "told", "--net", "none"],
            options,
        ]
        .concat();
        let last = last.as_raw().to_string();
        let mut tare = place.tare(&[&args[..], &["--", &last]].concat());
        // A group that a test may signal.
        std::os::unix::process::CommandExt::process_group(&mut tare, 0);
        let child = tare.spawn().unwrap();
        let told = Self { place, child };
        told.prints("ready");
        Some(told)
    }

    fn log(&self) -> String {
        self.place.run(&["logs", "told"]).out
    }

    fn prints(&self, text: &str) {
        eventually("the program prints it", || self.log().contains(text));
    }

    /// The program has this signal.
    fn has(&self, signal: Signal) {
        self.prints(&said(signal.as_raw()));
    }

    fn times(&self, signal: Signal) -> usize {
        self.log().matches(&said(signal.as_raw())).count()
    }

    fn ends(self, code: i32, text: &str) {
        end(self.child).expect(code, text);
        assert!(self.place.run_directories().is_empty());
    }
}

#[test]
fn signals_to_tare_run_reach_the_program() {
    let Some(told) = Told::start(&[], Signal::TERM) else {
        return;
    };
    for sent in [
        Signal::HUP,
        Signal::QUIT,
        Signal::USR1,
        Signal::USR2,
        Signal::INT,
    ] {
        // A hangup that is ignored (`nohup`) stays so.
        if !is_ignored(sent.as_raw()) {
            signal(&told.child, sent);
            told.has(sent);
        }
    }
    signal(&told.child, Signal::TERM);
    told.ends(7, "told 15.");
}

/// As `timeout` and service managers do: the machine's process and the one outside it have the signal.
#[test]
fn a_signal_to_the_whole_job_reaches_the_program_once() {
    let Some(told) = Told::start(&[], Signal::QUIT) else {
        return;
    };
    let group = Pid::from_child(&told.child);
    kill_process_group(group, Signal::TERM).unwrap();
    told.has(Signal::TERM);
    told.place
        .run(&["kill", "--signal", "USR1", "told"])
        .expect(0, "");
    told.has(Signal::USR1);
    assert_eq!(told.times(Signal::TERM), 1, "{}", told.log());
    signal(&told.child, Signal::QUIT);
    told.ends(7, "");
}

#[test]
fn a_second_request_to_end_ends_the_machine_of_a_program_that_goes_on() {
    for (sent, code, text) in [
        (Signal::INT, 130, "interrupted"),
        (Signal::TERM, 143, "terminated"),
    ] {
        let Some(told) = Told::start(&[], Signal::HUP) else {
            return;
        };
        signal(&told.child, sent);
        told.has(sent);
        // Within a second it would be the same request.
        thread::sleep(Duration::from_secs(1));
        signal(&told.child, sent);
        told.ends(code, text);
    }
}

#[test]
fn a_program_in_qemu_gets_signals_and_is_asked_to_end() {
    if !qemu() {
        return;
    }
    let Some(told) = Told::start(&["--engine", "qemu"], Signal::QUIT) else {
        return;
    };
    for sent in [Signal::USR1, Signal::INT] {
        signal(&told.child, sent);
        told.has(sent);
    }
    told.place
        .run(&["kill", "-s", "USR2", "told"])
        .expect(0, "");
    told.has(Signal::USR2);
    // Each process of the job has it, QEMU too.
    kill_process_group(Pid::from_child(&told.child), Signal::TERM).unwrap();
    told.has(Signal::TERM);
    signal(&told.child, Signal::QUIT);
    told.ends(7, "");
    let options = ["--engine", "qemu", "--stop-signal", "34"];
    let Some(told) = Told::start(&options, Signal::from_named_raw(10).unwrap()) else {
        return;
    };
    let stopped = told
        .place
        .tare(&["stop", "--time", "60", "told"])
        .spawn()
        .unwrap();
    told.prints(&said(34));
    signal(&told.child, Signal::USR1);
    end(stopped).expect(0, "");
    told.ends(7, "");
}

#[test]
fn tare_kill_sends_a_signal_or_ends_the_machine() {
    let Some(told) = Told::start(&["--stop-signal", "SIGUSR2"], Signal::USR2) else {
        return;
    };
    for (word, number) in [("HUP", 1), ("sigwinch", 28), ("15", 15), ("RTMIN+1", 35)] {
        told.place.run(&["kill", "-s", word, "told"]).expect(0, "");
        told.prints(&said(number));
    }
    for word in ["0", "HUB", "RTMIN+99"] {
        let refused = told.place.run(&["kill", "-s", word, "told"]);
        refused.expect(2, "is not a signal");
    }
    told.place.run(&["kill", "none"]).expect(51, "none");
    told.place.run(&["stop", "told"]).expect(0, "");
    told.ends(7, "told 12.");

    let Some(told) = Told::start(&[], Signal::HUP) else {
        return;
    };
    told.place.run(&["kill", "told"]).expect(0, "");
    let code = end(told.child).code;
    assert!(!matches!(code, Some(0 | 7)), "{code:?}");
    assert!(told.place.run_directories().is_empty());
}

/// An image may name the signal, or one that Linux does not have.
#[test]
fn a_container_images_stop_signal_ends_its_program() {
    if !can_run() {
        return;
    }
    let place = TestDir::new();
    let Some(program) = c(&place, "told.c", &["-static"]) else {
        return;
    };
    let layers = [layer(&[Entry::File(
        "told",
        0o755,
        &fs::read(program).unwrap(),
    )])];
    let image = |signal: &str| {
        let config = format!(
            r#"{{"architecture":"amd64","os":"linux","config":{{"Entrypoint":["/told","3"],"StopSignal":"{signal}"}}}}"#
        );
        place.file("image.tar", &docker_archive(&config, &layers))
    };
    let image_of = image("SIGQUIT");
    let args = [
        "run", "--root", &image_of, "--net", "none", "--name", "told",
    ];
    let child = place.tare(&args).spawn().unwrap();
    eventually("it runs", || {
        place.run(&["logs", "told"]).out.contains("ready")
    });
    place.run(&["stop", "told"]).expect(0, "");
    end(child).expect(7, "told 3.");

    let refused = image("SIGHUB");
    let ended = place.run(&["run", "--root", &refused, "--net", "none"]);
    ended.expect(42, "\"SIGHUB\" is not a signal");
}

/// The terminal sends each process of the job the signal of a key.
#[test]
fn the_keys_of_a_terminal_are_signals_to_the_program() {
    if !can_run() {
        return;
    }
    if !installed("script") {
        skip("script is not installed");
        return;
    }
    let place = TestDir::new();
    let Some(program) = c(&place, "told.c", &["-static"]) else {
        return;
    };
    let line = format!(
        "exec {} run {program} --name told --net none -- 3",
        env!("CARGO_BIN_EXE_tare")
    );
    let tare = place.tare(&["--quiet", "--return", "--command", &line, "/dev/null"]);
    let mut script = process::of(Path::new("script"), &tare);
    script.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut script = script.stderr(Stdio::piped()).spawn().unwrap();
    let log = || place.run(&["logs", "told"]).out;
    eventually("it runs", || log().contains("ready"));
    let mut keys = script.stdin.take().unwrap();
    keys.write_all(b"\x03").unwrap();
    eventually("it has SIGINT", || log().contains("told 2."));
    keys.write_all(b"\x1c").unwrap();
    let ended = end(script);
    ended.expect(7, "told 3.");
    assert_eq!(ended.out.matches("told 2.").count(), 1, "{ended:?}");
}
