//! Whole machines in Tare's own monitor: with guests of a few bytes, and with
//! the HTTP appliance where it is built.
//!
//! They need /dev/kvm and `tare-monitor` beside `tare` (`cargo build -p
//! tare-monitor`; `cargo xtask test` builds it first), and SKIP without; with
//! TARE_REQUIRE_KVM=1 a skip fails.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::Signal;
use support::guest::{self, Then};
use support::needs::{built, kvm, passt, skip};
use support::{
    CommandOutput, TestDir, end, eventually, free_port, get, get_within, installed, output,
    process, served, tiny,
};
use tare_hv::{Kvm, KvmKind, Probe};

/// The HTTP appliance, if it is built.
fn http() -> Option<PathBuf> {
    built("http")
}

fn run(image: &[u8]) -> CommandOutput {
    let place = TestDir::new();
    let image = place.file("tiny", image);
    let ended = place.run(&["run", &image, "--net", "none"]);
    assert!(place.run_directories().is_empty(), "{ended:#?}");
    ended
}

fn tiny_guest(then: Then) -> CommandOutput {
    run(&guest::image("hello from ring 0", then))
}

#[test]
fn the_guests_end_is_the_exit_code() {
    if !kvm() {
        return;
    }
    tiny_guest(Then::Exit(0x10)).expect(0, "hello from ring 0");
    tiny_guest(Then::Exit(0x310)).expect(1, "3");
    tiny_guest(Then::Exit(0x20)).expect(70, "panic");
    tiny_guest(Then::Exit(0x21)).expect(71, "exception");
    tiny_guest(Then::Reset).expect(72, "reset");
    tiny_guest(Then::PowerOff).expect(0, "hello from ring 0");
}

/// The guest never serves, so the weighing waits for it until it is killed.
#[test]
fn killing_a_weighing_leaves_no_machine() {
    if !passt() {
        return;
    }
    let place = TestDir::new();
    // Its monitor answers: `tare ps` lists a machine before that.
    kill_a_weighing(&place, "a machine of the weighing runs", || {
        let mut names = place.run_directories().into_iter();
        names.any(|name| place.run(&["stats", &name]).code == Some(0))
    });
}

/// The run directory exists before the monitor executes, which then finds its parent ended:
/// before, within and after its jail, as it happens.
#[test]
fn killing_a_weighing_whose_machine_starts_leaves_no_machine() {
    if !passt() {
        return;
    }
    let place = TestDir::new();
    for step in 0..12 {
        kill_a_weighing(&place, "a machine of the weighing starts", || {
            let starts = !place.run_directories().is_empty();
            if starts {
                sleep(step * Duration::from_millis(6));
            }
            starts
        });
    }
}

/// As the kernel sends it to the job of a terminal that closes, which then takes no output.
#[test]
fn a_weighing_whose_terminal_closes_writes_its_report() {
    if !passt() {
        return;
    }
    let place = TestDir::new();
    let image = place.file("tiny", &guest::image("up", Then::Halt));
    let out = place.path().join("weighed");
    let args = ["weigh", "http-bursts", "--quick", "--image", &image];
    let full = || fs::File::create("/dev/full").unwrap();
    let mut weighing = place.tare(&args);
    weighing.arg("--out").arg(&out);
    let mut weighing = process::ends_with_terminal(&weighing);
    let weighing = weighing.stdout(full()).stderr(full()).spawn().unwrap();
    eventually("a machine of the weighing starts", || {
        !place.run_directories().is_empty()
    });
    process::signal(&weighing, Signal::HUP);
    assert_eq!(end(weighing).code, Some(143));
    for file in ["summary.json", "report.html"] {
        assert!(out.join(file).is_file(), "{file}");
    }
    eventually("its run directory is removed", || {
        place.run_directories().is_empty()
    });
}

fn kill_a_weighing(place: &TestDir, what: &str, until: impl FnMut() -> bool) {
    let image = place.file("tiny", &guest::image("up", Then::Halt));
    let out = tempfile::tempdir().unwrap();
    let args = ["weigh", "http-bursts", "--quick", "--image", &image];
    let mut weighing = place.tare(&args);
    let mut weighing = weighing
        .arg("--out")
        .arg(out.path().join("weighed"))
        .spawn()
        .unwrap();
    eventually(what, until);
    weighing.kill().unwrap();
    weighing.wait().unwrap();
    eventually("the machine has ended", || {
        place.run(&["ps", "--json"]).out == "[]\n"
    });
    // The lock goes first, the directory after it.
    eventually("its run directory is removed", || {
        place.run_directories().is_empty()
    });
}

