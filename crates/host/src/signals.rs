//! The signals that ask a program to end: which they are, how they wait, and which of them the
//! program was started to ignore. An end by a signal, passed on.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, setrlimit};

/// Ctrl-C, a request to end, and a terminal that goes.
pub const ENDS: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// What a program in a machine gets besides [`ENDS`], if it comes to the machine's process.
pub const OF_PROGRAMS: [i32; 3] = [libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2];

/// Those of [`ENDS`] that end this program: a terminal that goes does not where the program was
/// started to outlive it (`nohup`).
pub fn requests_to_end() -> impl Iterator<Item = i32> {
    let ends = ENDS.into_iter();
    ends.filter(|signal| *signal != libc::SIGHUP || !is_ignored(libc::SIGHUP))
}

/// [`ENDS`] wait for this thread from now on, and for the program that its process becomes
/// (`execve(2)`), until that lets them through. Safe between fork and exec.
pub fn hold_back() -> Result<(), Errno> {
    block(&ENDS)
}

/// These wait for this thread from now on.
pub fn block(signals: &[i32]) -> Result<(), Errno> {
    change_mask(libc::SIG_BLOCK, signals)
}

/// These come to this thread again; what waited comes now.
pub fn unblock(signals: &[i32]) -> Result<(), Errno> {
    change_mask(libc::SIG_UNBLOCK, signals)
}

fn change_mask(how: libc::c_int, signals: &[i32]) -> Result<(), Errno> {
    let signals = set_of(signals);
    // SAFETY: the set is filled; the mask before is not asked for.
    match unsafe { libc::pthread_sigmask(how, &raw const signals, std::ptr::null_mut()) } {
        0 => Ok(()),
        errno => Err(Errno::from_raw_os_error(errno)),
    }
}

/// A signal that was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Its number.
    pub signal: i32,
    /// Whether the kernel sent it, as for a key of the terminal: then each process of the job has it.
    pub is_kernels: bool,
}

/// Waits for one of these, which this thread blocks, and takes it.
pub fn wait_for(signals: &[i32]) -> Result<Taken, Errno> {
    let signals = set_of(signals);
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: the set is filled, and the call writes into a structure of its type.
    let signal = unsafe { libc::sigwaitinfo(&raw const signals, info.as_mut_ptr()) };
    if signal < 0 {
        let errno = std::io::Error::last_os_error().raw_os_error();
        return Err(Errno::from_raw_os_error(errno.unwrap_or(libc::EINVAL)));
    }
    // SAFETY: all zeros are a valid structure, which the call has filled.
    let info = unsafe { info.assume_init() };
    Ok(Taken {
        signal,
        is_kernels: info.si_code == libc::SI_KERNEL,
    })
}

fn set_of(signals: &[i32]) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset(3) fills the set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    for signal in signals {
        // SAFETY: the set is filled; what is not a signal is refused.
        unsafe { libc::sigaddset(set.as_mut_ptr(), *signal) };
    }
    // SAFETY: sigemptyset(3) filled it.
    unsafe { set.assume_init() }
}

/// Ends this process as that signal ended another one, without a core.
pub fn end_by(signal: i32) -> ! {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    let _ = setrlimit(Resource::Core, none);
    // SAFETY: the default action runs no code of this process.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    let _ = unblock(&[signal]);
    // SAFETY: integers only.
    unsafe { libc::raise(signal) };
    // What the kernel does not end a process by; shells have this status for it.
    std::process::exit(128 + signal)
}

/// Whether this process ignores that signal. Whoever started it may have asked for that (`nohup`):
/// a handler would undo it.
pub fn is_ignored(signal: i32) -> bool {
    let mut found = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: the action is read alone, into a structure of its type.
    unsafe { libc::sigaction(signal, std::ptr::null(), found.as_mut_ptr()) };
    // SAFETY: all zeros are a valid action, the default one; it stays that for a number that is
    // not a signal.
    let found = unsafe { found.assume_init() };
    found.sa_sigaction == libc::SIG_IGN
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Command;
    use std::thread;

    use super::*;

    /// Of this thread alone: a signal to the process would reach another test's.
    #[test]
    fn a_blocked_signal_waits_until_it_is_taken() {
        let taken = thread::spawn(|| {
            block(&[libc::SIGURG, libc::SIGWINCH]).unwrap();
            // SAFETY: integers only; both are ignored unless a thread waits for them.
            unsafe { libc::raise(libc::SIGWINCH) };
            wait_for(&[libc::SIGURG, libc::SIGWINCH]).unwrap()
        });
        let by_a_process = Taken {
            signal: libc::SIGWINCH,
            is_kernels: false,
        };
        assert_eq!(taken.join().unwrap(), by_a_process);
    }

    /// This test starts itself again: the signal ends the process.
    #[test]
    fn an_end_by_a_signal_is_passed_on() {
        const AGAIN: &str = "TARE_TEST_END_BY";
        if let Ok(signal) = env::var(AGAIN) {
            let signal = signal.parse().unwrap();
            block(&[signal]).unwrap();
            end_by(signal);
        }
        // SIGSEGV has a handler of std's, SIGKILL can have none, SIGURG ends nothing.
        for (signal, by) in [
            (libc::SIGKILL, Some(libc::SIGKILL)),
            (libc::SIGSEGV, Some(libc::SIGSEGV)),
            (libc::SIGURG, None),
        ] {
            let name = "signals::tests::an_end_by_a_signal_is_passed_on";
            let mut again = Command::new(env::current_exe().unwrap());
            again.args(["--exact", name]).env(AGAIN, signal.to_string());
            let status = again.output().unwrap().status;
            assert_eq!(status.signal(), by, "{status}");
            assert!(by.is_some() || status.code() == Some(128 + signal));
        }
    }

    #[test]
    fn a_signal_that_is_ignored_is_seen() {
        // Rust has its programs ignore it.
        assert!(is_ignored(libc::SIGPIPE));
        assert!(!is_ignored(libc::SIGUSR2));
        assert!(!is_ignored(-1));
    }
}
