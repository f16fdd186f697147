//! Whole runs in QEMU's translator, with guests of a few bytes.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs::Permissions;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Resource, getrlimit, setrlimit};

use support::guest::{self, Then};
use support::needs::{beside, qemu};
use support::process::{can_do_without, has_own, may_make_namespaces, root, status, without};
use support::{IO_TIMEOUT, TestDir, end, eventually, installed, output, tiny};

/// For machines without a network.
const WORDS: &[&str] = &["--net", "none", "--engine", "qemu"];

fn run(then: Then) -> support::CommandOutput {
    let place = TestDir::new();
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
    let place = TestDir::new();
    let image = place.file("tiny", &guest::image("hello", Then::Exit(0x10)));
    let args = ["run", &image, "--net", "none", "--engine", "qemu"];
    let ended = place.run(&[&args[..], &["--halt", "never"]].concat());
    ended.expect(2, "needs Tare's own monitor");
}

/// In a mount namespace whose /dev has nothing in it.
#[test]
fn without_kvm_the_machine_runs_in_qemu_and_one_line_says_so() {
    if !qemu() {
        return;
    }
    let hidden = "mount -t tmpfs none /dev && exec \"$@\"";
    let spaces: [&[&str]; 2] = [&["--mount"], &["--user", "--map-root-user", "--mount"]];
    let may = |space: &&[&str]| {
        let mut args = space.to_vec();
        args.extend(["sh", "-c", hidden, "sh", "true"]);
        installed("unshare") && output("unshare", &args).status.success()
    };
    let Some(space) = spaces.into_iter().find(may) else {
        return tare_vmtest::lacks("this user may not make a mount namespace");
    };
    let place = TestDir::new();
    let line = "hello from ring 0";
    let image = place.file("tiny", &guest::image(line, Then::Exit(0x10)));
    let tare = place.tare(&["run", &image, "--net", "none"]);
    let mut command = Command::new("unshare");
    command
        .args(space)
        .args(["sh", "-c", hidden, "sh"])
        .arg(tare.get_program())
        .args(tare.get_args())
        .env("TARE_RUN_ROOT", place.run_root())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let ended = end(command.spawn().unwrap());
    ended.expect(0, line);
    let said = "tare: running in QEMU, much slower than KVM: there is no /dev/kvm\n";
    assert_eq!(ended.err, said);
    assert!(place.run_directories().is_empty());
}

#[test]
fn a_machine_in_the_background_is_listed_read_and_stopped() {
    if !qemu() {
        return;
    }
    tiny::runs_in_the_background(WORDS, |place| {
        place
            .run(&["ps", "--json"])
            .expect(0, "\"engine\": \"qemu\"");
        place.run(&["stats", "tiny-1"]).expect(52, "runs in QEMU");
    });
}

/// The HTTP appliance in the background as `web`, serving `<p>weighed`; the
/// port at which it has answered, if all that this needs is there.
fn appliance(place: &TestDir, args: &[&str]) -> Option<u16> {
    let Some(image) = beside("http") else {
        tare_vmtest::lacks("the http image is not built (cargo xtask guests)");
        return None;
    };
    if !qemu() || !installed("passt") {
        tare_vmtest::lacks("QEMU or passt is not installed");
        return None;
    }
    let site = place.path().join("site");
    std::fs::create_dir(&site).unwrap();
    std::fs::write(site.join("index.html"), "<p>weighed").unwrap();
    std::fs::write(site.join("large"), vec![b'.'; 256 << 10]).unwrap();
    let port = support::free_port();
    let publish = format!("{port}:80");
    let mut all = vec!["run", image.to_str().unwrap(), "-d", "--name", "web"];
    all.extend(["--engine", "qemu", "-p", &publish]);
    all.extend(["--root", site.to_str().unwrap()]);
    all.extend(args);
    place.run(&all).expect(0, "web");
    eventually("the appliance answers", || {
        support::get(port, "/index.html").is_ok_and(|answer| answer.ends_with("<p>weighed"))
    });
    Some(port)
}

/// The same image, root and forward as under Tare's monitor.
#[test]
fn the_appliance_serves_a_directory() {
    let place = TestDir::new();
    if appliance(&place, &[]).is_some() {
        place.run(&["stop", "web"]).expect(0, "");
    }
}

