//! Standard streams of a program in Tare's own monitor: what goes in comes out, to the byte,
//! and ends. SKIP without /dev/kvm, gcc or the image `linux`.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use support::needs::{built, kvm, skip};
use support::{CommandOutput, TestDir, end, eventually, installed};

/// The program of these tests, if it can run here.
fn program(place: &TestDir) -> Option<String> {
    if !kvm() || built("linux").is_none() {
        return None;
    }
    if !installed("gcc") {
        skip("gcc is not installed");
        return None;
    }
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/programs/streams.c");
    let program = place.path().join("streams");
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-w", "-static", "-o"])
        .arg(&program)
        .arg(source);
    assert!(gcc.status().unwrap().success());
    Some(program.to_str().unwrap().to_owned())
}

/// `tare run` of the program with these arguments.
fn tare(place: &TestDir, program: &str, args: &[&str]) -> Command {
    let mut all = vec!["run", program, "--net", "none", "--name", "streams", "--"];
    all.extend(args);
    place.tare(&all)
}

/// Bytes of every value, in an order that shows what is lost or comes twice.
fn bytes(count: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let byte = |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..count).map(byte).collect()
}

/// Gives `input` to the command's standard input, and closes it.
fn feed(child: &mut Child, input: Vec<u8>) -> thread::JoinHandle<()> {
    let mut pipe = child.stdin.take().unwrap();
    thread::spawn(move || {
        // The program may end before.
        let _ = pipe.write_all(&input);
    })
}

/// Reads a command's standard output to its end.
fn output(child: &mut Child) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut pipe = child.stdout.take().unwrap();
    pipe.read_to_end(&mut bytes).unwrap();
    bytes
}

/// The message that says how many bytes it was is the only one.
#[track_caller]
fn copied(ended: &CommandOutput, count: usize) {
    ended.expect(0, "");
    assert_eq!(ended.err, format!("copied {count}\n"));
}

