//! What systemd gives a service: sockets that it listens on (sd_listen_fds(3)), and a
//! socket for the service's state (sd_notify(3)).
#![allow(unsafe_code)]

use std::env;
use std::io;
use std::os::fd::{AsFd as _, FromRawFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};

use rustix::net::SocketType;
use rustix::net::sockopt::{socket_acceptconn, socket_type};

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

/// The sockets that were passed to this process, in their order; none where there are none.
pub fn sockets() -> Result<Vec<UnixListener>, ActivationError> {
    let ours = env::var("LISTEN_PID").is_ok_and(|pid| pid == std::process::id().to_string());
    let Some(count) = env::var("LISTEN_FDS").ok().filter(|_| ours) else {
        return Ok(Vec::new());
    };
    let known = count
        .parse()
        .ok()
        .filter(|count| (1..=MOST).contains(count));
    let known = known.ok_or(ActivationError::Count(count))?;
    (FIRST..FIRST + known).map(socket).collect()
}

fn socket(number: i32) -> Result<UnixListener, ActivationError> {
    let wrong = ActivationError::NotListening(number);
    // SAFETY: the variables say that whoever started this process left it this
    // descriptor, and nothing else here takes one by its number. A number that is not
    // open fails in what follows.
    let socket = unsafe { OwnedFd::from_raw_fd(number) };
    let stream = socket_type(&socket).is_ok_and(|kind| kind == SocketType::STREAM);
    let listens = socket_acceptconn(&socket).is_ok_and(|listens| listens);
    let close_on_exec = rustix::io::fcntl_setfd(socket.as_fd(), rustix::io::FdFlags::CLOEXEC);
    if !stream || !listens || close_on_exec.is_err() {
        return Err(wrong);
    }
    let listener = UnixListener::from(socket);
    match listener.local_addr() {
        Ok(_) => Ok(listener),
        Err(_) => Err(wrong),
    }
}

/// Tells a supervisor what the service does, if one listens.
#[derive(Debug)]
pub struct Supervisor(Option<UnixDatagram>);

impl Supervisor {
    /// The one that `NOTIFY_SOCKET` names, connected before the thread is confined.
    pub fn of_environment() -> io::Result<Self> {
        let Some(name) = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Ok(Self(None));
        };
        let address = match name.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            _ => SocketAddr::from_pathname(&name)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&address)?;
        socket.set_nonblocking(true)?;
        Ok(Self(Some(socket)))
    }

    /// Front-ends can connect.
    pub(crate) fn ready(&self) {
        self.say(&format!("READY=1\nMAINPID={}", std::process::id()));
    }

    /// The end has begun.
    pub(crate) fn stopping(&self) {
        self.say("STOPPING=1");
    }

    /// A supervisor that does not listen any more is no reason to fail.
    fn say(&self, state: &str) {
        if let Some(socket) = &self.0 {
            let _ = rustix::io::write(socket, state.as_bytes());
        }
    }
}