/// The disk of `--reload` becomes longer by QMP, and the guest learns of it.
#[test]
fn a_site_in_qemu_gets_another_root() {
    let place = TestDir::new();
    let Some(port) = appliance(&place, &["--reload"]) else {
        return;
    };
    let next = place.path().join("next");
    std::fs::create_dir(&next).unwrap();
    let next = next.to_str().unwrap();
    let args = ["reload", "web", "--root", next];
    for text in ["the next site", "the third site"] {
        place.file("next/index.html", text.as_bytes());
        place.run(&args).expect(0, "web: serving 1 files");
        assert!(support::served(port, "/").ends_with(text));
    }
    let site = place.file("site.toml", b"[log]\nformat = \"json\"\n");
    let logs = place.run(&[&args[..], &["--site", &site]].concat());
    logs.expect(47, "cannot change while the machine runs");
    place.run(&["stop", "web"]).expect(0, "");
    assert!(place.run_directories().is_empty());
}

/// QEMU writes the log itself.
#[test]
fn the_log_of_a_machine_in_qemu_stays_bounded() {
    if !qemu() {
        return;
    }
    let place = TestDir::new();
    let mut run = tiny::foreground(&place, WORDS);
    let log = place.run_root().join("web/console.log");
    let mut file = std::fs::File::options().append(true).open(&log).unwrap();
    file.write_all(&vec![b'x'; 5 << 20]).unwrap();
    eventually("the first half has gone", || {
        std::fs::metadata(&log).unwrap().len() <= 4 << 20
    });
    let text = std::fs::read(&log).unwrap();
    assert!(text.starts_with(b"[tare: earlier output was dropped]\n"));
    assert!(text.ends_with(b"xxx"));
    place.run(&["stop", "web"]).expect(0, "");
    run.wait().unwrap();
}

/// passt starts beside QEMU: its errors are reported, and QEMU ends.
#[test]
fn a_network_that_fails_while_qemu_starts_ends_it_too() {
    if !qemu() {
        return;
    }
    let place = TestDir::new();
    let image = place.file("tiny", &guest::image("up", Then::Halt));
    let script = "#!/bin/sh\nsleep 0.2\necho \"Failed to bind any port for '-t 1:1', exiting\" >&2\nexit 1\n";
    let passt = place.file("passt", script.as_bytes());
    std::fs::set_permissions(&passt, Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap();
    // Otherwise it is not needed before the guest sends something.
    let net = ["--net", "user,forward=passt"];
    let ended = end(place
        .tare(&[&["run", &image, "--engine", "qemu"], &net[..]].concat())
        .env("PATH", format!("{}:{path}", place.path().display()))
        .spawn()
        .unwrap());
    ended.expect(30, "Failed to bind any port");
    assert!(place.run_directories().is_empty());
    let mine = place.path().to_string_lossy().into_owned();
    let left = std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter(|entry| {
            let cmdline = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&cmdline).contains(&mine)
        });
    assert_eq!(left.count(), 0);
}

/// In the translator, since each would take a KVM that emulates ring 0 long.
#[test]
fn a_thousand_connections_stay_open_in_64_mib() {
    const CONNECTIONS: usize = 1000;
    let mut limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|most| most < 4096) {
        return tare_vmtest::lacks("this user may not open enough files");
    }
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    let place = TestDir::new();
    let Some(port) = appliance(&place, &["--memory", "64M"]) else {
        return;
    };
    let ask = |stream: &mut TcpStream| {
        let request = b"GET /index.html HTTP/1.1\r\nHost: test\r\n\r\n";
        stream.write_all(request).unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"<p>weighed") {
            let mut part = [0; 1024];
            let length = stream.read(&mut part).unwrap();
            assert!(length > 0, "{}", String::from_utf8_lossy(&answer));
            answer.extend(&part[..length]);
        }
        assert!(answer.starts_with(b"HTTP/1.1 200 "));
    };
    let open = |_| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(IO_TIMEOUT)).unwrap();
        ask(&mut stream);
        stream
    };
    let mut connections: Vec<TcpStream> = (0..CONNECTIONS).map(open).collect();
    // All of them are served still, the oldest first.
    connections.iter_mut().for_each(ask);
    // Then all are slow: heads and bodies that do not end, readers that do not read. A client
    // that behaves is served beside them.
    for (number, stream) in connections.iter_mut().enumerate() {
        let slow: &[u8] = match number % 3 {
            0 => b"GET / HTTP/1.1\r\nHost: te",
            1 => b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 100\r\n\r\nhalf",
            _ => b"GET /large HTTP/1.1\r\nHost: test\r\n\r\n",
        };
        stream.write_all(slow).unwrap();
    }
    eventually("a client beside a thousand slow ones is served", || {
        let limit = Duration::from_secs(5);
        let answer = support::get_within(limit, port, "/index.html");
        answer.is_ok_and(|answer| answer.ends_with("<p>weighed"))
    });
    place.run(&["stop", "web"]).expect(0, "");
}

