//! Test support for the whole monitor: tiny guests as ELF files with a PVH note, a run directory, a
//! started `tare-monitor`.

#![allow(dead_code, clippy::unwrap_used)]

pub(crate) mod code;
pub(crate) mod elf;

use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tare_control::client::Client;
use tare_control::rundir::{RunDir, RunRoot};

/// Longest time for anything that should happen.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) use tare_vmtest::{eventually, kvm};

/// Standard output of the monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Screen {
    /// Collected.
    Read,
    /// A pipe whose reader is gone.
    Closed,
    /// A pipe without a reader.
    Ignored,
}

/// A machine to be started.
pub(crate) struct Rig {
    image: Vec<u8>,
    config: Value,
    input: Option<Vec<u8>>,
    screen: Screen,
    passed: Vec<OwnedFd>,
    directory: tempfile::TempDir,
}

/// A machine that runs.
pub(crate) struct Running {
    child: Child,
    pub run_dir: RunDir,
    pub root: RunRoot,
    input: Option<std::process::ChildStdin>,
    _directory: tempfile::TempDir,
}

/// How a machine ended.
#[derive(Debug)]
pub(crate) struct MonitorOutput {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub run_dir_left: bool,
}

impl Rig {
    /// One vCPU, 16 MiB, the guest's code at its entry in 32-bit mode.
    pub(crate) fn new(code: &[u8]) -> Self {
        Self::with_image(elf::pvh(code))
    }

    /// The same with any bytes as the image.
    pub(crate) fn with_image(image: Vec<u8>) -> Self {
        let config = json!({
            "cpus": 1,
            "memory_mib": 16,
            "cmdline": "",
            "image_path": "test",
            "initrd": null,
            "net": null,
            "rng": true,
        });
        Self {
            image,
            config,
            input: None,
            screen: Screen::Read,
            passed: Vec::new(),
            directory: tempfile::tempdir().unwrap(),
        }
    }

    /// Changes the configuration.
    #[must_use]
    pub(crate) fn set(mut self, key: &str, value: Value) -> Self {
        self.config[key] = value;
        self
    }

    /// Sends `input` to standard input and keeps it open.
    #[must_use]
    pub(crate) fn input(mut self, input: &[u8]) -> Self {
        self.input = Some(input.to_vec());
        self
    }

    /// Chooses the standard output.
    #[must_use]
    pub(crate) fn screen(mut self, screen: Screen) -> Self {
        self.screen = screen;
        self
    }

    /// Passes a network stream socket.
    #[must_use]
    pub(crate) fn stream(mut self, socket: OwnedFd) -> Self {
        self.config["net"] = json!({
            "mac": [2, 0, 0, 0, 0, 1],
            "mtu": 1500,
            "backend": {
                "kind": "stream",
                "fd": socket.as_raw_fd(),
                "filter": {"host": [], "allow": [], "gateways": []},
            },
        });
        self.passed.push(socket);
        self
    }

    /// Limits the network that [`Self::stream`] passed, in each direction.
    #[must_use]
    pub(crate) fn net_bytes_per_s(mut self, limit: u64) -> Self {
        self.config["net"]["bytes_per_s"] = limit.into();
        self
    }

    /// Passes a disk with one queue.
    #[must_use]
    pub(crate) fn disk(mut self, file: File) -> Self {
        self.config["disks"] = json!([{
            "path": "disk.img",
            "file": file.as_raw_fd(),
            "read_only": false,
            "cache": "writeback",
            "serial": "test",
            "queues": 1,
            "coalesce": "auto",
        }]);
        self.passed.push(file.into());
        self
    }

    /// Changes what [`Self::disk`] says of the disk.
    #[must_use]
    pub(crate) fn change_disk(mut self, key: &str, value: Value) -> Self {
        self.config["disks"][0][key] = value;
        self
    }

