//! What systemd gives a service: sockets that it listens on (sd_listen_fds(3)), and a
//! socket for the service's state (sd_notify(3)).
#![allow(unsafe_code)]

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::time::Duration;

use rustix::io::{Errno, FdFlags, fcntl_setfd, retry_on_intr};
use rustix::net::sockopt::{socket_acceptconn, socket_domain, socket_type};
use rustix::net::{AddressFamily, SendFlags, SocketType, send};

use crate::failure::complain;

/// The first descriptor that is passed (`SD_LISTEN_FDS_START`).
const FIRST: i32 = 3;
/// Most sockets that are taken.
const MOST: i32 = 64;

/// Why passed sockets cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ActivationError {
    /// What is passed is not the number of a descriptor, or too many.
    #[error("invalid LISTEN_FDS {0:?} (1 to {MOST} sockets can be passed)")]
    Count(String),
    /// Descriptor of another kind.
    #[error("descriptor {0} of LISTEN_FDS is not a listening UNIX stream socket")]
    NotListening(i32),
}

/// The sockets that were passed to this process, in their order; empty without any.
pub fn sockets() -> Result<Vec<UnixListener>, ActivationError> {
    let ours = env::var("LISTEN_PID").is_ok_and(|pid| pid == std::process::id().to_string());
    let Some(count) = env::var("LISTEN_FDS").ok().filter(|_| ours) else {
        return Ok(Vec::new());
    };
    let known = count
        .parse()
        .ok()
        .filter(|count| (1..=MOST).contains(count))
        .ok_or(ActivationError::Count(count))?;
    (FIRST..FIRST + known).map(socket).collect()
}

fn socket(number: i32) -> Result<UnixListener, ActivationError> {
    let wrong = ActivationError::NotListening(number);
    // SAFETY: F_GETFD has no argument and takes any number.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    // Whoever passes a socket leaves it open across execve; what this process opened itself,
    // or has taken before, is closed there.
    if flags < 0 || flags & libc::FD_CLOEXEC != 0 {
        return Err(wrong);
    }
    // SAFETY: the descriptor is open, and nothing closes it before the next line but one.
    let seen = unsafe { BorrowedFd::borrow_raw(number) };
    if !listens(seen) || fcntl_setfd(seen, FdFlags::CLOEXEC).is_err() {
        return Err(wrong);
    }
    // SAFETY: it is open and a listening socket. The variables give it to this process, and
    // nothing here owns it: all that this process opens is close-on-exec from the start, and
    // this was not until the line before.
    Ok(unsafe { OwnedFd::from_raw_fd(number) }.into())
}

/// Whether it is a UNIX stream socket that listens.
fn listens(socket: BorrowedFd<'_>) -> bool {
    socket_domain(socket).is_ok_and(|family| family == AddressFamily::UNIX)
        && socket_type(socket).is_ok_and(|kind| kind == SocketType::STREAM)
        && socket_acceptconn(socket).is_ok_and(|listens| listens)
}

/// How long a supervisor may take to make room for `READY=1`.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Tells a supervisor what the service does, if one listens.
#[derive(Debug)]
pub struct Supervisor {
    socket: Option<UnixDatagram>,
    /// It wants to hear at least so often that all is well.
    watchdog: Option<Duration>,
}

