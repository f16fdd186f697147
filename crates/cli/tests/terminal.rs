//! The terminal of a machine that is killed, in Tare's monitor and in QEMU: its mode and flags are
//! as before.
//!
//! They need /dev/kvm and `tare-monitor` beside `tare`, or QEMU, and script(1), and SKIP without; with
//! TARE_REQUIRE_KVM=1 a skip fails.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};

use serde_json::Value;
use support::guest::{self, Then};
use support::needs::{kvm, qemu, skip};
use support::{TestDir, end, eventually, installed, output, process, tiny};

const LINE: &str = "hello from ring 0";
/// What a shell prints of its terminal.
const STATE: &str = "state() { stty -a; sed -n 's/^flags://p' /proc/self/fdinfo/0; }";

/// A shell on a terminal that starts the machine `web`, and the state of the terminal before and after.
struct Shell {
    place: TestDir,
    script: Child,
}

impl Shell {
    fn start(args: &str) -> Self {
        let place = TestDir::new();
        let image = place.file("tiny", &guest::image(LINE, Then::Halt));
        let line = format!(
            "{STATE}; cd {}; tty > tty; state > before; \
             {} run {image} --name web --net none {args}; state > after",
            place.path().display(),
            env!("CARGO_BIN_EXE_tare"),
        );
        let tare = place.tare(&["--quiet", "--return", "--command", &line, "/dev/null"]);
        let mut script = process::of(Path::new("script"), &tare);
        script.stdin(Stdio::piped()).stdout(Stdio::piped());
        let script = script.stderr(Stdio::piped()).spawn().unwrap();
        tiny::has_spoken(&place);
        Self { place, script }
    }

    /// The machine, once it has changed the terminal.
    fn machine(&self) -> Value {
        let terminal = self.read("tty");
        eventually("the terminal is the machine's", || {
            let state = output("stty", &["-a", "-F", terminal.trim()]).stdout;
            String::from_utf8_lossy(&state).contains("-icanon")
        });
        let json = self.place.run(&["ps", "--json"]).out;
        let rows: Value = serde_json::from_str(&json).unwrap();
        rows[0].clone()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.place.path().join(name)).unwrap()
    }

    /// Compares the states when the machine has ended.
    fn end(mut self) {
        eventually("the shell has ended", || {
            self.script.try_wait().unwrap().is_some()
        });
        let before = self.read("before");
        assert!(before.contains(" icanon"), "{before}");
        assert_eq!(self.read("after"), before);
        drop(end(self.script));
    }
}

fn kill(pid: &Value) {
    output("kill", &["-KILL", &pid.to_string()]);
}

fn script() -> bool {
    installed("script") || skip("script is not installed")
}

#[test]
fn a_machine_that_is_killed_leaves_its_terminal_as_it_was() {
    if !kvm() || !script() {
        return;
    }
    let shell = Shell::start("");
    kill(&shell.machine()["pid"]);
    shell.end();
}

#[test]
fn a_kept_machine_that_is_killed_leaves_its_terminal_as_it_was() {
    if !kvm() || !script() {
        return;
    }
    let shell = Shell::start("--restart on-failure:1");
    let first = shell.machine();
    kill(&first["pid"]);
    eventually("another process runs it", || {
        let now = shell.machine();
        let another = now["pid"] != first["pid"] && now["pid"] != now["keeper"]["pid"];
        now["restarts"] == 1 && another
    });
    kill(&shell.machine()["pid"]);
    shell.end();
}

#[test]
fn a_machine_in_qemu_that_is_killed_leaves_its_terminal_as_it_was() {
    if !qemu() || !script() {
        return;
    }
    let shell = Shell::start("--engine qemu");
    let pid = shell.machine()["pid"].as_u64().unwrap();
    let qemu = process::children(u32::try_from(pid).unwrap(), "qemu-system");
    assert_eq!(qemu.len(), 1, "{qemu:?}");
    kill(&qemu[0].into());
    shell.end();
}
