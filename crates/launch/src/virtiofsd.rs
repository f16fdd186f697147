//! virtiofsd: a process for each directory that a guest shares.
//!
//! `tare` starts itself for it ([`serve`]): the process gets separate mounts, in which the
//! directory is read-only where the guest may not write ([`jail::enter_for_shared`]), and becomes
//! virtiofsd, which adds PID and network namespaces, changes its root into the directory, drops
//! capabilities and filters its system calls. It ends when QEMU closes the socket, however that ends.
//!
//! The socket has a name for a moment only, in the run directory: virtiofsd wants to accept one
//! connection, and it is there before virtiofsd starts.
//!
//! Limits: changes on the host are seen within a second in the guest (`cache=auto`); no extended
//! attributes; locks hold among the guest's processes.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use tare_control::exit::ExitCode;
use tare_control::rundir::RunDir;
use tare_daemon::confine;
use tare_daemon::jail::{self, SharedAccess};
use tare_host::child::{copy, ended_within, in_own_session, keeps_only};
use tare_host::program::find_program;

use crate::attempt::read_task;
use crate::failure::Explain;
use crate::volume::OpenVolume;

/// First argument of such a command line; no verb begins like this.
pub(crate) const WORD: &str = "--become-virtiofsd";
/// QEMU's own, in C, until version 8.
const QEMUS: &str = "/usr/lib/qemu/virtiofsd";
/// The later one, in Rust, where no search path leads (Debian 13, Fedora).
const APART: &[&str] = &["/usr/libexec/virtiofsd", "/usr/lib/virtiofsd"];
/// How long it may take to answer.
const START_LIMIT: Duration = Duration::from_secs(10);
/// How long it may take to end once QEMU has.
const END_LIMIT: Duration = Duration::from_secs(2);
/// Most bytes of what it says.
const LONGEST_TEXT: u64 = 1 << 12;
/// VHOST_USER_GET_FEATURES with the protocol's version, and no payload (QEMU
/// `docs/interop/vhost-user.rst`).
const GET_FEATURES: [u32; 3] = [1, 1, 0];
/// The answer's header and its payload of eight bytes.
const ANSWER_BYTES: usize = 20;

/// An installed virtiofsd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Program {
    path: PathBuf,
    options: Options,
}

impl Program {
    /// Where it is.
    pub(crate) fn into_path(self) -> PathBuf {
        self.path
    }
}

/// Which options it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Options {
    /// Of the one in C.
    C,
    /// Of the one in Rust.
    Rust,
}

/// What a process is started with.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Serving {
    program: Program,
    /// The directory, inherited.
    directory: RawFd,
    /// The listening socket, inherited.
    socket: RawFd,
    access: SharedAccess,
}

/// virtiofsd did not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VirtiofsdError {
    /// The process or its socket cannot be made.
    #[error("cannot start virtiofsd")]
    Start(#[source] io::Error),
    /// It ended, and said why.
    #[error("virtiofsd did not start: {0}")]
    Refused(String),
}

impl Explain for VirtiofsdError {
    fn code(&self) -> ExitCode {
        ExitCode::Virtiofsd
    }
}

/// A running virtiofsd, which serves whoever has the other end of `socket`.
#[derive(Debug)]
pub(crate) struct Virtiofsd {
    /// The directory's name for the guest's kernel.
    pub(crate) tag: String,
    /// QEMU's end.
    pub(crate) socket: OwnedFd,
    child: Child,
}

/// The installed one.
pub(crate) fn find() -> Option<Program> {
    let of = |path: PathBuf, options| Program { path, options };
    let apart = APART.iter().find_map(|path| find_program(path).ok());
    let rust = apart.or_else(|| find_program("virtiofsd").ok());
    rust.map(|path| of(path, Options::Rust))
        .or_else(|| Some(of(find_program(QEMUS).ok()?, Options::C)))
}

/// Starts one for a directory and waits until it answers.
pub(crate) fn start(volume: &OpenVolume, dir: &RunDir) -> Result<Virtiofsd, VirtiofsdError> {
    let (listener, socket) =
        connected(&dir.path().join(&volume.tag)).map_err(VirtiofsdError::Start)?;
    let child = spawn(volume, &listener).map_err(VirtiofsdError::Start)?;
    drop(listener);
    let mut started = Virtiofsd {
        tag: volume.tag.clone(),
        socket: socket.into(),
        child,
    };
    started.wait_ready()?;
    Ok(started)
}

/// A listening socket without a name, and a connection that waits in it.
fn connected(path: &Path) -> io::Result<(UnixListener, UnixStream)> {
    let listener = UnixListener::bind(path)?;
    let connection = UnixStream::connect(path);
    fs::remove_file(path)?;
    Ok((listener, connection?))
}

