//! Unmodified static programs for Linux on the library OS: C by the host's gcc, Go
//! where it is installed. SKIP without /dev/kvm, the compiler or the image `linux`.
#![allow(clippy::unwrap_used)]

#[path = "programs/exec.rs"]
mod exec;
#[path = "programs/isolated.rs"]
mod isolated;
#[path = "programs/memory.rs"]
mod memory;
#[path = "programs/offers.rs"]
mod offers;
#[path = "programs/peers.rs"]
mod peers;
#[path = "programs/roots.rs"]
mod roots;
#[path = "programs/signals.rs"]
mod signals;
mod support;
#[path = "programs/timers.rs"]
mod timers;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;

use support::compile::{c, source};
use support::needs::{built, kvm, passt, skip};
use support::{CommandOutput, IO_TIMEOUT, TestDir, end, eventually, free_port, get, installed};

/// Whether machines with programs can run here.
fn can_run() -> bool {
    kvm() && built("linux").is_some()
}

fn run(place: &TestDir, program: &str, args: &[&str]) -> CommandOutput {
    let mut all = vec!["run", program, "--net", "none", "--env", "KEY=value"];
    all.extend(args);
    place.run(&all)
}

#[test]
fn a_static_program_runs_and_its_status_is_the_exit_code() {
    if !can_run() {
        return;
    }
    let place = TestDir::new();
    for link in ["-static", "-static-pie"] {
        let Some(program) = c(&place, "hello.c", &[link]) else {
            return;
        };
        let ended = run(&place, &program, &["--", "a", "b"]);
        ended.expect(7, "hello /hello, 3 words");
        assert!(place.run_directories().is_empty(), "{ended:#?}");
    }
}

/// A file of gcc's, such as the C library.
fn file_of_gcc(name: &str) -> PathBuf {
    let gcc = Command::new("gcc")
        .arg(format!("-print-file-name={name}"))
        .output()
        .unwrap();
    PathBuf::from(String::from_utf8(gcc.stdout).unwrap().trim())
}

/// A root with the loader that programs of this host name, and the C library.
fn root_with_libraries(place: &TestDir) -> Option<PathBuf> {
    let root = place.path().join("root");
    for (file, directory) in [
        ("ld-linux-x86-64.so.2", "lib64"),
        ("libc.so.6", "lib"),
        ("libm.so.6", "lib"),
    ] {
        let from = file_of_gcc(file);
        if !from.is_absolute() {
            skip("gcc knows no ld-linux-x86-64.so.2, libc.so.6 and libm.so.6");
            return None;
        }
        fs::create_dir_all(root.join(directory)).unwrap();
        fs::copy(from, root.join(directory).join(file)).unwrap();
    }
    Some(root)
}

#[test]
fn a_dynamic_program_is_loaded_by_the_loader_of_its_root() {
    if !can_run() {
        return;
    }
    let place = TestDir::new();
    for link in ["-pie", "-no-pie"] {
        let args = [link, "-Wl,--no-as-needed", "-lm"];
        let Some(program) = c(&place, "dynamic.c", &args) else {
            return;
        };
        run(&place, &program, &[]).expect(126, "--root DIR");
        let Some(root) = root_with_libraries(&place) else {
            return;
        };
        let with_root = ["--root", root.to_str().unwrap()];
        let ended = run(
            &place,
            &program,
            &[&with_root[..], &["--", "0.25"]].concat(),
        );
        ended.expect(7, "program /dynamic, square root 0.500000");
        for line in [
            "headers 1",
            "entry 1",
            "loader 1",
            "own file 1",
            "thread 42",
        ] {
            assert!(ended.out.contains(line), "{line}: {ended:#?}");
        }
        // What is missing besides, the loader itself says.
        fs::remove_file(root.join("lib/libm.so.6")).unwrap();
        let ended = run(&place, &program, &with_root);
        ended.expect(127, "libm.so.6");
    }
}

