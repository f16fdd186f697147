//! Child processes that end with this one, also when it is killed and cannot clean up, and
//! child processes that outlive it and its terminal; what they get of this process's descriptors,
//! and which signals wait for them.
//!
//! All are system calls of the child between fork and exec, for which `std` asks for unsafe
//! code. What needs more than a system call there (confinement) belongs to a program that
//! executes itself first.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, getpid, getppid, parent_process_death_signal, set_parent_process_death_signal,
    setsid,
};

use crate::signals;

/// The child gets `signal` when the thread that starts it ends, however that ends
/// (`prctl(2)`, PR_SET_PDEATHSIG). The program that the child becomes keeps this, unless it
/// changes its credentials: see [`ParentDeath`].
pub fn ends_with_us(command: &mut Command, signal: Signal) -> &mut Command {
    let us = getpid();
    before_exec(command, move || ParentDeath::on(signal, us).restore())
}

/// The child has its own session, without a terminal (`setsid(2)`).
pub fn in_own_session(command: &mut Command) -> &mut Command {
    before_exec(command, || setsid().map(drop))
}

/// This process need not collect the program: its child makes another one, which executes it, and ends.
/// To be called last.
pub fn is_orphaned(command: &mut Command) -> &mut Command {
    before_exec(command, || {
        // SAFETY: takes nothing. This child has one thread, and nothing of the heap is touched after it.
        match unsafe { libc::fork() } {
            -1 => Err(last_error()),
            0 => Ok(()),
            // SAFETY: takes an integer and runs no handlers.
            _ => unsafe { libc::_exit(0) },
        }
    })
}

/// A program that handles SIGHUP even where it was started to ignore it (QEMU) outlives the
/// terminal as this process does: where this ignores SIGHUP (`nohup`), the child has its own session,
/// which a terminal's hangup does not reach.
pub fn ignores_hangups_with_us(command: &mut Command) -> &mut Command {
    if signals::is_ignored(libc::SIGHUP) {
        in_own_session(command);
    }
    command
}

/// The keys of this process's terminal are not for the child, which has its own process
/// group; otherwise as [`ignores_hangups_with_us`].
pub fn apart_from_terminal(command: &mut Command) -> &mut Command {
    if signals::is_ignored(libc::SIGHUP) {
        in_own_session(command)
    } else {
        // The leader of a group could make no session (`setsid(2)`).
        command.process_group(0)
    }
}

/// The child gets its three standard streams and `kept`, whatever else this process has open for
/// another child at that time.
pub fn keeps_only(command: &mut Command, kept: Vec<RawFd>) -> &mut Command {
    before_exec(command, move || {
        close_on_exec_from(3)?;
        kept.iter().try_for_each(|fd| leave_open(*fd))
    })
}

/// Starts a program that no process collects: in its own session, with `kept` and `log` for its errors alone.
pub fn start_orphan(
    program: &Path,
    arguments: [&str; 2],
    kept: Vec<RawFd>,
    log: File,
) -> io::Result<()> {
    let mut command = Command::new(program);
    is_orphaned(keeps_only(in_own_session(&mut command), kept))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    // The child that is collected has only made the process.
    command.spawn()?.wait()?;
    Ok(())
}

/// SIGINT, SIGTERM and SIGHUP wait until the program that the child becomes lets them through.
pub fn holds_back(command: &mut Command) -> &mut Command {
    before_exec(command, signals::hold_back)
}

/// Descriptors from here on are not looked for one after the other: Linux gives a process no
/// more unless `fs.nr_open` is raised.
const MOST_LOOKED_AT: RawFd = 1 << 20;

/// Closes the descriptors of this process but its standard streams and `kept`.
///
/// # Safety
///
/// This process uses none of them afterwards, neither to read nor to close it once more.
pub unsafe fn close_all_but(kept: BorrowedFd<'_>) {
    let kept = kept.as_raw_fd();
    for (first, last) in [(3, kept - 1), (kept + 1, RawFd::MAX)] {
        if first > last {
            continue;
        }
        // SAFETY: the caller gives them up.
        let done = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        if done != 0 {
            let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
            for fd in first..=last.min(first_unused(limit.current)) {
                // SAFETY: as above.
                unsafe { libc::close(fd) };
            }
        }
    }
}