fn spawn(volume: &OpenVolume, listener: &UnixListener) -> io::Result<Child> {
    let (directory, socket) = (volume.directory.as_raw_fd(), listener.as_raw_fd());
    let task = Serving {
        program: volume.program.clone(),
        directory,
        socket,
        access: volume.access,
    };
    let mut command = Command::new(std::env::current_exe()?);
    // Keys of the terminal are the machine's.
    keeps_only(in_own_session(&mut command), vec![directory, socket])
        .arg(WORD)
        .arg(serde_json::to_string(&task)?)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
}

impl Virtiofsd {
    /// Asks as QEMU will. What virtiofsd says from then on goes nowhere: a guest can make it say
    /// things without end.
    fn wait_ready(&mut self) -> Result<(), VirtiofsdError> {
        let mut said = self.child.stderr.take();
        let asked = self.ask();
        if asked.is_ok() {
            return Ok(());
        }
        let _ = self.child.kill();
        let status = self.child.wait().map_err(VirtiofsdError::Start)?;
        let mut text = Vec::new();
        if let Some(said) = &mut said {
            let _ = said.take(LONGEST_TEXT).read_to_end(&mut text);
        }
        let text = String::from_utf8_lossy(&text);
        let line = text.lines().rfind(|line| !line.trim().is_empty());
        Err(VirtiofsdError::Refused(match (line, asked) {
            // This process's own words before it became virtiofsd.
            (Some(line), _) => line.strip_prefix("tare: ").unwrap_or(line).to_owned(),
            (None, Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                format!("no answer in {} s", START_LIMIT.as_secs())
            }
            _ => status.to_string(),
        }))
    }

    fn ask(&self) -> io::Result<()> {
        let mut stream = UnixStream::from(self.socket.try_clone()?);
        stream.set_read_timeout(Some(START_LIMIT))?;
        stream.write_all(&GET_FEATURES.map(u32::to_ne_bytes).concat())?;
        stream.read_exact(&mut [0; ANSWER_BYTES])?;
        stream.set_read_timeout(None)
    }

    /// QEMU's end, by its number.
    pub(crate) fn number(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Waits for the end, after QEMU's.
    pub(crate) fn end(self) {
        let Self {
            socket, mut child, ..
        } = self;
        drop(socket);
        if ended_within(&mut child, END_LIMIT).is_none() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Becomes virtiofsd; returns only on failure. To be called by a process of one thread.
pub(crate) fn serve(word: Option<OsString>) -> io::Result<()> {
    let task: Serving = read_task(word)?;
    let directory = copy(task.directory)?;
    let is_root = geteuid().is_root();
    let place = jail::enter_for_shared(directory.as_fd(), task.access).map_err(io::Error::other)?;
    drop(directory);
    if !is_root {
        // The one in C ends where it cannot give up groups.
        confine::pretend_to_set_groups().map_err(io::Error::other)?;
    }
    let mut command = Command::new(&task.program.path);
    command
        .args(task.program.options.of(task.socket, place))
        .env_clear();
    Err(command.exec())
}

impl Options {
    /// Nothing that a host's other users could use: no devices, no capabilities of files.
    fn of(self, socket: RawFd, place: &str) -> Vec<String> {
        let args: &[&str] = match self {
            Self::C => &[
                "-f",
                "-o",
                "sandbox=namespace,cache=auto,announce_submounts,log_level=err",
                "-o",
                "modcaps=-mknod:-setfcap",
            ],
            Self::Rust => &[
                "--sandbox=namespace",
                "--cache=auto",
                "--announce-submounts",
                "--log-level=error",
                "--modcaps=-mknod:-setfcap",
            ],
        };
        let mut args: Vec<String> = args.iter().map(|it| (*it).to_owned()).collect();
        args.push(format!("--fd={socket}"));
        match self {
            Self::C => args.extend(["-o".to_owned(), format!("source={place}")]),
            Self::Rust => args.push(format!("--shared-dir={place}")),
        }
        args
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_servers_are_held_alike() {
        for options in [Options::C, Options::Rust] {
            let args = options.of(7, "/tmp").join(" ");
            for part in ["sandbox=namespace", "-mknod:-setfcap", "--fd=7", "=/tmp"] {
                assert!(args.contains(part), "{args}");
            }
        }
    }

    #[test]
    fn a_server_that_ends_at_once_is_named_with_what_it_said() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let mut command = Command::new("sh");
        command.args(["-c", "echo first >&2; echo why >&2; exit 3"]);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        child.wait().unwrap();
        let mut ended = Virtiofsd {
            tag: "tare0".to_owned(),
            socket: ours.into(),
            child,
        };
        let error = ended.wait_ready().unwrap_err();
        assert_eq!(error.to_string(), "virtiofsd did not start: why");
        assert_eq!(error.code(), ExitCode::Virtiofsd);
    }

    #[test]
    fn a_socket_has_no_name_once_it_is_connected() {
        let place = tempfile::tempdir().unwrap();
        let (listener, mut connection) = connected(&place.path().join("tare0")).unwrap();
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
        connection.write_all(b"x").unwrap();
        let mut accepted = listener.accept().unwrap().0;
        accepted.read_exact(&mut [0]).unwrap();
    }
}
