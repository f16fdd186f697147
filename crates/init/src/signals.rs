//! Signals for the command: those that this process gets, and those of the host, which come through
//! a port ([`stream::SIGNALS`]).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use libc::pid_t;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::Pid;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;
use tare_init::stream;

use crate::console::say;
use crate::kill::kill;
use crate::ports;

/// Passed on to the command.
const FORWARDED: &[i32] = &[SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2];
/// What the guest writes when it begins to read. Its value means nothing.
const READS: &[u8] = &[1];
/// Most signals that are read at once.
const AT_ONCE: usize = 16;

/// What this process waits for while the command runs.
pub(crate) struct Events {
    own: SignalDelivery<UnixStream, SignalOnly>,
    host: Option<File>,
}

impl Events {
    /// From now on no signal and no end of a child is missed.
    pub(crate) fn watch() -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        let signals = FORWARDED.iter().chain(&[SIGCHLD]);
        let own = SignalDelivery::with_pipe(read, write, SignalOnly, signals)?;
        Ok(Self { own, host: None })
    }

    /// Passes the host's signals on too. Those that come before the command is there wait in the port.
    pub(crate) fn hear_host(&mut self, port: &Path) {
        match open(port) {
            Ok(port) => self.host = Some(port),
            Err(error) => say(&format!("signals do not reach the command: {error}")),
        }
    }

    /// Waits, and passes on to the command what came. Only this thread collects children, so that the
    /// number is the command's.
    pub(crate) fn pass_on(&mut self, command: Pid) {
        let mut files = vec![PollFd::new(self.own.get_read(), PollFlags::IN)];
        files.extend(
            self.host
                .iter()
                .map(|port| PollFd::new(port, PollFlags::IN)),
        );
        // Interrupted by a signal: then its file is ready.
        let _ = poll(&mut files, None);
        let command = command.as_raw_nonzero().get();
        for signal in self.own.pending().filter(|signal| *signal != SIGCHLD) {
            kill(command, signal);
        }
        if let Some(port) = &mut self.host
            && pass_on_from(port, command, kill) == Host::Gone
        {
            self.host = None;
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Host {
    Connected,
    Gone,
}

/// The port, once the host is connected and knows that the guest reads.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK);
    let mut port = options.open(path)?;
    ports::wait_for_host(&port);
    port.write_all(READS)?;
    Ok(port)
}

fn pass_on_from(
    port: &mut impl io::Read,
    command: pid_t,
    mut send: impl FnMut(pid_t, i32),
) -> Host {
    let mut bytes = [0; AT_ONCE];
    let count = match port.read(&mut bytes) {
        Ok(0) => return Host::Gone,
        Ok(count) => count,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
        Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
        Err(_) => return Host::Gone,
    };
    for byte in &bytes[..count] {
        let group = match byte & stream::KEY {
            0 => None,
            _ => foreground(command),
        };
        // A group by its negative number (`kill(2)`).
        let to = group.map_or(command, |group| -group);
        send(to, i32::from(byte & !stream::KEY));
    }
    Host::Connected
}

/// The process group in the foreground of the command's terminal, if it has one (`proc_pid_stat(5)`).
fn foreground(command: pid_t) -> Option<pid_t> {
    let stat = fs::read_to_string(format!("/proc/{command}/stat")).ok()?;
    foreground_of(&stat)
}

fn foreground_of(stat: &str) -> Option<pid_t> {
    // State, parent, group, session, terminal, group in its foreground. The name before may have any
    // characters.
    let (_, after) = stat.rsplit_once(')')?;
    let group: pid_t = after.split_ascii_whitespace().nth(5)?.parse().ok()?;
    // 1 as a negative number would be every process.
    (group > 1).then_some(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_of_the_host_is_a_signal_to_the_command() {
        // Without a terminal: no process has this number (`PID_MAX_LIMIT`).
        const COMMAND: pid_t = 1 << 23;
        let mut sent = Vec::new();
        let mut from = &[15, 64, stream::KEY | 2][..];
        let host = pass_on_from(&mut from, COMMAND, |to, signal| sent.push((to, signal)));
        assert_eq!(host, Host::Connected);
        assert_eq!(sent, [(COMMAND, 15), (COMMAND, 64), (COMMAND, 2)]);
    }

    #[test]
    fn a_host_that_has_gone_is_waited_for_no_more() {
        assert_eq!(pass_on_from(&mut io::empty(), 1, kill), Host::Gone);
    }

    #[test]
    fn the_group_in_the_foreground_is_found_behind_any_name() {
        let stat = |name: &str, group: i32| format!("7 ({name}) S 1 7 7 1088 {group} 4194560 91 0");
        assert_eq!(foreground_of(&stat("sh", 12)), Some(12));
        assert_eq!(foreground_of(&stat(") S 1 2 3 4 5", 12)), Some(12));
        for none in [-1, 0, 1] {
            assert_eq!(foreground_of(&stat("sh", none)), None);
        }
        assert_eq!(foreground_of("7 (sh"), None);
        assert_eq!(foreground_of(""), None);
    }
}
