//! Waiting for what another process or thread does.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest wait: far beyond what anything takes on a machine that is busy with other work, too.
pub const TIMEOUT: Duration = Duration::from_secs(180);
/// Of one read or write of a socket: longer than any answer takes, shorter than a test may hang.
pub const IO_TIMEOUT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(2);

/// Waits until `holds`.
///
/// # Panics
/// If it does not within [`TIMEOUT`].
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < TIMEOUT, "not within {TIMEOUT:?}: {what}");
        std::thread::sleep(PAUSE);
    }
}

/// Whether a process of this network namespace listens at the Unix socket `path`. The file is
/// there earlier: between `bind` and `listen` it refuses connections.
pub fn is_listening(path: &Path) -> bool {
    // `__SO_ACCEPTCON` in the flags (linux/net.h, net/unix/af_unix.c).
    const LISTENS: &str = "00010000";
    let table = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    table.lines().any(|line| {
        let mut words = line.split_whitespace();
        words.nth(3) == Some(LISTENS) && words.nth(3).map(Path::new) == Some(path)
    })
}

/// Whether an open file description holds a lock on the file at `path`, as a machine does on a disk.
/// The kernel releases it some time after the machine's process has ended: its io_uring has the file
/// until the last request is done.
///
/// # Panics
/// If there is no such file, or no `/proc/locks`.
pub fn is_locked(path: &Path) -> bool {
    let inode = fs::metadata(path).map(|it| it.ino().to_string());
    let inode = inode.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    // Of each lock: number, kind, mode, access, process, `MAJOR:MINOR:INODE`, range (proc(5)).
    let locks = fs::read_to_string("/proc/locks");
    let locks = locks.unwrap_or_else(|error| panic!("/proc/locks: {error}"));
    locks.lines().any(|lock| {
        let mut words = lock.split_whitespace().skip(1);
        let is_ours = words.next() == Some("OFDLCK");
        let file = words.nth(3).and_then(|file| file.rsplit(':').next());
        is_ours && file == Some(&inode)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, socket};

    use super::*;

    #[test]
    fn a_socket_that_is_bound_does_not_listen_yet() {
        let dir = tempfile::tempdir().unwrap();
        let (bound, listens) = (dir.path().join("bound"), dir.path().join("listens"));
        let stream = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        bind(&stream, &SocketAddrUnix::new(&bound).unwrap()).unwrap();
        let listener = UnixListener::bind(&listens).unwrap();
        assert!(bound.exists() && !is_listening(&bound));
        assert!(UnixStream::connect(&bound).is_err());
        assert!(is_listening(&listens));
        drop(listener);
        assert!(listens.exists() && !is_listening(&listens));
    }
}