#[test]
fn a_name_stays_taken_while_its_machine_runs() {
    if !qemu() {
        return;
    }
    let place = TestDir::new();
    let image = place.file("tiny", &guest::image("up", Then::Halt));
    let args = [
        "run", &image, "-d", "--name", "web", "--net", "none", "--engine", "qemu",
    ];
    place.run(&args).expect(0, "web");
    place
        .run(&args)
        .expect(50, "a machine named \"web\" is running");
    place.run(&["stop", "web"]).expect(0, "");
    place.run(&args).expect(0, "web");
    place.run(&["stop", "web"]).expect(0, "");
}

#[test]
fn signals_end_a_run_with_their_code() {
    if !qemu() {
        return;
    }
    tiny::ends_by_signals(WORDS);
}

#[test]
fn a_machine_of_qemu_outlives_its_terminal_under_nohup() {
    if !qemu() {
        return;
    }
    tiny::survives_a_hangup(WORDS);
}

#[test]
fn killing_tare_leaves_no_qemu() {
    if !qemu() {
        return;
    }
    let place = TestDir::new();
    let mut child = tiny::foreground(&place, WORDS);
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("QEMU lets go of the lock", || {
        place.run(&["ps", "--json"]).out == "[]\n"
    });
    place.run(&["rm", "web"]).expect(0, "");
    assert!(place.run_directories().is_empty());
}

#[test]
fn a_panic_in_the_background_of_qemu_leaves_log_and_exit_code() {
    if qemu() {
        tiny::keeps_what_a_panic_left(&["--engine", "qemu"], 5_000_000);
    }
}

/// The QEMU of the machine `tiny-1`: who holds its lock.
fn qemu_of(place: &TestDir) -> u32 {
    let lock = std::fs::canonicalize(place.run_root().join("tiny-1/lock")).unwrap();
    let holds = |pid: &u32| {
        let open = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter();
        let links = open.flatten().flatten();
        links
            .filter_map(|link| std::fs::read_link(link.path()).ok())
            .any(|path| path == lock)
    };
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let numbers = processes.filter_map(|it| it.file_name().to_str()?.parse().ok());
    let qemus: Vec<u32> = numbers
        .filter(|pid| {
            std::fs::read_to_string(format!("/proc/{pid}/comm"))
                .is_ok_and(|name| name.starts_with("qemu"))
        })
        .filter(holds)
        .collect();
    assert_eq!(qemus.len(), 1);
    qemus[0]
}

/// `Seccomp: 2` is a filter (`proc_pid_status(5)`).
#[test]
fn qemu_runs_in_its_sandbox_and_gains_no_privileges() {
    if !qemu() {
        return;
    }
    tiny::runs_in_the_background(WORDS, |place| {
        let pid = qemu_of(place);
        assert_eq!(status(pid, "Seccomp:"), ["2"]);
        assert_eq!(status(pid, "NoNewPrivs:"), ["1"]);
        for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
            assert_eq!(status(pid, set), ["0000000000000000"], "{set}");
        }
    });
}