#[test]
fn a_program_has_threads_signals_memory_and_files() {
    if !can_run() {
        return;
    }
    let place = TestDir::new();
    let Some(program) = c(&place, "process.c", &["-static"]) else {
        return;
    };
    for cpus in ["1", "2"] {
        // Ended by its own SIGTERM: 128 and the signal.
        let ended = run(&place, &program, &["--cpus", cpus]);
        ended.expect(143, "sum 100000");
        for line in [
            "signals 10, kept 7.25",
            "fault 1",
            "memory kept",
            "file bytes",
            "pointer -1 1",
            "slept 1",
            "variable value",
        ] {
            assert!(ended.out.contains(line), "{line}: {ended:#?}");
        }
    }
}

/// What a program prints here and in a machine is the same, line by line.
fn answers_as_here(place: &TestDir, program: &str, options: &[&str], args: &[&str]) {
    let mut here = Command::new(program);
    here.args(args).env("TMPDIR", place.path());
    let here = here.output().unwrap();
    assert!(here.status.success(), "{here:?}");
    let here = String::from_utf8(here.stdout).unwrap();
    let all = [options, &["--"], args].concat();
    let there = run(place, program, &all);
    let mut lines = there.out.lines().filter(|line| !line.starts_with("warn: "));
    for (number, line) in here.lines().enumerate() {
        let other = lines.next().unwrap_or("(the program ended)");
        assert_eq!(other, line, "line {number} of {args:?}, there and here");
    }
    assert_eq!(lines.next(), None, "{args:?}");
    there.expect(0, "");
}

#[test]
fn system_calls_answer_as_linux_does() {
    if !can_run() {
        return;
    }
    let place = TestDir::new();
    if let Some(program) = c(&place, "calls.c", &["-static"]) {
        answers_as_here(&place, &program, &[], &[]);
    }
}

#[test]
fn rare_uses_of_system_calls_answer_as_linux_does() {
    if !can_run() {
        return;
    }
    let place = TestDir::new();
    if let Some(program) = c(&place, "corners.c", &["-static"]) {
        answers_as_here(&place, &program, &[], &[]);
    }
}

#[test]
fn network_interfaces_are_shown_as_linux_shows_them() {
    if !can_run() {
        return;
    }
    let place = TestDir::new();
    let Some(program) = c(&place, "interfaces.c", &["-static"]) else {
        return;
    };
    answers_as_here(&place, &program, &[], &[]);
    let all = place.run(&["run", &program, "--", "all"]);
    for line in [
        "lo 2 127.0.0.1",
        "lo 10 ::1",
        "eth0 17 kind 1",
        "eth0 2 10.0.2.15",
    ] {
        assert!(all.out.lines().any(|it| it == line), "{line}: {all:#?}");
    }
    let alone = run(&place, &program, &["--", "all"]);
    assert_eq!(alone.out, "lo 17 kind 772\nlo 2 127.0.0.1\nlo 10 ::1\n");
}

#[test]
fn clocks_are_read_without_system_calls() {
    if !can_run() {
        return;
    }
    let place = TestDir::new();
    for link in ["-static", "-static-pie"] {
        let Some(program) = c(&place, "clocks.c", &[link]) else {
            return;
        };
        answers_as_here(&place, &program, &[], &[]);
        // The log has a line for each call.
        let logged = run(&place, &program, &["--cmdline", "log=debug"]);
        let calls = |number: u32| {
            let call = format!("call {number} ");
            logged.err.matches(&call).count()
        };
        assert_eq!(
            calls(228),
            3,
            "clock_gettime, as the program says: {logged:#?}"
        );
        assert_eq!(calls(96), 0, "gettimeofday");
        assert_eq!(calls(201), 0, "time");
    }
}

#[test]
fn udp_sockets_share_a_port_as_on_linux() {
    if !can_run() {
        return;
    }
    offers::answers_as_here_on_one_and_two_cpus("shares.c");
}

