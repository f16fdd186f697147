//! `tare top`: a table without a terminal, and its screen on one.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use super::support::needs::skip;
use super::support::{TestDir, eventually, installed, output, process};
use super::{RunningMachine, ready, ready_with};

#[test]
fn top_prints_a_table_where_there_is_no_terminal() {
    let Some((_alone, image)) = ready() else {
        return;
    };
    let place = TestDir::new();
    let machine = RunningMachine::start(&place, &image, "mode=spin", &[]);
    let ended = place.run(&["top", "--once", "--sort", "cpu"]);
    ended.expect(0, "TOP CAUSE");
    let line = ended
        .out
        .lines()
        .find(|line| line.starts_with(&machine.name))
        .unwrap_or_else(|| panic!("{ended:#?}"));
    // On a busy host it may have got no CPU, or too little to count.
    let causes = ["spins", "steal", "guest"];
    assert!(causes.iter().any(|it| line.ends_with(it)), "{line}");
    assert!(ended.out.contains("FAULT/S"), "{ended:#?}");
}

/// `tare top` on a terminal of 80 by 24, and what it has written.
struct Screen {
    script: Child,
    written: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Screen {
    /// By this line of a shell, once it has drawn its table. Before that a key is the line
    /// discipline's, which makes a signal of it, or drops it.
    fn drawn(place: &TestDir, line: &str) -> Self {
        let line = format!("stty rows 24 cols 80; {line}");
        let mut script = Command::new("script")
            .args(["--quiet", "--return", "--command", &line, "/dev/null"])
            .env("TARE_RUN_ROOT", place.run_root())
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut out = script.stdout.take().unwrap();
        let written: Arc<Mutex<Vec<u8>>> = Arc::default();
        let kept = Arc::clone(&written);
        let reader = std::thread::spawn(move || {
            let mut more = [0; 4096];
            while let Ok(count @ 1..) = out.read(&mut more) {
                kept.lock().unwrap().extend_from_slice(&more[..count]);
            }
        });
        let screen = Self {
            script,
            written,
            reader,
        };
        eventually("it has drawn", || screen.text().contains("NAME "));
        screen
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.written.lock().unwrap()).into_owned()
    }

    /// All that it wrote, when it has ended.
    fn end(mut self) -> String {
        eventually("it has ended", || self.script.try_wait().unwrap().is_some());
        let text = Arc::clone(&self.written);
        self.reader.join().unwrap();
        let text = text.lock().unwrap();
        String::from_utf8_lossy(&text).into_owned()
    }
}

/// `tare top` with these keys: what it wrote.
fn top_on_a_terminal(place: &TestDir, keys: &[&[u8]]) -> String {
    let tare = env!("CARGO_BIN_EXE_tare");
    let line = format!("{tare} top --interval 0.5; echo ended=$?; stty -a");
    let mut screen = Screen::drawn(place, &line);
    let mut terminal = screen.script.stdin.take().unwrap();
    for key in keys {
        std::thread::sleep(Duration::from_millis(1500));
        std::io::Write::write_all(&mut terminal, key).unwrap();
    }
    screen.end()
}

#[test]
fn top_that_sigterm_ends_puts_the_terminal_back() {
    if !installed("script") {
        skip("script is not installed");
        return;
    }
    let place = TestDir::new();
    let file = place.path().join("pid");
    let line = format!(
        "sh -c 'echo $$ > {}; exec {} top --interval 0.5'; echo ended=$?; stty -a",
        file.display(),
        env!("CARGO_BIN_EXE_tare")
    );
    let screen = Screen::drawn(&place, &line);
    let pid = std::fs::read_to_string(file).unwrap();
    output("kill", &["-TERM", pid.trim()]);
    let text = screen.end();
    let (_, after) = text
        .split_once("\x1b[?1049l")
        .expect("the other screen is left");
    assert!(after.contains("ended=143"), "{after}");
    let is_back = after.contains(" echo") && after.contains(" icanon");
    assert!(is_back, "{after}");
}

/// As below `nohup`, where a terminal that is closed ends no program.
#[test]
fn top_ends_when_its_terminal_is_closed() {
    let Some((_alone, image)) = ready_with("script") else {
        return;
    };
    let place = TestDir::new();
    let _machine = RunningMachine::start(&place, &image, "mode=spin", &[]);
    let file = place.path().join("pid");
    let line = format!(
        "trap '' HUP; echo $$ > {}; exec {} top --interval 0.5",
        file.display(),
        env!("CARGO_BIN_EXE_tare")
    );
    let mut screen = Screen::drawn(&place, &line);
    screen.script.kill().unwrap();
    screen.end();
    let pid = std::fs::read_to_string(file).unwrap();
    process::is_gone(pid.trim().parse().unwrap());
}

#[test]
fn top_draws_on_a_terminal_and_puts_it_back() {
    let Some((_alone, image)) = ready_with("script") else {
        return;
    };
    let place = TestDir::new();
    let machine = RunningMachine::start(&place, &image, "mode=spin", &[]);
    for end in [b"q".as_slice(), b"\x03"] {
        let text = top_on_a_terminal(&place, &[b"n", b"h", b" ", end]);
        let leave = "\x1b[?1049l";
        let (shown, after) = text.split_once(leave).expect("the other screen is left");
        let mut screen = vt100::Parser::new(24, 80, 0);
        screen.process(shown.as_bytes());
        let contents = screen.screen().contents();
        assert!(contents.contains("TOP CAUSE"), "{contents}");
        assert!(contents.contains(&machine.name), "{contents}");
        assert!(after.contains("ended=0"), "{after}");
        assert!(
            after.contains(" echo") && after.contains(" icanon"),
            "{after}"
        );
    }
}