#[test]
fn ten_mebibytes_go_through_both_ways_unchanged() {
    let place = TestDir::new();
    let Some(program) = program(&place) else {
        return;
    };
    let input = bytes(10 << 20);
    let mut child = tare(&place, &program, &["count"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let feeder = feed(&mut child, input.clone());
    let output = output(&mut child);
    feeder.join().unwrap();
    assert_eq!(output.len(), input.len());
    assert!(output == input, "bytes changed");
    copied(&end(child), input.len());
    assert!(place.run_directories().is_empty());
}

#[test]
fn input_comes_from_a_file_and_goes_to_one() {
    let place = TestDir::new();
    let Some(program) = program(&place) else {
        return;
    };
    let input = bytes(300_000);
    let from = File::open(place.file("from", &input)).unwrap();
    let to = place.path().join("to");
    let mut file = File::create(&to).unwrap();
    file.write_all(b"before").unwrap();
    let child = tare(&place, &program, &["count"])
        .stdin(from)
        .stdout(file)
        .spawn()
        .unwrap();
    copied(&end(child), input.len());
    let output = fs::read(to).unwrap();
    assert_eq!(output[..6], *b"before", "it is written where it stood");
    assert!(output[6..] == input);
}

#[test]
fn input_that_is_empty_or_closed_ends_at_once() {
    let place = TestDir::new();
    let Some(program) = program(&place) else {
        return;
    };
    copied(&end(tare(&place, &program, &["count"]).spawn().unwrap()), 0);
    let tare = tare(&place, &program, &["count"]);
    let mut closed = Command::new("sh");
    closed
        .args(["-c", "exec \"$@\" <&-", "sh"])
        .arg(tare.get_program())
        .args(tare.get_args())
        .env("TARE_RUN_ROOT", place.run_root())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    copied(&end(closed.spawn().unwrap()), 0);
}

#[test]
fn input_is_waited_for_by_poll_select_and_epoll() {
    let place = TestDir::new();
    let Some(program) = program(&place) else {
        return;
    };
    for how in ["poll", "select", "epoll"] {
        let mut child = tare(&place, &program, &[how])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut pipe = child.stdin.take().unwrap();
        let mut out = child.stdout.take().unwrap();
        // A question each, answered before the next one.
        for round in 0..3_u8 {
            pipe.write_all(&[round; 5]).unwrap();
            let mut answer = [0xff; 5];
            out.read_exact(&mut answer).unwrap();
            assert_eq!(answer, [round; 5], "{how}");
        }
        let rest = bytes(200_000);
        let feeder = thread::spawn({
            let rest = rest.clone();
            move || pipe.write_all(&rest).unwrap()
        });
        let mut output = Vec::new();
        out.read_to_end(&mut output).unwrap();
        feeder.join().unwrap();
        assert!(output == rest, "{how}");
        copied(&end(child), 15 + rest.len());
    }
}

#[test]
fn streams_are_pipes_to_the_program() {
    let place = TestDir::new();
    let Some(program) = program(&place) else {
        return;
    };
    let facts = |command: &mut Command| {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        feed(&mut child, b"abc".to_vec()).join().unwrap();
        end(child)
    };
    let there = facts(&mut tare(&place, &program, &["facts"]));
    let here = facts(Command::new(&program).arg("facts"));
    there.expect(0, "");
    assert_eq!(there.out, here.out);
    assert_eq!(there.err, here.err);
    assert_eq!(there.err, "by /dev/stderr\n");
}

#[test]
fn a_reader_that_pauses_gets_everything_and_holds_up_no_request() {
    let place = TestDir::new();
    let Some(program) = program(&place) else {
        return;
    };
    // More than pipe and machine hold.
    let mut child = tare(&place, &program, &["write", "200", "5000"])
        .spawn()
        .unwrap();
    eventually("the pipe is full", || {
        console(&place, "tx_backpressure") > 0
    });
    place.run(&["ps"]).expect(0, "streams");
    place.run(&["set", "streams", "halt=kernel"]).expect(0, "");
    let output = output(&mut child);
    assert_eq!(output.len(), 200 * 5000);
    let line: Vec<u8> = (0..5000).map(|at| b'a' + (at % 26) as u8).collect();
    assert!(output.chunks(5000).all(|chunk| chunk == line));
    end(child).expect(3, "status 3");
}

/// The guest has ended; its last output waits for the reader.
#[test]
fn what_was_written_before_the_end_waits_for_the_reader() {
    let place = TestDir::new();
    let Some(program) = program(&place) else {
        return;
    };
    let mut child = tare(&place, &program, &["write", "22", "5000"])
        .spawn()
        .unwrap();
    eventually("the pipe is full", || {
        console(&place, "tx_backpressure") > 0
    });
    assert_eq!(output(&mut child).len(), 22 * 5000);
    end(child).expect(3, "status 3");
    assert!(place.run_directories().is_empty());
}

#[test]
fn a_reader_that_never_reads_keeps_no_signal_or_stop_from_ending_the_machine() {
    let place = TestDir::new();
    let Some(program) = program(&place) else {
        return;
    };
    // It goes on writing, or has ended and waits for its reader.
    for count in ["100000", "22"] {
        for ends in ["interrupt", "terminate", "stop"] {
            let mut command = tare(&place, &program, &["write", count, "5000"]);
            let child = command.spawn().unwrap();
            eventually("the pipe is full", || {
                console(&place, "tx_backpressure") > 0
            });
            let pid = Pid::from_child(&child);
            let code = match ends {
                "interrupt" => kill_process(pid, Signal::INT).map(|()| Some(130)).unwrap(),
                "terminate" => kill_process(pid, Signal::TERM).map(|()| Some(143)).unwrap(),
                _ => {
                    let stopped = place.run(&["stop", "--time", "60", "streams"]);
                    stopped.expect(0, "");
                    // Its own status where it ended before.
                    Some(if count == "22" { 3 } else { 143 })
                }
            };
            // No process has read until the machine was gone.
            eventually("the run directory is gone", || {
                place.run_directories().is_empty()
            });
            assert_eq!(end(child).code, code, "{count} {ends}");
        }
    }
}

#[test]
fn a_writer_and_a_reader_that_are_gone_end_the_pipeline() {
    let place = TestDir::new();
    let Some(program) = program(&place) else {
        return;
    };
    // The program ends before its input does.
    let tare_head = tare(&place, &program, &["head"]);
    let shell = |line: &str, tare: &Command| {
        let mut sh = Command::new("sh");
        sh.args(["-c", line, "sh"])
            .arg(tare.get_program())
            .args(tare.get_args())
            .env("TARE_RUN_ROOT", place.run_root())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        end(sh.spawn().unwrap())
    };
    let ended = shell("yes | \"$@\"", &tare_head);
    ended.expect(5, "status 5");
    assert_eq!(ended.out, "y\n");
    assert!(place.run_directories().is_empty());
    // Its reader ends before it does: SIGPIPE, as everywhere.
    let tare_write = tare(&place, &program, &["write", "1000000", "5000"]);
    let ended = shell("{ \"$@\"; echo \"code $?\" >&2; } | head -c 3", &tare_write);
    assert_eq!(ended.out, "abc");
    assert!(ended.err.contains("code 141"), "{ended:#?}");
    assert!(place.run_directories().is_empty());
}

#[test]
fn errors_and_the_logs_own_lines_are_apart_from_output() {
    let place = TestDir::new();
    let Some(program) = program(&place) else {
        return;
    };
    let args = ["run", &program, "--net", "none", "--cmdline", "log=debug"];
    let args = [&args[..], &["--", "write", "2", "3"]].concat();
    let ended = place.run(&args);
    ended.expect(3, "status 3");
    assert_eq!(ended.out, "abcabc");
    assert!(ended.err.contains("debug"), "{ended:#?}");
}

#[test]
fn in_the_background_output_goes_to_the_log_and_input_is_empty() {
    let place = TestDir::new();
    let Some(program) = program(&place) else {
        return;
    };
    let args = ["run", "-d", &program, "--net", "none", "--name", "streams"];
    let ended = place.run(&[&args[..], &["--", "facts"]].concat());
    ended.expect(0, "streams");
    let logs = || place.run(&["logs", "streams"]);
    // The program's last line comes before the monitor's end.
    eventually("it has ended", || {
        place.run(&["ps", "-a"]).out.contains("exit 0")
    });
    let out = logs().out;
    for line in [
        "0: terminal 0, pipe 1, access 0, seek 29",
        "read 0, then 0",
        "by /dev/stdout",
        "by /dev/stderr",
    ] {
        assert!(out.contains(line), "{line}: {out}");
    }
    place.run(&["rm", "streams"]).expect(0, "");
}

/// Before this device each byte was an exit to the monitor, and one for each sixteen asked
/// whether the port was ready: 1,088 a KiB.
#[test]
fn output_costs_a_notification_a_write_and_no_exit_to_the_monitor() {
    let place = TestDir::new();
    let Some(program) = program(&place) else {
        return;
    };
    let exits = |count: &str| {
        let mut child = tare(&place, &program, &["write", count, "1024", "wait"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = child.stdout.take().unwrap();
        let bytes = count.parse::<usize>().unwrap() * 1024;
        let mut all = vec![0; bytes];
        out.read_exact(&mut all).unwrap();
        assert_eq!(console(&place, "tx_bytes"), bytes as u64);
        let counted = (
            vcpu_exits(&place, "pio_out"),
            vcpu_exits(&place, "mmio_write"),
            console(&place, "notifications"),
        );
        let _ = kill_process(Pid::from_child(&child), Signal::TERM);
        end(child);
        counted
    };
    let few = exits("1");
    let many = exits("1025");
    println!("1 KiB {few:?}, 1,025 KiB {many:?}");
    // A device that is still busy needs no notification: many writes may need fewer than one.
    let more = |many: u64, few: u64| many.saturating_sub(few);
    assert!(more(many.0, few.0) < 100, "{few:?} {many:?}");
    assert!(more(many.1, few.1) < 100, "{few:?} {many:?}");
    assert!(more(many.2, few.2) <= 1100, "{few:?} {many:?}");
}

/// A counter of the console.
fn console(place: &TestDir, counter: &str) -> u64 {
    let stats = stats(place);
    let devices = stats["devices"].as_array();
    let console = devices
        .into_iter()
        .flatten()
        .find(|it| it["kind"] == "console");
    console.map_or(0, |it| it["counters"][counter].as_u64().unwrap())
}

fn vcpu_exits(place: &TestDir, kind: &str) -> u64 {
    let stats = stats(place);
    let vcpus = stats["vcpus"].as_array().into_iter().flatten();
    vcpus
        .map(|vcpu| vcpu["exits"][kind].as_u64().unwrap_or(0))
        .sum()
}

/// Null where the machine is not there.
fn stats(place: &TestDir) -> serde_json::Value {
    let stats = place.run(&["stats", "streams", "--json"]);
    serde_json::from_str(&stats.out).unwrap_or_default()
}