#[test]
fn how_a_halted_cpu_waits_is_the_machines_own_setting() {
    if !kvm() {
        return;
    }
    let place = TestDir::new();
    for (index, (halt, expected)) in [
        ("never", "never"),
        ("poll=200000", "poll=200000"),
        ("kernel", "kernel"),
        ("budget=2.50", "budget=2.5"),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("halt-{index}");
        let image = place.file("tiny", &guest::image("hello", Then::Halt));
        let args = ["run", &image, "-d", "--net", "none", "--halt", halt];
        place
            .run(&[&args[..], &["--name", &name]].concat())
            .expect(0, &name);
        let json = place.run_root().join(&name).join("machine.json");
        let config = fs::read_to_string(json).unwrap();
        let line = format!("\"halt\": \"{expected}\"");
        assert!(config.contains(&line), "{config}");
        place.run(&["stop", &name]).expect(0, "");
    }
}

#[test]
fn dedicated_vcpus_are_refused_where_cpus_or_kvm_are_not_to_be_had() {
    if !kvm() {
        return;
    }
    let place = TestDir::new();
    let image = place.file("tiny", &guest::image("hello", Then::PowerOff));
    let run = |cpus: &str| {
        let args = ["run", &image, "--net", "none", "--halt", "dedicated"];
        place.run(&[&args[..], &["--cpus", cpus]].concat())
    };
    // What this KVM says about it depends on the KVM, and on who else runs.
    match run("1") {
        ended if ended.code == Some(0) => {}
        ended if ended.code == Some(20) => ended.expect(20, "as many CPUs of this host alone"),
        ended => ended.expect(61, "--halt poll=200000"),
    }
    if std::thread::available_parallelism().unwrap().get() < 16 {
        run("16").expect(20, "as many CPUs of this host alone");
    }
}

#[test]
fn a_triple_fault_is_said_with_registers() {
    if kvm() {
        tiny_guest(Then::TripleFault).expect(73, "rip");
    }
}

#[test]
fn an_image_that_cannot_be_loaded_is_said_once() {
    if !kvm() {
        return;
    }
    for (image, code) in [
        (guest::truncated(), 12),
        (guest::too_large(), 14),
        (guest::below_one_mib(), 15),
    ] {
        let ended = run(&image);
        ended.expect(code, "image");
        assert_eq!(ended.err.lines().count(), 1, "{ended:#?}");
    }
}

#[test]
fn a_machine_that_does_not_start_in_the_background_says_why() {
    if !kvm() {
        return;
    }
    let place = TestDir::new();
    let image = place.file("bad", &guest::truncated());
    let ended = place.run(&["run", &image, "-d", "--net", "none"]);
    ended.expect(12, "truncated");
    assert_eq!(ended.out, "");
    assert!(place.run_directories().is_empty());
}

#[test]
fn a_panic_in_the_background_leaves_log_and_exit_code() {
    if kvm() {
        tiny::keeps_what_a_panic_left(&[], 100_000);
    }
}

#[test]
fn signals_end_a_run_with_their_code() {
    if !kvm() {
        return;
    }
    tiny::ends_by_signals(&["--net", "none"]);
}

#[test]
fn a_machine_outlives_its_terminal_under_nohup() {
    if !kvm() {
        return;
    }
    tiny::survives_a_hangup(&["--net", "none"]);
}