    /// Starts the monitor.
    pub(crate) fn start(mut self) -> Running {
        let root = RunRoot::open(self.directory.path().join("run")).unwrap();
        let (run_dir, lock) = root.create("test").unwrap();
        let log = File::options()
            .create(true)
            .append(true)
            .read(true)
            .open(run_dir.console_log())
            .unwrap();
        let control = UnixListener::bind(run_dir.control_socket()).unwrap();
        let image = memory_file(&self.image);
        let given = self.config.get("name").cloned();
        self.config["name"] = given.unwrap_or_else(|| "test".into());
        self.config["run_dir"] = run_dir.path().to_str().unwrap().into();
        for (key, fd) in [
            ("image", image.as_raw_fd()),
            ("control", control.as_raw_fd()),
            ("lock", lock.as_raw_fd()),
        ] {
            let default = fd.into();
            let given = self.config.get(key).cloned();
            self.config[key] = given.unwrap_or(default);
        }
        self.config["console"] = json!({"kind": "stdio", "log": log.as_raw_fd()});
        let text = self.config.to_string();
        std::fs::write(run_dir.machine_json(), &text).unwrap();
        let config = memory_file(text.as_bytes());
        let number = config.as_raw_fd().to_string();
        let mut passed: Vec<OwnedFd> = vec![
            image.into(),
            control.into(),
            lock.into(),
            log.into(),
            config.into(),
        ];
        passed.append(&mut self.passed);
        let mut child = spawn(&number, passed, self.screen);
        let mut input = child.stdin.take();
        match (&self.input, &mut input) {
            (Some(bytes), Some(pipe)) => pipe.write_all(bytes).unwrap(),
            _ => input = None,
        }
        Running {
            child,
            run_dir,
            root,
            input,
            _directory: self.directory,
        }
    }

    /// Starts the monitor and waits for its end.
    pub(crate) fn run(self) -> MonitorOutput {
        self.start().wait()
    }
}

/// Descriptors pass to a child with their close-on-exec flag off. One start at a time, so that they
/// do not pass to another test's child as well.
fn spawn(config: &str, passed: Vec<OwnedFd>, screen: Screen) -> Child {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap();
    for fd in &passed {
        fcntl_setfd(fd, FdFlags::empty()).unwrap();
    }
    let mut child = Command::new(env!("CARGO_BIN_EXE_tare-monitor"))
        .args(["--config", config])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(passed);
    if screen == Screen::Closed {
        drop(child.stdout.take());
    }
    child
}

fn memory_file(bytes: &[u8]) -> File {
    let mut file = File::from(memfd_create("test", MemfdFlags::CLOEXEC).unwrap());
    file.write_all(bytes).unwrap();
    file
}

impl Running {
    /// A client of the control socket.
    pub(crate) fn client(&self) -> Client {
        Client::new(self.run_dir.control_socket()).with_timeout(TIMEOUT)
    }

    /// The monitor's process.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Closes standard input.
    pub(crate) fn close_input(&mut self) {
        self.input = None;
    }

    /// What the guest wrote so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.run_dir.console_log()).unwrap_or_default()
    }

    /// Waits until the guest wrote `text`.
    pub(crate) fn wait_for(&self, text: &str) {
        eventually(&format!("the guest writes {text:?}"), || {
            self.log().contains(text)
        });
    }

    /// Waits for the end.
    pub(crate) fn wait(mut self) -> MonitorOutput {
        let streams = (self.child.stdout.take(), self.child.stderr.take());
        let stdout = thread::spawn(move || streams.0.map_or_else(String::new, read_all));
        let stderr = thread::spawn(move || streams.1.map_or_else(String::new, read_all));
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if begin.elapsed() > TIMEOUT {
                self.child.kill().unwrap();
                panic!(
                    "the monitor does not end; console: {:?}, stderr: {:?}",
                    self.log(),
                    stderr.join().unwrap()
                );
            }
            thread::sleep(Duration::from_millis(2));
        };
        MonitorOutput {
            code: status.code(),
            signal: status.signal(),
            stdout: stdout.join().unwrap(),
            stderr: without_landlock(&stderr.join().unwrap()),
            run_dir_left: self.run_dir.path().exists(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A failed test leaves no process.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking()
            && let Some(stderr) = self.child.stderr.take()
        {
            println!("the monitor said: {}", read_all(stderr));
        }
    }
}

impl MonitorOutput {
    /// Checks the exit code, the message, and that nothing is left.
    pub(crate) fn expect(&self, code: u8, message: &str) {
        assert_eq!(self.code, Some(code.into()), "{self:?}");
        assert!(self.stderr.contains(message), "{self:?}");
        assert!(!self.run_dir_left, "{self:?}");
    }
}

/// The one line that a kernel without Landlock brings.
fn without_landlock(stderr: &str) -> String {
    let lines = stderr.split_inclusive('\n');
    lines.filter(|line| !line.contains("Landlock")).collect()
}

fn read_all(mut stream: impl std::io::Read) -> String {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The monitor with arguments and nothing else.
pub(crate) fn bare(arguments: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_tare-monitor"))
        .args(arguments)
        .output()
        .unwrap()
}
