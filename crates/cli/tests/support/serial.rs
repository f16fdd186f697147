//! Linux guests in QEMU's translator that a test drives over their serial line.

use std::io::{BufRead as _, BufReader, Seek as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tare_host::child::ends_with_us;
use tare_rootfs::kernel::debian;
use tare_rootfs::modules::Modules;
use tare_rootfs::tree::Node;
use tare_rootfs::{Cache, Kernel, Tree, cpio};

use super::TestDir;

/// A running guest, killed when dropped.
pub(crate) struct SerialGuest {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

impl SerialGuest {
    /// Starts QEMU, whose guest has its console on the serial line (`-serial stdio`).
    pub(crate) fn start(qemu: &mut Command) -> Self {
        // Also if the tests are killed.
        let mut child = ends_with_us(qemu, Signal::KILL)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // It lists the features of the processor that it lacks.
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let serial = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in serial.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let stdin = child.stdin.take().unwrap();
        Self {
            child,
            stdin,
            lines,
        }
    }

    /// The next line without its end; `None` if none comes until then.
    pub(crate) fn line(&self, deadline: Instant) -> Option<String> {
        let left = deadline.saturating_duration_since(Instant::now());
        let line = self.lines.recv_timeout(left).ok()?;
        Some(line.trim_end().to_owned())
    }

    /// Writes a line.
    pub(crate) fn write(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").unwrap();
    }

    /// Whether QEMU ends within that time.
    pub(crate) fn ends_within(&mut self, limit: Duration) -> bool {
        let begin = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            if begin.elapsed() >= limit {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        true
    }
}

impl Drop for SerialGuest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Debian's kernel, or why there is none.
pub(crate) fn debian_kernel() -> Result<Kernel, String> {
    let cache = Cache::open_default().map_err(|error| error.to_string())?;
    debian::find_or_obtain(&cache).map_err(|error| error.to_string())
}

/// Adds modules of the kernel, and those that they need, as `modules/*.ko`, in the order in which they load.
pub(crate) fn add_modules(tree: &mut Tree, kernel: &Kernel, names: &[&str]) {
    let modules = Modules::open(&kernel.modules).unwrap();
    for (number, module) in modules.closure(names).unwrap().iter().enumerate() {
        let node = Node::host(&module.path, 0o644).unwrap();
        let name = format!("modules/{number:03}-{}.ko", module.name);
        tree.insert(&name, node).unwrap();
    }
}

/// Packs files, with that script as the first process, into an initramfs of the place.
pub(crate) fn initramfs(place: &TestDir, mut tree: Tree, script: String) -> PathBuf {
    tree.insert("init", Node::bytes(script.into_bytes(), 0o755))
        .unwrap();
    let path = place.path().join("initramfs");
    let mut packed = cpio::pack(&tree).unwrap();
    packed.rewind().unwrap();
    std::io::copy(&mut packed, &mut std::fs::File::create(&path).unwrap()).unwrap();
    path
}
