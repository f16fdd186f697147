//! Whole runs in QEMU's translator, with guests of a few bytes.
#![allow(clippy::unwrap_used)]

mod support;

use std::process::Stdio;

use support::guest::{self, Then};
use support::{Place, end, eventually, installed, output};

/// `true` if QEMU is there; says so if not.
fn qemu() -> bool {
    let there = installed("qemu-system-x86_64");
    if !there {
        eprintln!("SKIP: QEMU is not installed");
    }
    there
}

fn run(then: Then) -> support::Ended {
    let place = Place::new();
    let image = place.file("tiny", &guest::image("hello from ring 0", then));
    let ended = place.run(&["run", &image, "--net", "none", "--engine", "qemu"]);
    assert!(place.run_directories().is_empty(), "{ended:#?}");
    ended
}

#[test]
fn the_guests_end_is_the_exit_code() {
    if !qemu() {
        return;
    }
    run(Then::Exit(0x10)).expect(0, "hello from ring 0");
    run(Then::Exit(0x20)).expect(70, "the guest panicked");
    run(Then::Exit(0x21)).expect(71, "processor exception");
}

#[test]
fn halt_polling_is_refused_where_it_cannot_be_set() {
    if !qemu() {
        return;
    }
    let place = Place::new();
    let image = place.file("tiny", &guest::image("hello", Then::Exit(0x10)));
    let words = ["run", &image, "--net", "none", "--engine", "qemu"];
    let ended = place.run(&[&words[..], &["--halt", "never"]].concat());
    ended.expect(2, "Tare's own monitor only");
}

#[test]
fn a_machine_in_the_background_is_listed_read_and_stopped() {
    if !qemu() {
        return;
    }
    let place = Place::new();
    let image = place.file("tiny", &guest::image("hello from ring 0", Then::Halt));
    let words = ["run", &image, "-d", "--net", "none", "--engine", "qemu"];
    let started = place.run(&words);
    assert_eq!(
        (started.code, started.out.as_str()),
        (Some(0), "tiny-1\n"),
        "{started:#?}"
    );
    place.run(&["ps"]).expect(0, "tiny-1");
    place
        .run(&["ps", "--json"])
        .expect(0, "\"engine\": \"qemu\"");
    eventually("the guest's line is in the log", || {
        place
            .run(&["logs", "tiny-1"])
            .out
            .contains("hello from ring 0")
    });
    place.run(&["stats", "tiny-1"]).expect(52, "runs in QEMU");
    let following = place.tare(&["logs", "-f", "tiny-1"]).spawn().unwrap();
    let stopped = place.run(&["stop", "tiny-1"]);
    assert_eq!(
        (stopped.code, stopped.err.as_str()),
        (Some(0), ""),
        "asked, not killed"
    );
    end(following).expect(0, "hello from ring 0");
    assert!(place.run_directories().is_empty());
}

/// The same image, root and forward as under Tare's monitor.
#[test]
fn the_appliance_serves_a_directory() {
    let beside = std::path::Path::new(env!("CARGO_BIN_EXE_tare"))
        .parent()
        .unwrap();
    let image = ["images/http", "../x86_64-unknown-none/guest/http"]
        .map(|place| beside.join(place))
        .into_iter()
        .find(|path| path.is_file());
    let Some(image) = image else {
        return eprintln!("SKIP: the http image is not built (cargo xtask guests)");
    };
    if !qemu() || !installed("passt") {
        return eprintln!("SKIP: QEMU or passt is not installed");
    }
    let place = Place::new();
    let site = place.path().join("site");
    std::fs::create_dir(&site).unwrap();
    std::fs::write(site.join("index.html"), "<p>weighed").unwrap();
    let port = support::free_port();
    let publish = format!("{port}:80");
    let mut words = vec!["run", image.to_str().unwrap(), "-d", "--name", "web"];
    words.extend([
        "--engine",
        "qemu",
        "-p",
        &publish,
        "--root",
        site.to_str().unwrap(),
    ]);
    place.run(&words).expect(0, "web");
    eventually("the appliance answers", || {
        support::get(port, "/index.html").is_ok_and(|answer| answer.ends_with("<p>weighed"))
    });
    place.run(&["stop", "web"]).expect(0, "");
}

#[test]
fn a_name_stays_taken_while_its_machine_runs() {
    if !qemu() {
        return;
    }
    let place = Place::new();
    let image = place.file("tiny", &guest::image("up", Then::Halt));
    let words = [
        "run", &image, "-d", "--name", "web", "--net", "none", "--engine", "qemu",
    ];
    place.run(&words).expect(0, "web");
    place
        .run(&words)
        .expect(50, "a machine named \"web\" is running");
    place.run(&["stop", "web"]).expect(0, "");
    place.run(&words).expect(0, "web");
    place.run(&["stop", "web"]).expect(0, "");
}

#[test]
fn signals_end_a_run_with_their_code() {
    if !qemu() {
        return;
    }
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let place = Place::new();
        let image = place.file("tiny", &guest::image("up", Then::Halt));
        let words = [
            "run", &image, "--name", "web", "--net", "none", "--engine", "qemu",
        ];
        let child = place.tare(&words).stdout(Stdio::piped()).spawn().unwrap();
        let log = place.run_root().join("web/console.log");
        eventually("the guest has started", || {
            std::fs::read_to_string(&log).is_ok_and(|log| log.contains("up"))
        });
        output("kill", &[signal, &child.id().to_string()]);
        assert_eq!(end(child).code, Some(code));
        assert!(place.run_directories().is_empty());
    }
}

#[test]
fn killing_tare_leaves_no_qemu() {
    if !qemu() {
        return;
    }
    let place = Place::new();
    let image = place.file("tiny", &guest::image("up", Then::Halt));
    let words = [
        "run", &image, "--name", "web", "--net", "none", "--engine", "qemu",
    ];
    let mut child = place.tare(&words).spawn().unwrap();
    let log = place.run_root().join("web/console.log");
    eventually("the guest has started", || {
        std::fs::read_to_string(&log).is_ok_and(|log| log.contains("up"))
    });
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("QEMU lets go of the lock", || {
        place.run(&["ps", "--json"]).out == "[]\n"
    });
    assert!(place.run_directories().is_empty());
}