#[test]
fn tcp_sockets_share_a_port_as_on_linux() {
    if !can_run() {
        return;
    }
    offers::answers_as_here_on_one_and_two_cpus("listeners.c");
}

#[test]
fn calls_that_are_made_often_become_jumps_and_answer_as_before() {
    if !can_run() {
        return;
    }
    let place = TestDir::new();
    let Some(program) = c(&place, "jumps.c", &["-static"]) else {
        return;
    };
    answers_as_here(&place, &program, &[], &[]);
    let two = run(&place, &program, &["--cpus", "2"]);
    two.expect(0, "began again 1 y, alarms 1");
    let logged = run(&place, &program, &["--cmdline", "log=debug"]);
    let is_slow = logged.err.contains("SYSCALL leaves the machine");
    // read, write, pread64, getpid.
    for number in [0, 1, 17, 39] {
        let jump = logged.err.lines().any(|line| {
            line.contains(&format!("call {number} at")) && line.ends_with("a jump from now on")
        });
        assert_eq!(jump, is_slow, "{number}");
    }
    // Those of other_forms: three sites with read, one with write, beside the C library's.
    let jumps = |number: u32| {
        let call = format!("call {number} at");
        let lines = logged.err.lines();
        lines
            .filter(|line| line.contains(&call) && line.ends_with("a jump from now on"))
            .count()
    };
    if is_slow {
        assert!(jumps(0) >= 4, "{logged:#?}");
        assert!(jumps(1) >= 2, "{logged:#?}");
    }
}

/// Short sequences of each kind here; `TARE_SOAK=SEQUENCES` for that many, of 2000 calls each.
#[test]
fn random_system_calls_answer_as_linux_does() {
    if !can_run() {
        return;
    }
    let place = TestDir::new();
    let Some(program) = c(&place, "random.c", &["-static"]) else {
        return;
    };
    let soak = std::env::var("TARE_SOAK").ok();
    let (first, sequences, calls) = match soak {
        Some(sequences) => (1000, sequences.parse().unwrap(), "2000"),
        None => (1, 8, "250"),
    };
    // Of one machine: it ends within the time of any command.
    const MOST: u64 = 48;
    for begin in (first..first + sequences).step_by(MOST as usize) {
        let count = (first + sequences - begin).min(MOST).to_string();
        for kind in [
            "files", "streams", "sockets", "events", "memory", "signals", "all",
        ] {
            let args = [kind, &begin.to_string(), &count, calls];
            answers_as_here(&place, &program, &[], &args);
        }
    }
}

#[test]
fn a_server_with_epoll_answers_on_a_published_port() {
    if !can_run() || !passt() {
        return;
    }
    let place = TestDir::new();
    let Some(program) = c(&place, "server.c", &["-static-pie"]) else {
        return;
    };
    serves(&place, &program, &[], "hello");
}

/// Starts a server and gets `expected` from it, three times.
fn serves(place: &TestDir, program: &str, args: &[&str], expected: &str) {
    let port = free_port();
    let publish = format!("{port}:80");
    let mut all = vec!["run", program, "--name", "server", "-p", &publish];
    all.extend(args);
    let child = place.tare(&all).spawn().unwrap();
    for _ in 0..3 {
        eventually("it answers", || {
            get(port, "/").is_ok_and(|answer| answer.contains(expected))
        });
    }
    let stopped = place.run(&["stop", "server"]);
    assert!(stopped.err.is_empty(), "{stopped:#?}");
    end(child);
}