/// What QEMU opens by name, libraries and firmware, is gone from its root before its guest
/// runs.
#[test]
fn qemu_has_a_user_namespaces_and_an_empty_root_of_its_own() {
    if !qemu() || !may_make_namespaces() {
        return;
    }
    for engine in ["qemu", "qemu-kvm"] {
        if engine == "qemu-kvm" && !support::needs::kvm() {
            continue;
        }
        let args = ["--net", "none", "--engine", engine];
        tiny::runs_in_the_background(&args, |place| {
            let pid = qemu_of(place);
            for name in ["pid", "mnt", "net", "ipc", "uts"] {
                assert!(has_own(pid, name), "{name}");
            }
            assert_eq!(status(pid, "NSpid:").last().map(String::as_str), Some("1"));
            assert_eq!(root(pid), [""; 0]);
            if rustix::process::geteuid().is_root() {
                let users = status(pid, "Uid:");
                assert!(users.iter().all(|id| *id == users[0]), "{users:?}");
                assert!(users[0].parse::<u32>().unwrap() >= 1_900_000_000);
                assert!(status(pid, "Groups:").is_empty());
                place.run(&["ps"]).expect(0, "jail");
            } else {
                place.run(&["ps"]).expect(0, "seccomp+ns");
            }
        });
    }
}

/// A default container has neither; root's machine is another user's process all the same.
#[test]
fn a_host_that_grants_no_namespaces_runs_qemu() {
    if !qemu() || !can_do_without() {
        return;
    }
    let place = TestDir::new();
    let image = place.file("tiny", &guest::image("hello from ring 0", Then::Exit(0x10)));
    for bounding_set in ["-sys_admin,-sys_ptrace", "-sys_admin", "-sys_ptrace"] {
        for user in [&[][..], &["--user", "self"]] {
            let tare = place.tare(&["run", &image, "--net", "none", "--engine", "qemu"]);
            let output = without(bounding_set, &tare).args(user).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{bounding_set}: {text}{errors}");
            assert!(text.contains("hello from ring 0"), "{text}{errors}");
        }
    }
    assert!(place.run_directories().is_empty());
}

/// Its own user could open none of them by name.
#[test]
fn qemu_gets_files_that_only_their_owner_may_read() {
    if !qemu() {
        return;
    }
    let place = TestDir::new();
    let image = place.file("tiny", &guest::image("hello from ring 0", Then::Exit(0x10)));
    let mut disks = Vec::new();
    for (name, options) in [("a", ""), ("b", ",ro"), ("c", ",latency_us=100")] {
        let disk = place.file(name, &[0; 4096]);
        disks.push(format!("{disk}{options}"));
        std::fs::set_permissions(disk, Permissions::from_mode(0o600)).unwrap();
    }
    std::fs::set_permissions(&image, Permissions::from_mode(0o600)).unwrap();
    let mut args = vec!["run", &image, "--net", "none", "--engine", "qemu"];
    for disk in &disks {
        args.extend(["--disk", disk]);
    }
    place.run(&args).expect(0, "hello from ring 0");
    // On request the user stays, and the root is empty all the same.
    args.extend(["--user", "self"]);
    place.run(&args).expect(0, "hello from ring 0");
}

/// What `tare` executes in QEMU's jail where the host grants no namespaces: a shell in its place.
#[test]
fn rules_for_files_hold_qemu_where_there_are_no_namespaces() {
    let place = TestDir::new();
    let secret = place.file("secret", b"secret");
    let kernel = place.file("kernel", b"kernel");
    let script = format!(
        "cat /proc/self/fd/7; cat {secret}; cat {kernel} > {secret}; test -r /usr/bin/env && echo usr"
    );
    let shell = std::fs::canonicalize("/bin/sh").unwrap();
    let jailed = serde_json::json!({
        "program": { "path": shell, "device": "None", "loopback": "Down", "job_signals": "Everyones" },
        "jail": { "namespaces": false, "user": null },
        "order": "Namespaces",
    });
    // Without a change of user: what keeps the files is what is tested.
    let tare = place.tare(&[]).get_program().to_owned();
    let mut command = Command::new("sh");
    let start = "exec 7< \"$1\"; shift; exec \"$@\"";
    command.args(["-c", start, "sh", &kernel]).arg(tare);
    command.args(["--become-jailed", &jailed.to_string(), "-c", &script]);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let (out, err) = (
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    );
    if err.contains("this kernel has no Landlock") {
        return tare_vmtest::lacks("this kernel has no Landlock");
    }
    assert_eq!(out, "kernelusr\n", "{err}");
    assert_eq!(std::fs::read(&secret).unwrap(), b"secret", "{err}");
}