impl Supervisor {
    /// The one that `NOTIFY_SOCKET` names, connected before the thread is confined.
    pub fn of_environment() -> io::Result<Self> {
        let Some(name) = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Ok(Self {
                socket: None,
                watchdog: None,
            });
        };
        let variable = |name| env::var(name).ok();
        let watchdog = watchdog(variable("WATCHDOG_USEC"), variable("WATCHDOG_PID"));
        Ok(Self {
            watchdog,
            ..Self::at(&name)?
        })
    }

    fn at(name: &OsStr) -> io::Result<Self> {
        let address = match name.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            _ => SocketAddr::from_pathname(name)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&address)?;
        socket.set_write_timeout(Some(TIMEOUT))?;
        Ok(Self {
            socket: Some(socket),
            watchdog: None,
        })
    }

    /// The one at the other end of `socket`, with a watchdog.
    #[cfg(test)]
    pub(crate) fn of_socket(socket: UnixDatagram, given: Duration) -> Self {
        Self {
            socket: Some(socket),
            watchdog: Some(given),
        }
    }

    /// The supervisor wants to hear [`alive`](Self::alive) again before this is over.
    pub(crate) fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    /// All threads answer. An error: the supervisor has not heard it.
    pub(crate) fn alive(&self) -> Result<(), Errno> {
        self.say("WATCHDOG=1", SendFlags::DONTWAIT)
    }

    /// Front-ends can connect. Waits for room: a supervisor that does not hear it ends a
    /// daemon that serves.
    pub(crate) fn ready(&self) {
        let state = format!("READY=1\nMAINPID={}", std::process::id());
        if let Err(errno) = self.say(&state, SendFlags::empty()) {
            complain(&format!("cannot tell the supervisor of READY=1: {errno}"));
        }
    }

    /// The end has begun. A supervisor that no longer listens is not waited for.
    pub(crate) fn stopping(&self) {
        let _ = self.say("STOPPING=1", SendFlags::DONTWAIT);
    }

    fn say(&self, state: &str, flags: SendFlags) -> Result<(), Errno> {
        let Some(socket) = &self.socket else {
            return Ok(());
        };
        let flags = flags | SendFlags::NOSIGNAL;
        retry_on_intr(|| send(socket, state.as_bytes(), flags)).map(drop)
    }
}

/// The time that a supervisor gives this process (sd_watchdog_enabled(3)).
fn watchdog(microseconds: Option<String>, pid: Option<String>) -> Option<Duration> {
    let ours = pid.is_none_or(|pid| pid == std::process::id().to_string());
    let given = microseconds.filter(|_| ours)?.parse().ok();
    given.filter(|it| *it > 0).map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsRawFd as _, IntoRawFd as _};

    /// Without close-on-exec, as systemd leaves it.
    fn passed(socket: impl std::os::fd::AsFd) -> OwnedFd {
        rustix::io::dup(socket).unwrap()
    }

    #[test]
    fn only_a_listening_socket_that_was_passed_is_taken() {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("s")).unwrap();
        let tcp = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let file = passed(std::fs::File::open("/dev/null").unwrap());
        let tcp = passed(tcp);
        let own = listener.as_raw_fd();
        for wrong in [own, file.as_raw_fd(), tcp.as_raw_fd(), i32::MAX] {
            let refused = socket(wrong).unwrap_err();
            assert!(matches!(refused, ActivationError::NotListening(it) if it == wrong));
        }
        // Nothing was closed.
        assert!(rustix::io::fcntl_getfd(&file).is_ok());
        assert!(listener.local_addr().is_ok());
        let given = passed(&listener).into_raw_fd();
        let taken = socket(given).unwrap();
        assert_eq!(taken.as_raw_fd(), given);
        // Nor is one taken twice.
        assert!(socket(given).is_err());
    }

    #[test]
    fn a_watchdog_is_for_the_process_that_it_names() {
        let own = || Some(std::process::id().to_string());
        let second = || Some("1000000".to_owned());
        assert_eq!(watchdog(second(), None), Some(Duration::from_secs(1)));
        assert_eq!(watchdog(second(), own()), Some(Duration::from_secs(1)));
        assert_eq!(watchdog(second(), Some("1".to_owned())), None);
        assert_eq!(watchdog(Some("0".to_owned()), None), None);
        assert_eq!(watchdog(Some("1s".to_owned()), None), None);
        assert_eq!(watchdog(None, own()), None);
    }

    #[test]
    fn ready_waits_for_a_supervisor_that_is_busy() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let heard = UnixDatagram::bind(&path).unwrap();
        let other = UnixDatagram::unbound().unwrap();
        other.connect(&path).unwrap();
        other.set_nonblocking(true).unwrap();
        while other.send(b"x").is_ok() {}
        let supervisor = Supervisor::at(path.as_os_str()).unwrap();
        // Does not wait.
        supervisor.stopping();
        let says = std::thread::spawn(move || supervisor.ready());
        let wait = Some(Duration::from_secs(30));
        heard.set_read_timeout(wait).unwrap();
        // It has to wait before there is room; if it comes later, it has less to wait for.
        std::thread::sleep(Duration::from_millis(100));
        let mut text = [0; 256];
        loop {
            let count = heard.recv(&mut text).unwrap();
            if text[..count].starts_with(b"READY=1\n") {
                break;
            }
            assert_eq!(&text[..count], b"x");
        }
        says.join().unwrap();
    }
}