/// With `script` as the terminal: the key, not a signal to one process.
#[test]
fn ctrl_c_on_a_terminal_ends_the_run_and_leaves_no_thread() {
    if !kvm() {
        return;
    }
    if !installed("script") {
        skip("script is not installed");
        return;
    }
    let place = TestDir::new();
    let image = place.file("tiny", &guest::image("hello from ring 0", Then::Halt));
    let tare = place.tare(&["run", &image, "--name", "web", "--net", "none"]);
    let args: Vec<_> = [tare.get_program()]
        .into_iter()
        .chain(tare.get_args())
        .collect();
    let line = args.join(std::ffi::OsStr::new(" "));
    let mut script = Command::new("script")
        .args(["--quiet", "--return", "--command"])
        .arg(line)
        .arg("/dev/null")
        .env("TARE_RUN_ROOT", place.run_root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    tiny::has_spoken(&place);
    let mut keys = script.stdin.take().unwrap();
    keys.write_all(b"\x03").unwrap();
    let ended = end(script);
    drop(keys);
    ended.expect(130, "interrupted");
    assert!(!ended.out.contains("did not end in time"), "{ended:#?}");
    assert!(place.run_directories().is_empty());
}

#[test]
fn only_a_program_gets_signals() {
    if !kvm() {
        return;
    }
    let place = TestDir::new();
    let child = tiny::foreground(&place, &["--net", "none"]);
    let refused = place.run(&["kill", "--signal", "HUP", "web"]);
    refused.expect(
        2,
        "\"web\" gets no signals: only programs and commands of Linux guests do, once they run",
    );
    place.run(&["kill", "web"]).expect(0, "");
    assert_ne!(end(child).code, Some(0));
    assert!(place.run_directories().is_empty());

    let image = place.file("tiny", &guest::image("hello from ring 0", Then::Halt));
    let refused = place.run(&["run", &image, "--stop-signal", "HUP"]);
    refused.expect(2, "--stop-signal is for programs");
    let refused = place.run(&["run", &image, "--stop-signal", "HUB"]);
    refused.expect(2, "\"HUB\" is not a signal: use a name such as HUP");
}

#[test]
fn a_killed_machine_leaves_nothing_that_hinders_the_next() {
    if !passt() {
        return;
    }
    let place = TestDir::new();
    let port = format!("{}:80", free_port());
    for _ in 0..2 {
        let mut child = tiny::foreground(&place, &["-p", &port]);
        child.kill().unwrap();
        child.wait().unwrap();
        eventually("passt has ended and let go of the port", || {
            let address = format!("127.0.0.1:{}", port.trim_end_matches(":80"));
            std::net::TcpListener::bind(address).is_ok()
        });
        assert_eq!(place.run_directories(), ["web"]);
        // Its process ends after the one that was started.
        eventually("it is listed as killed", || {
            place.run(&["ps", "-a"]).out.contains("killed")
        });
    }
    place.run(&["rm", "web"]).expect(0, "");
    assert!(place.run_directories().is_empty());
}

/// At whatever moment of its start a machine is ended, the next one finds nothing of it, also not
/// its port.
#[test]
fn a_start_that_is_broken_off_leaves_nothing() {
    if !passt() {
        return;
    }
    let place = TestDir::new();
    let image = place.file("tiny", &guest::image("hello from ring 0", Then::Halt));
    let port = format!("{}:80", free_port());
    for step in 0..16 {
        let args = ["run", &image, "--name", "web", "-p", &port];
        let child = place.tare(&args).spawn().unwrap();
        sleep(Duration::from_millis(25 * step));
        output("kill", &["-TERM", &child.id().to_string()]);
        let ended = end(child);
        // By the signal itself before there is anything to take back.
        let is_expected = matches!(ended.code, None | Some(143));
        assert!(is_expected, "after {step} steps: {ended:#?}");
        assert!(place.run_directories().is_empty(), "after {step} steps");
    }
}

#[test]
fn a_second_machine_on_the_same_port_is_refused() {
    if !passt() {
        return;
    }
    let place = TestDir::new();
    let port = format!("{}:80", free_port());
    let child = tiny::foreground(&place, &["-p", &port]);
    let image = place.file("other", &guest::image("up", Then::Halt));
    place
        .run(&["run", &image, "-p", &port])
        .expect(30, "is in use");
    place.run(&["stop", "web"]).expect(0, "");
    end(child).expect(0, "hello from ring 0");
}

#[test]
fn a_machine_in_the_background_is_listed_read_counted_and_stopped() {
    if !kvm() {
        return;
    }
    tiny::runs_in_the_background(&["--net", "none", "-c", "2"], |place| {
        place
            .run(&["ps", "--json"])
            .expect(0, "\"name\": \"tiny-1\"");
        place.run(&["stats", "tiny-1"]).expect(0, "vcpu1");
        let json = place.run(&["stats", "tiny-1", "--json"]).out;
        let stats: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(stats["vcpus"].as_array().unwrap().len(), 2, "{json}");
    });
}

/// Serves a file of the host's directory through the appliance, and stops it.
fn serves(args: &[&str]) {
    let Some(image) = http() else { return };
    let place = TestDir::new();
    let site = place.path().join("site");
    fs::create_dir(&site).unwrap();
    fs::write(site.join("index.html"), "<p>weighed").unwrap();
    let port = free_port();
    let publish = format!("{port}:80");
    let mut all = vec!["run", image.to_str().unwrap(), "--name", "web"];
    all.extend(["--root", site.to_str().unwrap(), "-p", &publish]);
    all.extend(args);
    let child = place.tare(&all).stdout(Stdio::piped()).spawn().unwrap();
    eventually("the appliance answers", || {
        get(port, "/index.html").is_ok_and(|answer| answer.ends_with("<p>weighed"))
    });
    let answer = served(port, "/none");
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    place.run(&["stop", "web"]).expect(0, "");
    assert_eq!(end(child).code, Some(0));
    assert!(place.run_directories().is_empty());
}

#[test]
fn the_appliance_serves_a_directory() {
    if passt() {
        serves(&[]);
    }
}

#[test]
fn the_appliance_serves_from_two_cores() {
    if passt() {
        serves(&["--cpus", "2"]);
    }
}

/// In its own network namespace; the tap goes with it.
#[test]
fn a_tap_carries_the_appliances_answers() {
    if !kvm() || !["unshare", "ip", "curl"].into_iter().all(installed) {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        skip("only root makes a network namespace and a tap");
        return;
    }
    let Some(image) = http() else { return };
    let place = TestDir::new();
    let page = place.file("index.html", b"<p>by tap");
    let script = r#"set -e
        ip tuntap add dev tare0 mode tap vnet_hdr
        ip address add 10.90.0.1/24 dev tare0
        ip link set tare0 up
        "$TARE" run "$IMAGE" --name tapped -d --root "$SITE" --net tap=tare0 \
            --cmdline ip=10.90.0.2/24
        curl --silent --fail --max-time 20 --retry 5 --retry-connrefused http://10.90.0.2/
        "$TARE" stop tapped"#;
    let child = Command::new("unshare")
        .args(["--net", "sh", "-c", script])
        .env("TARE_RUN_ROOT", place.run_root())
        .env("TARE", env!("CARGO_BIN_EXE_tare"))
        .env("IMAGE", image)
        .env("SITE", Path::new(&page).parent().unwrap())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    end(child).expect(0, "<p>by tap");
    assert!(place.run_directories().is_empty());
}

/// Threads, channels, timers and idling with Tare's own devices, tables and CPUs.
#[test]
fn every_check_of_the_library_os_passes_on_one_four_and_sixteen_cores() {
    if !kvm() {
        return;
    }
    let Some(image) = built("selftest") else {
        return;
    };
    let place = TestDir::new();
    let ring = match Probe::run(&Kvm::open().unwrap()).unwrap().kind {
        KvmKind::Hardware => 0,
        KvmKind::Emulated => 3,
    };
    for cpus in ["1", "4", "16"] {
        let args = ["run", image.to_str().unwrap(), "--net", "none", "-c", cpus];
        let ended = place.run(&args);
        ended.expect(0, "selftest done, 0 failed");
        ended.expect(0, &format!("selftest on {cpus} cores in ring {ring}"));
        assert!(place.run_directories().is_empty());
    }
}

/// A connection that comes before the guest is up waits for it.
#[test]
fn an_early_connection_is_answered() {
    if !passt() {
        return;
    }
    let Some(image) = http() else { return };
    let place = TestDir::new();
    let site = place.path().join("site");
    fs::create_dir(&site).unwrap();
    fs::write(site.join("index.html"), "<p>early").unwrap();
    let port = free_port();
    let publish = format!("{port}:80");
    let mut all = vec![
        "run",
        image.to_str().unwrap(),
        "--name",
        "web",
        "-p",
        &publish,
    ];
    all.extend(["--root", site.to_str().unwrap()]);
    let child = place.tare(&all).spawn().unwrap();
    eventually("passt listens", || {
        TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    let answer = get_within(Duration::from_secs(30), port, "/index.html").unwrap();
    assert!(answer.ends_with("<p>early"), "{answer}");
    place.run(&["stop", "web"]).expect(0, "");
    end(child).expect(0, "");
}
