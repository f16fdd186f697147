//! Shared by the tests of the program: a `tare` with separate run directories and a time limit,
//! tiny guests of a few bytes, and checks for what a test needs.
#![allow(dead_code, unused_imports, clippy::unwrap_used)]

pub(crate) mod cargo;
pub(crate) mod compile;
pub(crate) mod fuse;
pub(crate) mod guest;
pub(crate) mod needs;
pub(crate) mod packages;
pub(crate) mod process;
pub(crate) mod serial;
pub(crate) mod suites;
pub(crate) mod tiny;

use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

pub(crate) use tare_vmtest::{
    IO_TIMEOUT, TIMEOUT, eventually, free_port, installed, is_listening, is_locked,
};
use tempfile::TempDir;

/// A place for one test: separate run directories and files.
pub(crate) struct TestDir {
    pub dir: TempDir,
    cache: TempDir,
}

impl TestDir {
    pub(crate) fn new() -> Self {
        let [dir, cache] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        // Kernels and what else was obtained once; archives of roots are the test's own.
        let shared = tare_rootfs::Cache::open_default().map(|cache| cache.dir().read_dir());
        for entry in shared.into_iter().flatten().flatten().flatten() {
            if entry.file_name() != "roots" {
                symlink(entry.path(), cache.path().join(entry.file_name())).unwrap();
            }
        }
        Self { dir, cache }
    }

    /// Where archives of roots are.
    pub(crate) fn archives(&self) -> std::path::PathBuf {
        self.cache.path().join("roots")
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Where this place's machines are.
    pub(crate) fn run_root(&self) -> std::path::PathBuf {
        self.path().join("run")
    }

    /// A file with that content; its path as a word.
    pub(crate) fn file(&self, name: &str, content: &[u8]) -> String {
        let path = self.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// `tare` with these arguments.
    pub(crate) fn tare(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tare"));
        command
            .args(args)
            .env("TARE_RUN_ROOT", self.run_root())
            .env("TARE_CACHE", self.cache.path())
            .env_remove("TARE_IMAGES")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs `tare` to its end.
    pub(crate) fn run(&self, args: &[&str]) -> CommandOutput {
        end(self.tare(args).spawn().unwrap())
    }

    /// A machine called `db`, without a network, whose guest loads `disk` as `job` says.
    pub(crate) fn loads_disk(&self, image: &Path, disk: &str, job: &str) -> Child {
        let image = image.to_str().unwrap();
        let args = ["run", image, "--net", "none", "--name", "db", "--disk"];
        let args = [&args[..], &[disk, "--cmdline", job]].concat();
        self.tare(&args).spawn().unwrap()
    }

    /// Names of the machines that have a run directory.
    pub(crate) fn run_directories(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.run_root()) else {
            return Vec::new();
        };
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| !name.starts_with('.'))
            .collect()
    }
}

/// A test that fails leaves no machine running in the background.
impl Drop for TestDir {
    fn drop(&mut self) {
        for name in self.run_directories() {
            let _ = self
                .tare(&["stop", &name, "--time", "1"])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
        }
    }
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl CommandOutput {
    /// Fails the test unless the command ended with this code and this text.
    #[track_caller]
    pub(crate) fn expect(&self, code: i32, text: &str) {
        assert_eq!(self.code, Some(code), "{self:#?}");
        let said = self.err.contains(text) || self.out.contains(text);
        assert!(said, "{text:?} is not in {self:#?}");
    }
}

/// Waits for the end, for a bounded time.
pub(crate) fn end(child: Child) -> CommandOutput {
    end_within(TIMEOUT, child)
}

/// The same for a command that compiles.
pub(crate) fn end_within(limit: Duration, child: Child) -> CommandOutput {
    let (ended, is_killed) = end_or_kill(limit, child);
    assert!(!is_killed, "no end after {limit:?}: {ended:?}");
    ended
}

/// The same, and whether it had to be killed.
pub(crate) fn end_or_kill(limit: Duration, mut child: Child) -> (CommandOutput, bool) {
    let out = reader(child.stdout.take());
    let err = reader(child.stderr.take());
    let begin = Instant::now();
    let (status, is_killed) = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break (status, false);
        }
        if begin.elapsed() > limit {
            child.kill().unwrap();
            break (child.wait().unwrap(), true);
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let ended = CommandOutput {
        code: status.code(),
        out: out.join().unwrap(),
        err: err.join().unwrap(),
    };
    (ended, is_killed)
}

fn reader(from: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut from) = from {
            let _ = from.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// The output of a short command.
pub(crate) fn output(program: &str, args: &[&str]) -> Output {
    Command::new(program).args(args).output().unwrap()
}

/// One request on a new connection to a server that serves already; the whole answer.
pub(crate) fn served(port: u16, path: &str) -> String {
    get_within(IO_TIMEOUT, port, path).unwrap()
}

/// The same where none may come yet: an error after a while, for the next try.
pub(crate) fn get(port: u16, path: &str) -> std::io::Result<String> {
    get_within(Duration::from_secs(2), port, path)
}

/// The same with a limit on each wait for a part of the answer.
pub(crate) fn get_within(limit: Duration, port: u16, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(limit))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