#[test]
fn an_answer_that_is_written_in_parts_is_one_frame() {
    if !can_run() || !passt() {
        return;
    }
    const ANSWERS: u64 = 40;
    let place = TestDir::new();
    let Some(program) = c(&place, "parts.c", &["-static"]) else {
        return;
    };
    for how in ["writes", "cork", "more"] {
        let port = free_port();
        let publish = format!("{port}:80");
        let args = ["run", &program, "--name", how, "-p", &publish, "--", how];
        let child = place.tare(&args).spawn().unwrap();
        eventually("it answers", || answers(port, 1).is_ok());
        let before = frames_sent(&place, how);
        answers(port, ANSWERS).unwrap();
        let frames = frames_sent(&place, how) - before;
        place.run(&["stop", how]);
        end(child);
        // Beside the answers: the connection's own frames, and acknowledgements for which a
        // busy host left no answer in time.
        assert!(frames >= ANSWERS, "{how}: {frames}");
        assert!(frames < ANSWERS * 3 / 2, "{how}: {frames}");
    }
}

#[test]
fn a_thread_is_woken_from_another_core_beside_one_that_makes_no_call() {
    if !can_run() {
        return;
    }
    let place = TestDir::new();
    let Some(program) = c(&place, "woken.c", &["-static", "-pthread"]) else {
        return;
    };
    run(&place, &program, &["--cpus", "2"]).expect(0, "woken\n");
}

#[test]
fn answers_to_several_clients_in_one_turn_are_notified_once() {
    if !can_run() || !passt() {
        return;
    }
    const CLIENTS: usize = 8;
    const ROUNDS: u64 = 30;
    let place = TestDir::new();
    let Some(program) = c(&place, "several.c", &["-static"]) else {
        return;
    };
    let port = free_port();
    let publish = format!("{port}:80");
    let args = ["run", &program, "--name", "several", "-p", &publish];
    let child = place.tare(&args).spawn().unwrap();
    eventually("it listens", || {
        place.run(&["logs", "several"]).out.contains("ready")
    });
    let connect = |_| TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut clients: Vec<TcpStream> = (0..CLIENTS).map(connect).collect();
    round(&mut clients).unwrap();
    let before = [
        net(&place, "several", "tx_frames"),
        net(&place, "several", "notifications"),
    ];
    for _ in 0..ROUNDS {
        round(&mut clients).unwrap();
    }
    let frames = net(&place, "several", "tx_frames") - before[0];
    let notifications = net(&place, "several", "notifications") - before[1];
    place.run(&["stop", "several"]);
    end(child);
    assert!(frames >= ROUNDS * CLIENTS as u64, "{frames}");
    // One a round, beside acknowledgements where a busy host leaves no answer in time.
    assert!(notifications < ROUNDS * 4, "{notifications}");
}

/// Each client of `several.c` asks once, and has its answer.
fn round(clients: &mut [TcpStream]) -> std::io::Result<()> {
    for client in &mut *clients {
        client.set_read_timeout(Some(IO_TIMEOUT))?;
        client.write_all(b"?")?;
    }
    let mut answer = [0; 100];
    clients
        .iter_mut()
        .try_for_each(|client| client.read_exact(&mut answer))
}

/// Asks `parts.c` for answers, one after the other on one connection.
fn answers(port: u16, count: u64) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(IO_TIMEOUT))?;
    let mut answer = [0; 200];
    for _ in 0..count {
        stream.write_all(b"?")?;
        stream.read_exact(&mut answer)?;
    }
    Ok(())
}

/// Frames that the guest has sent.
fn frames_sent(place: &TestDir, name: &str) -> u64 {
    net(place, name, "tx_frames")
}

/// A counter of the network device.
fn net(place: &TestDir, name: &str, counter: &str) -> u64 {
    let stats = place.run(&["stats", name, "--json"]);
    let stats: serde_json::Value = serde_json::from_str(&stats.out).unwrap();
    let devices = stats["devices"].as_array().unwrap();
    let net = devices.iter().find(|device| device["kind"] == "net");
    net.unwrap()["counters"][counter].as_u64().unwrap()
}