/// `close_range(2)` (Linux 5.11 with this flag), or one descriptor after the other.
fn close_on_exec_from(first: RawFd) -> Result<(), Errno> {
    let flags = libc::CLOSE_RANGE_CLOEXEC;
    // SAFETY: integers only; descriptors are closed by execve(2) alone.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, flags) };
    if done == 0 {
        return Ok(());
    }
    close_each_on_exec_from(first);
    Ok(())
}

fn close_each_on_exec_from(first: RawFd) {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    for fd in first..first_unused(limit.current) {
        // SAFETY: F_SETFD takes an integer, and any number for a descriptor.
        unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}

/// Above the descriptors of a process with that limit (`getrlimit(2)`). Without a limit there may be
/// 2 to the power of 30 (`fs.nr_open`): one after the other would take minutes.
fn first_unused(limit: Option<u64>) -> RawFd {
    let limit = limit.and_then(|limit| RawFd::try_from(limit).ok());
    limit.map_or(MOST_LOOKED_AT, |limit| limit.min(MOST_LOOKED_AT))
}

/// A copy of a descriptor that this process was started with. Neither reaches a further program.
pub fn take_inherited(number: RawFd) -> std::io::Result<OwnedFd> {
    // SAFETY: integers only; any number is valid input.
    if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } == -1 {
        return Err(std::io::Error::last_os_error());
    }
    copy(number)
}

