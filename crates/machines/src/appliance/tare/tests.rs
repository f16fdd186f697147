//! Against scripts that stand in for `tare`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use tare_control::exit::ExitCode;
use tare_qemu::Accelerator;
use tare_vmtest::{image, installed, lacks, or_skip};

use super::*;
use crate::appliance::machine::GRACE;
use crate::linux::tests::{is_jailed, tare};
use crate::observe::Helper;
use tare_load::interrupt::{Interrupt, Interrupted, SLICE};

/// An executable shell script in its own directory.
fn script(text: &str) -> (tempfile::TempDir, TareRun) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tare");
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    (directory, TareRun::new(path))
}

fn spec() -> Spec {
    Spec {
        label: "arm".into(),
        image: "http".into(),
        root: Some("/root-directory".into()),
        port: 80,
        cmdline: String::new(),
        engine: "auto",
        ring: "auto",
        idle: "poller",
        cpus: 2,
        memory_mib: 512,
    }
}

fn start(executor: &mut TareRun) -> Box<dyn Appliance> {
    // Another test's fork may hold the script open for writing for a moment.
    for _ in 0..50 {
        match executor.start(ServerKind::Image(&spec())) {
            Ok(machine) => return machine,
            Err(ApplianceError::Execute { .. }) => std::thread::sleep(SLICE),
            Err(error) => panic!("{error:?}"),
        }
    }
    panic!("the script cannot be executed");
}

fn wait(machine: &mut dyn Appliance) -> Result<Duration, ApplianceError> {
    machine.wait_serving(Duration::from_secs(10), &Interrupt::default())
}

#[test]
fn the_words_are_those_of_tare_run() {
    let args = arguments(&spec(), "weigh-1", 12345).join(" ");
    assert_eq!(
        args,
        "run http --name weigh-1 --root /root-directory --engine auto --ring auto --idle poller \
         --cpus 2 --memory 512M --publish 127.0.0.1:12345:80"
    );
}

#[test]
fn a_machine_that_ends_says_why_with_its_own_exit_code() {
    let (_directory, mut executor) = script("echo 'tare: no image named http' >&2; exit 10");
    let error = wait(&mut *start(&mut executor)).unwrap_err();
    assert!(error.to_string().contains("no image named http"), "{error}");
    assert_eq!(error.exit_code(), ExitCode::ImageUnreadable);
}

#[test]
fn a_machine_and_its_helper_end_with_their_guard() {
    let (_directory, mut executor) = script("sleep 60 & echo serving; wait");
    let mut machine = start(&mut executor);
    wait(&mut *machine).unwrap();
    // The script said "serving" after it had started the helper.
    let directory = _directory.path().to_string_lossy().into_owned();
    let alive = || {
        let all = fs::read_dir("/proc").unwrap().flatten();
        let lines = all.filter_map(|p| fs::read(p.path().join("cmdline")).ok());
        let text: Vec<String> = lines
            .map(|l| String::from_utf8_lossy(&l).into_owned())
            .collect();
        text.iter().any(|line| line.contains(&directory))
    };
    assert!(alive());
    drop(machine);
    assert!(!alive());
}

#[test]
fn a_machine_that_ignores_sigterm_is_killed_and_a_wait_can_be_interrupted() {
    let (_directory, mut executor) =
        script("trap '' TERM; echo ready; while :; do sleep 0.1; done");
    let mut machine = start(&mut executor);
    let begin = Instant::now();
    let unready = machine
        .wait_serving(SLICE * 4, &Interrupt::default())
        .unwrap_err();
    assert!(
        matches!(unready, ApplianceError::NotServing(_)),
        "{unready:?}"
    );
    assert!(begin.elapsed() < GRACE);
    let interrupt = Interrupt::default();
    interrupt.trip();
    let error = machine.wait_serving(GRACE, &interrupt).unwrap_err();
    assert!(matches!(
        error,
        ApplianceError::Interrupted(Interrupted::Interrupt)
    ));
    assert_eq!(error.exit_code(), ExitCode::Interrupted);
    let begin = Instant::now();
    drop(machine);
    assert!(begin.elapsed() < GRACE * 2);
}

#[test]
fn a_port_that_was_taken_meanwhile_leads_to_another_try() {
    let (directory, mut executor) = script(
        "if mkdir \"$(dirname \"$0\")/once\" 2>/dev/null; then exit 30; fi; echo serving; sleep 60",
    );
    let mut machine = start(&mut executor);
    let first = machine.address();
    wait(&mut *machine).unwrap();
    assert!(directory.path().join("once").exists());
    assert_ne!(machine.address(), first);
}

fn sleeping(kind: Kind) -> Machine {
    let mut command = Command::new("sleep");
    command.arg("60");
    Machine::start(command, SocketAddr::from((Ipv4Addr::LOCALHOST, 9)), kind).unwrap()
}

#[test]
fn a_socket_that_does_not_speak_http_means_no_statistics() {
    let directory = tempfile::tempdir().unwrap();
    let run_dir = RunDir::at(directory.path());
    let listener = std::os::unix::net::UnixListener::bind(run_dir.control_socket()).unwrap();
    std::thread::spawn(move || {
        use std::io::Write as _;
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"{\"QMP\": {}}\r\n").unwrap();
        std::thread::sleep(GRACE);
    });
    let mut machine = sleeping(Kind::tare(run_dir));
    let mut stats = || Appliance::stats(&mut machine).unwrap();
    assert!(stats().is_none());
    assert!(stats().is_none(), "it is not asked again");
}

#[test]
fn a_helper_that_has_ended_is_looked_for_again() {
    let directory = tempfile::tempdir().unwrap();
    let mut ended = Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let helpers = |pid| Some(vec![Helper::new(pid)]);
    let mut kind = Kind::tare(RunDir::at(directory.path()));
    if let Kind::Tare(tare) = &mut kind {
        tare.helpers = helpers(ended.id());
    }
    let mut machine = sleeping(kind);
    assert_eq!(machine.helper_pids(), [0; 0]);
    let mut lives = Command::new("sleep").arg("60").spawn().unwrap();
    if let Kind::Tare(tare) = &mut machine.kind {
        tare.helpers = helpers(lives.id());
    }
    assert_eq!(machine.helper_pids(), [lives.id()]);
    lives.kill().unwrap();
    lives.wait().unwrap();
}

/// The guest reads nothing of its disk: that QEMU runs it says that the two have agreed.
#[test]
fn the_qemu_of_a_served_disk_is_in_the_jail_of_a_machine() {
    let Some(kernel) = or_skip(image("hostile")) else {
        return;
    };
    let Some(tare) = tare() else { return };
    if !installed("qemu-system-x86_64") {
        return lacks("QEMU is not installed");
    }
    let place = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = place.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let spec = ServedGuest {
        label: "jail".to_owned(),
        disk: file("disk", &[0; 1 << 20]).to_str().unwrap().to_owned(),
        kernel,
        initramfs: file("initramfs", b"none"),
        cmdline: "hold".to_owned(),
        accelerator: Accelerator::Tcg,
        cpus: 2,
        memory_mib: 64,
    };
    let socket = tempfile::tempdir().unwrap();
    let arguments = |name: &str| served::arguments(&spec, name, &socket);
    let disk = execute(&tare, "jail", 0, arguments);
    let mut served = Served::start(&tare, &spec, disk.unwrap(), socket).unwrap();
    served.cpu().expect("it runs");
    is_jailed(served.pid());
    assert!(served.stats().unwrap().is_some(), "the disk's");
}