#[test]
fn stop_asks_a_program_by_sigterm_and_kills_it_after_a_time() {
    if !can_run() {
        return;
    }
    let place = TestDir::new();
    let Some(program) = c(&place, "stop.c", &["-static"]) else {
        return;
    };
    let log = || place.run(&["logs", "program"]).out;
    let args = ["run", &program, "--name", "program", "--net", "none"];
    let child = place.tare(&args).spawn().unwrap();
    eventually("it runs", || log().contains("ready"));
    let stopped = place.run(&["stop", "program"]);
    stopped.expect(0, "");
    assert!(stopped.err.is_empty(), "{stopped:#?}");
    end(child).expect(5, "asked 1");

    let mut all = args.to_vec();
    all.extend(["--", "ignore"]);
    let child = place.tare(&all).spawn().unwrap();
    eventually("it runs", || log().contains("ready"));
    let stopped = place.run(&["stop", "--time", "1", "program"]);
    stopped.expect(0, "");
    assert!(stopped.err.contains("killed"), "{stopped:#?}");
    assert_ne!(end(child).code, Some(0));
    assert!(place.run_directories().is_empty());
}

#[test]
fn go_programs_run_and_serve() {
    if !can_run() || !passt() {
        return;
    }
    if !installed("go") {
        skip("go is not installed");
        return;
    }
    let place = TestDir::new();
    let program = place.path().join("gopher");
    let mut go = Command::new("go");
    go.env("CGO_ENABLED", "0")
        .args(["build", "-o"])
        .arg(&program);
    assert!(go.arg(source("main.go")).status().unwrap().success());
    let program = program.to_str().unwrap();
    let ended = run(&place, program, &[]);
    ended.expect(3, "sum 45");
    assert!(ended.out.contains("recovered: true"), "{ended:#?}");
    serves(&place, program, &["--", "serve"], "hello from go");
}

#[test]
fn what_cannot_run_is_refused_in_a_sentence_before_a_machine_starts() {
    let place = TestDir::new();
    let Some(program) = c(&place, "hello.c", &[]) else {
        return;
    };
    if built("linux").is_none() {
        return;
    }
    run(&place, &program, &[]).expect(126, "linked dynamically");
    let Some(program) = c(&place, "hello.c", &["-static"]) else {
        return;
    };
    let bytes = fs::read(&program).unwrap();
    let cut = place.file("cut", &bytes[..bytes.len() / 2]);
    run(&place, &cut, &[]).expect(12, "truncated");
    let ended = run(&place, &program, &["--memory", "8M"]);
    ended.expect(15, "give it more memory");
    let ended = place.run(&["run", &program, "--net", "none", "--env", "novalue"]);
    ended.expect(2, "NAME=VALUE");
    let low = c(
        &place,
        "hello.c",
        &["-static", "-no-pie", "-Wl,-Ttext-segment=0x100000"],
    );
    let Some(low) = low else {
        return;
    };
    run(&place, &low, &[]).expect(15, "-static-pie");
}

/// A file of a gibibyte and more in a machine of 64 MiB, as `limits.c` describes it.
const SPARSE: &str = "\
write 1
bytes 1073741825, held 4096
read 3, 0 0 x
mapped x
data 1073741824, hole 1073741825
longer 0
no data -1  ENXIO
allocated 0
bytes 1099511627776, held 12288
allocate ENOSPC
overflow EINVAL
";

#[test]
fn a_program_at_a_limit_gets_linuxs_errno_or_ends_in_a_sentence() {
    if !can_run() {
        return;
    }
    let place = TestDir::new();
    let Some(program) = c(&place, "limits.c", &["-static"]) else {
        return;
    };
    let at = |args: &[&str]| {
        run(
            &place,
            &program,
            &[&["--memory", "64M", "--"], args].concat(),
        )
    };
    let memory = at(&["memory"]);
    memory.expect(137, "the program needs more memory: see --memory");
    for refused in ["mapping ENOMEM", "break ENOMEM", "malloc ENOMEM"] {
        assert!(memory.out.contains(refused), "{refused}: {memory:#?}");
    }
    let disk = at(&["disk"]);
    disk.expect(0, "write ENOSPC\nsome 1\nagain 1");
    let sparse = at(&["sparse"]);
    sparse.expect(0, SPARSE);
    let threads = at(&["threads"]);
    threads.expect(0, "thread EAGAIN\nsome 1");
    let fork = at(&["fork"]);
    fork.expect(0, "fork ENOSYS");
    assert!(fork.out.contains("exec ENOENT"), "{fork:#?}");
    for sentence in ["calls clone", "as one process"] {
        assert!(fork.err.contains(sentence), "{sentence}: {fork:#?}");
    }
    assert!(place.run_directories().is_empty());
}