/// A copy of a descriptor by its number, which reaches no further program.
pub fn copy(number: RawFd) -> std::io::Result<OwnedFd> {
    // SAFETY: integers only; any number is valid input.
    let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
    if copy == -1 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

fn leave_open(fd: RawFd) -> Result<(), Errno> {
    // SAFETY: as above.
    match unsafe { libc::fcntl(fd, libc::F_SETFD, 0) } {
        0 => Ok(()),
        _ => Err(last_error()),
    }
}

fn last_error() -> Errno {
    let error = std::io::Error::last_os_error();
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// How often [`ended_within`] looks.
const LOOK: Duration = Duration::from_millis(1);

/// How a child ended, if it does within `limit`. It is not killed otherwise.
pub fn ended_within(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let began = Instant::now();
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if began.elapsed() >= limit {
            return None;
        }
        thread::sleep(LOOK);
    }
}

fn before_exec(
    command: &mut Command,
    act: impl Fn() -> Result<(), Errno> + Send + Sync + 'static,
) -> &mut Command {
    // SAFETY: in the child of a process with threads only async-signal-safe code may run
    // (`signal-safety(7)`). `act` is one of the closures above: each makes system calls
    // or sets bits of a signal set, allocates nothing and takes no lock.
    unsafe { command.pre_exec(move || Ok(act()?)) }
}

/// The signal that the calling thread gets when its parent ends. The kernel forgets it when
/// credentials change: read before, restored after.
#[derive(Debug)]
pub struct ParentDeath {
    signal: Option<Signal>,
    parent: Option<Pid>,
}

impl ParentDeath {
    /// The present one.
    pub fn read() -> Result<Self, Errno> {
        Ok(Self {
            signal: parent_process_death_signal()?,
            parent: getppid(),
        })
    }

    /// `signal` when `parent` ends, which may be no longer the calling thread's parent.
    pub fn on(signal: Signal, parent: Pid) -> Self {
        Self {
            signal: Some(signal),
            parent: Some(parent),
        }
    }

    /// The signal.
    pub fn signal(&self) -> Option<Signal> {
        self.signal
    }

    /// Asks the kernel for the signal again. [`Errno::SRCH`]: the parent has ended meanwhile.
    pub fn restore(&self) -> Result<(), Errno> {
        let Some(signal) = self.signal else {
            return Ok(());
        };
        set_parent_process_death_signal(Some(signal))?;
        if getppid() == self.parent {
            Ok(())
        } else {
            Err(Errno::SRCH)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read as _, Write as _};
    use std::os::fd::AsFd as _;
    use std::os::unix::process::ExitStatusExt as _;

    use rustix::io::{FdFlags, fcntl_setfd};
    use rustix::process::{getpgid, getsid};

    use super::*;

    /// The thread that starts a program is its parent to the kernel.
    #[test]
    fn a_child_is_killed_when_its_starter_ends() {
        let start = || {
            let mut command = Command::new("sleep");
            let child = ends_with_us(&mut command, Signal::KILL).arg("60").spawn();
            child.unwrap()
        };
        let mut sleeper = std::thread::spawn(start).join().unwrap();
        assert_eq!(sleeper.wait().unwrap().signal(), Some(9));
    }

    #[test]
    fn a_child_can_have_a_session_of_its_own() {
        let mut command = Command::new("sleep");
        let mut sleeper = in_own_session(&mut command).arg("60").spawn().unwrap();
        let pid = Pid::from_child(&sleeper);
        assert_eq!(getsid(Some(pid)), Ok(pid));
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
    }

    #[test]
    fn a_program_can_be_an_orphan() {
        let (mut says, said) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "read go; cut -d ' ' -f 4 /proc/$$/stat"]);
        let copy = said.try_clone().unwrap();
        command
            .stdin(OwnedFd::from(said))
            .stdout(OwnedFd::from(copy));
        let mut child = is_orphaned(&mut command).spawn().unwrap();
        let maker = child.id();
        assert!(child.wait().unwrap().success());
        drop(command);
        says.write_all(b"go\n").unwrap();
        let mut parent = String::new();
        says.read_to_string(&mut parent).unwrap();
        let parent: u32 = parent.trim().parse().unwrap();
        assert!(![maker, std::process::id()].contains(&parent), "{parent}");
        let missing = is_orphaned(&mut Command::new("no-such-program")).spawn();
        assert_eq!(missing.unwrap_err().kind(), ErrorKind::NotFound);
    }

    /// This test starts itself again as `nohup` would: signals are the whole process's.
    #[test]
    fn a_child_apart_from_the_terminal_starts_where_hangups_are_ignored() {
        const AGAIN: &str = "TARE_TEST_CHILD_IS_APART";
        let mut command = Command::new("sleep");
        let mut sleeper = apart_from_terminal(command.arg("60")).spawn().unwrap();
        let pid = Pid::from_child(&sleeper);
        let group = getpgid(Some(pid));
        // Elsewhere its leader may be in another PID namespace, and has no number here.
        let session = std::env::var_os(AGAIN).map(|_| getsid(Some(pid)));
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        assert_eq!(group, Ok(pid));
        if let Some(session) = session {
            assert_eq!(session, Ok(pid));
            return;
        }
        let name = "child::tests::a_child_apart_from_the_terminal_starts_where_hangups_are_ignored";
        let mut again = Command::new("sh");
        again.args(["-c", "trap '' HUP; exec \"$0\" --exact \"$1\""]);
        again.arg(std::env::current_exe().unwrap()).arg(name);
        let done = again.env(AGAIN, "1").output().unwrap();
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && said.contains("1 passed"), "{said}");
    }

    /// Those of two descriptors that are open in a program which is executed after `act` on the
    /// first: whether the first and the second.
    fn kept_by(act: impl Fn(&mut Command, RawFd)) -> [bool; 2] {
        let files = [tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap()];
        // Both are meant for a program that is executed later.
        for file in &files {
            fcntl_setfd(file, FdFlags::empty()).unwrap();
        }
        let numbers = files.each_ref().map(|file| file.as_raw_fd());
        let script = "for fd in \"$@\"; do [ -e /proc/self/fd/$fd ] && echo $fd; done; true";
        let mut list = Command::new("sh");
        list.args(["-c", script, "sh"]);
        list.args(numbers.map(|fd| fd.to_string()));
        act(&mut list, numbers[0]);
        let listed = String::from_utf8(list.output().unwrap().stdout).unwrap();
        numbers.map(|fd| listed.lines().any(|line| line == fd.to_string()))
    }

    #[test]
    fn a_child_gets_no_other_childs_descriptors() {
        assert_eq!(kept_by(|_, _| {}), [true, true]);
        let kept = kept_by(|command, first| {
            keeps_only(command, vec![first]);
        });
        assert_eq!(kept, [true, false]);
    }

    #[test]
    fn an_inherited_descriptor_is_taken_over_and_reaches_no_further_program() {
        let file = tempfile::tempfile().unwrap();
        fcntl_setfd(&file, FdFlags::empty()).unwrap();
        let taken = take_inherited(file.as_raw_fd()).unwrap();
        for fd in [file.as_fd(), taken.as_fd()] {
            assert_eq!(rustix::io::fcntl_getfd(fd), Ok(FdFlags::CLOEXEC));
        }
        let same = |fd| rustix::fs::fstat(fd).unwrap().st_ino;
        assert_eq!(same(file.as_fd()), same(taken.as_fd()));
        assert_eq!(
            take_inherited(-1).unwrap_err().raw_os_error(),
            Some(libc::EBADF)
        );
    }

    #[test]
    fn without_close_range_descriptors_are_closed_one_after_the_other() {
        let kept = kept_by(|command, first| {
            before_exec(command, move || {
                close_each_on_exec_from(3);
                leave_open(first)
            });
        });
        assert_eq!(kept, [true, false]);
        assert_eq!(first_unused(Some(1024)), 1024);
        for unlimited in [Some(1 << 30), Some(u64::MAX), None] {
            assert_eq!(first_unused(unlimited), MOST_LOOKED_AT, "{unlimited:?}");
        }
    }

    #[test]
    fn a_child_is_waited_for_within_a_limit() {
        let mut ends = Command::new("true").spawn().unwrap();
        let ended = ended_within(&mut ends, Duration::from_secs(60)).unwrap();
        assert!(ended.success());
        let mut stays = Command::new("sleep").arg("60").spawn().unwrap();
        assert!(ended_within(&mut stays, Duration::ZERO).is_none());
        stays.kill().unwrap();
        stays.wait().unwrap();
    }

    #[test]
    fn a_signal_waits_until_a_child_lets_it_through() {
        let mut read = Command::new("grep");
        read.args(["SigBlk", "/proc/self/status"]);
        let said = holds_back(&mut read).output().unwrap().stdout;
        let said = String::from_utf8(said).unwrap();
        let mask = u64::from_str_radix(said.split_whitespace().last().unwrap(), 16).unwrap();
        // HUP, INT and TERM are 1, 2 and 15.
        assert_eq!(mask & 0b100_0000_0000_0011, 0b100_0000_0000_0011, "{said}");
    }

    #[test]
    fn a_missing_program_is_an_error_of_the_start() {
        let mut command = Command::new("no-such-program");
        let error = ends_with_us(&mut command, Signal::KILL).spawn();
        assert_eq!(error.unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn a_parent_that_ended_is_noticed() {
        let body = || {
            let no_parent = Pid::from_raw(i32::MAX).unwrap();
            let restored = ParentDeath::on(Signal::KILL, no_parent).restore();
            set_parent_process_death_signal(None).unwrap();
            restored
        };
        let restored = std::thread::spawn(body).join().unwrap();
        assert_eq!(restored, Err(Errno::SRCH));
    }

    #[test]
    fn the_signal_is_read_and_restored() {
        let body = || {
            set_parent_process_death_signal(Some(Signal::CONT)).unwrap();
            let tie = ParentDeath::read().unwrap();
            set_parent_process_death_signal(None).unwrap();
            tie.restore().unwrap();
            parent_process_death_signal().unwrap()
        };
        let restored = std::thread::spawn(body).join().unwrap();
        assert_eq!(restored, Some(Signal::CONT));
    }
}
