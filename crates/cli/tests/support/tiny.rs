//! Behaviour of a machine with a tiny guest that is the same under both engines. The arguments name
//! the engine, and no network.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use super::guest::{self, Then};
use super::{TestDir, end, eventually, output};

/// What the guest prints.
const LINE: &str = "hello from ring 0";

/// A guest that prints its line and halts.
fn image(place: &TestDir) -> String {
    place.file("tiny", &guest::image(LINE, Then::Halt))
}

/// Waits until the guest of the machine `web` has printed.
pub(crate) fn has_spoken(place: &TestDir) {
    let log = place.run_root().join("web/console.log");
    eventually("the guest has spoken", || {
        fs::read_to_string(&log).is_ok_and(|log| log.contains(LINE))
    });
}

/// A machine called `web` in the foreground whose guest has printed.
pub(crate) fn foreground(place: &TestDir, args: &[&str]) -> Child {
    let image = image(place);
    let all = [&["run", &image, "--name", "web"], args].concat();
    let child = place.tare(&all).spawn().unwrap();
    has_spoken(place);
    child
}

/// Under nohup(1) a machine outlives its terminal, whose hangup reaches all processes of the job: a
/// process that would end by it has left the job.
pub(crate) fn survives_a_hangup(args: &[&str]) {
    let place = TestDir::new();
    let image = image(&place);
    let tare = place.tare(&[&["run", &image, "--name", "web"], args].concat());
    let mut nohup = Command::new("sh");
    nohup.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]);
    nohup.arg(tare.get_program()).args(tare.get_args());
    nohup.env("TARE_RUN_ROOT", place.run_root());
    nohup.stdin(Stdio::null()).stdout(Stdio::piped());
    let child = nohup
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap();
    has_spoken(&place);
    let job = job(child.id());
    assert!(job.contains(&child.id()), "{job:?}");
    for pid in job {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let ignored = u64::from_str_radix(ignored.unwrap().trim(), 16).unwrap();
        // SIGHUP is 1.
        assert_eq!(ignored & 1, 1, "{status}");
    }
    output("kill", &["-HUP", "--", &format!("-{}", child.id())]);
    place.run(&["ps"]).expect(0, "web");
    output("kill", &["-TERM", &child.id().to_string()]);
    end(child).expect(143, LINE);
    assert!(place.run_directories().is_empty());
}

/// The processes of a process group (`proc_pid_stat(5)`: after the name state, parent, group).
fn job(group: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let numbers = processes.filter_map(|it| it.file_name().to_str()?.parse().ok());
    let is_in = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields = stat.rsplit_once(") ").map(|(_, fields)| fields);
        let own = fields.and_then(|fields| fields.split_ascii_whitespace().nth(2));
        own.and_then(|own| own.parse().ok()) == Some(group)
    };
    numbers.filter(is_in).collect()
}

/// Signals end a run with their code.
pub(crate) fn ends_by_signals(args: &[&str]) {
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let place = TestDir::new();
        let child = foreground(&place, args);
        output("kill", &[signal, &child.id().to_string()]);
        end(child).expect(code, LINE);
        assert!(place.run_directories().is_empty());
    }
}

/// A machine in the background, the first of its image, is listed, read and stopped;
/// `meanwhile` it runs.
pub(crate) fn runs_in_the_background(args: &[&str], meanwhile: impl FnOnce(&TestDir)) {
    let place = TestDir::new();
    let image = image(&place);
    let started = place.run(&[&["run", &image, "-d"], args].concat());
    assert_eq!(
        (started.code, started.out.as_str()),
        (Some(0), "tiny-1\n"),
        "{started:#?}"
    );
    place.run(&["ps"]).expect(0, "tiny-1");
    eventually("the guest's line is in the log", || {
        place.run(&["logs", "tiny-1"]).out.contains(LINE)
    });
    meanwhile(&place);
    let following = place.tare(&["logs", "-f", "tiny-1"]).spawn().unwrap();
    let descriptors = format!("/proc/{}/fd", following.id());
    eventually("the log is being followed", || {
        fs::read_dir(&descriptors).is_ok_and(|open| {
            open.flatten()
                .filter_map(|link| fs::read_link(link.path()).ok())
                .any(|file| file.ends_with("console.log"))
        })
    });
    let stopped = place.run(&["stop", "tiny-1"]);
    assert_eq!(
        (stopped.code, stopped.err.as_str()),
        (Some(0), ""),
        "asked, not killed"
    );
    end(following).expect(0, LINE);
    assert!(place.run_directories().is_empty());
}

/// A machine in the background whose guest panics is listed with its exit code, and its
/// log can be read, until it is removed. `writes` make it live long enough to start.
pub(crate) fn keeps_what_a_panic_left(args: &[&str], writes: u32) {
    let place = TestDir::new();
    let image = place.file("tiny", &guest::image(LINE, Then::ExitAfter(0x20, writes)));
    let started = place.run(&[&["run", &image, "-d", "--net", "none"], args].concat());
    assert_eq!(started.code, Some(0), "{started:#?}");
    eventually("the guest has panicked", || {
        place.run(&["ps", "-a"]).out.contains("exit 70")
    });
    assert_eq!(place.run(&["ps"]).out.lines().count(), 1);
    place.run(&["logs", "tiny-1"]).expect(0, LINE);
    place.run(&["rm", "tiny-1"]).expect(0, "");
    assert!(place.run_directories().is_empty());
}
