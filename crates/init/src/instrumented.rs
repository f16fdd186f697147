//! Execution counts of an instrumented kernel: from its debugfs to the second serial port, when the host asks
//! or the command has ended.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::mount::{MountFlags, mount};
use rustix::termios::{OptionalActions, tcdrain, tcgetattr, tcsetattr};
use tare_init::counts;

use crate::console::say;

/// Where the file system is mounted.
const DEBUGFS: &str = "/sys/kernel/debug";
/// Where the kernel has them (`kernel/gcov/fs.c`).
const COUNTS: &str = "/sys/kernel/debug/gcov";
/// A write to it sets all of them to 0.
const RESET: &str = "/sys/kernel/debug/gcov/reset";
/// What their files end with.
const KIND: &str = "gcda";
/// Directories in directories.
const DEPTH: usize = 64;

/// The port, until the counts were sent.
pub(crate) struct Counted(Arc<Mutex<Option<File>>>);

/// Has the kernel count anew, and waits at the port for the host's request. What fails is reported: the host
/// then gets no counts, and says so.
pub(crate) fn prepare() -> Option<Counted> {
    mount_debugfs();
    // What the kernel has executed to start would outweigh what the command has it execute.
    if let Err(error) = fs::write(RESET, "1") {
        say(&format!("this kernel counts nothing: {RESET}: {error}"));
    }
    let prepared = open();
    let port = prepared.map_err(|error| say(&format!("{}: {error}", counts::PORT)));
    let port = port.ok()?;
    let requests = port.try_clone().ok()?;
    let shared = Arc::new(Mutex::new(Some(port)));
    let sender = Counted(Arc::clone(&shared));
    thread::spawn(move || wait(requests, &sender));
    Some(Counted(shared))
}

/// The port, which changes no byte.
fn open() -> io::Result<File> {
    let port = OpenOptions::new()
        .read(true)
        .write(true)
        .open(counts::PORT)?;
    let mut settings = tcgetattr(&port)?;
    settings.make_raw();
    tcsetattr(&port, OptionalActions::Now, &settings)?;
    Ok(port)
}

fn wait(mut requests: File, sender: &Counted) {
    let mut byte = [0];
    while let Ok(1) = requests.read(&mut byte) {
        if byte[0] == counts::REQUEST {
            return sender.send();
        }
    }
}

impl Counted {
    /// Sends them, if they were not sent.
    pub(crate) fn send(&self) {
        // Held until all is sent: the machine may end after it.
        let Ok(mut port) = self.0.lock() else { return };
        let Some(mut port) = port.take() else { return };
        let mut list = Vec::new();
        add(&mut list, Path::new(COUNTS), DEPTH);
        let short = counts::shortened(&list);
        let sent = port
            .write_all(counts::header(short.len()).as_bytes())
            .and_then(|()| port.write_all(&short))
            .and_then(|()| Ok(tcdrain(&port)?));
        if let Err(error) = sent {
            say(&format!("cannot send the counts of the kernel: {error}"));
        }
    }
}

fn mount_debugfs() {
    let safe = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    if let Err(errno) = mount("debugfs", DEBUGFS, "debugfs", safe, None) {
        say(&format!("this kernel has no debugfs: {errno}"));
    }
}

/// Adds the files of a directory, which are as long as they are read.
fn add(list: &mut Vec<u8>, dir: &Path, depth: usize) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        if kind.is_dir() && depth > 0 {
            add(list, &path, depth - 1);
        } else if kind.is_file() && path.extension().is_some_and(|it| it == KIND) {
            let name = path.strip_prefix(COUNTS).unwrap_or(&path);
            match fs::read(&path) {
                Ok(content) => counts::add(list, name.as_os_str().as_encoded_bytes(), &content),
                Err(error) => say(&format!("cannot read {}: {error}", path.display())),
            }
        }
    }
}