#[test]
fn words_and_variables_have_a_limit() {
    if !can_run() {
        return;
    }
    let place = TestDir::new();
    let Some(program) = c(&place, "limits.c", &["-static"]) else {
        return;
    };
    // Linux takes no single one of 128 KiB.
    let long = "x".repeat(100_000);
    let ended = run(&place, &program, &["--", "words", &long]);
    ended.expect(4, "3 words, the last has 100000 bytes");
    let mut args = vec!["--", "words"];
    args.extend(std::iter::repeat_n(long.as_str(), 11));
    run(&place, &program, &args).expect(2, "the limit is 1048576");
}

/// A program with one of its headers' fields changed: where its type is `kind`, the field at
/// `at` (ELF-64 program header, System V ABI, chapter 5).
fn with_field(bytes: &[u8], kind: u32, is_writable: bool, at: usize, value: u64) -> Vec<u8> {
    const BYTES: usize = 56;
    let mut bytes = bytes.to_vec();
    let u16_at = |bytes: &[u8], at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let count = usize::from(u16_at(&bytes, 56));
    let header = (0..count).map(|index| 64 + index * BYTES).find(|&header| {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        word(header) == kind && (word(header + 4) & 2 != 0) == is_writable
    });
    let field = header.expect("such a header") + at;
    bytes[field..field + 8].copy_from_slice(&value.to_le_bytes());
    bytes
}

#[test]
fn programs_with_wrong_headers_are_refused_in_a_sentence() {
    const LOAD: u32 = 1;
    const FLAGS: usize = 0;
    const ADDRESS: usize = 16;
    const MEMORY: usize = 40;
    let place = TestDir::new();
    let Some(program) = c(&place, "hello.c", &["-static-pie"]) else {
        return;
    };
    if built("linux").is_none() {
        return;
    }
    let good = fs::read(&program).unwrap();
    let refused = |name: &str, bytes: &[u8], code: i32, says: &str| {
        let file = place.file(name, bytes);
        let ended = place.run(&["run", &file, "--net", "none"]);
        ended.expect(code, says);
        assert!(ended.err.lines().count() <= 3, "{ended:#?}");
    };
    let data = |at, value| with_field(&good, LOAD, true, at, value);
    let kernel = 0xffff_8000_0000_0000 | data_offset(&good);
    refused("kernel", &data(ADDRESS, kernel), 15, "in the kernel's half");
    refused("overlap", &data(ADDRESS, data_offset(&good)), 15, "overlap");
    let writable_code = 7 << 32 | u64::from(LOAD);
    refused(
        "wx",
        &data(FLAGS, writable_code),
        11,
        "writable and executable",
    );
    refused("bss", &data(MEMORY, 1 << 40), 21, "give it more memory");
    refused("script", b"#!/bin/sh\necho\n", 11, "ELF");
    let mut arm = good.clone();
    arm[18] = 183;
    refused("arm", &arm, 11, "for another processor");
    assert!(place.run_directories().is_empty());
}

/// Where a page of the data begins in its file, less whole pages.
fn data_offset(bytes: &[u8]) -> u64 {
    let header = (0..usize::from(bytes[56]))
        .map(|index| 64 + index * 56)
        .find(|&header| bytes[header] == 1 && bytes[header + 4] & 2 != 0);
    let at = header.expect("data") + 8;
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) % 4096
}
