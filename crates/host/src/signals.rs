//! The signals that ask a program to end: which they are, how they wait, and which of them the
//! program was started to ignore.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use rustix::io::Errno;

/// Ctrl-C, a request to end, and a terminal that goes.
pub const ENDS: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Those of [`ENDS`] that end this program: a terminal that goes does not where the program was
/// started to outlive it (`nohup`).
pub fn requests_to_end() -> impl Iterator<Item = i32> {
    let ends = ENDS.into_iter();
    ends.filter(|signal| *signal != libc::SIGHUP || !is_ignored(libc::SIGHUP))
}

/// [`ENDS`] wait for this thread from now on, and for the program that its process becomes
/// (`execve(2)`), until that lets them through. Safe between fork and exec.
pub fn hold_back() -> Result<(), Errno> {
    let mut signals = MaybeUninit::uninit();
    // SAFETY: sigemptyset(3) fills the set.
    unsafe { libc::sigemptyset(signals.as_mut_ptr()) };
    for signal in ENDS {
        // SAFETY: the set is filled, and these are signals.
        unsafe { libc::sigaddset(signals.as_mut_ptr(), signal) };
    }
    let (block, nothing) = (libc::SIG_BLOCK, std::ptr::null_mut());
    // SAFETY: the set is filled; the mask before is not asked for.
    match unsafe { libc::pthread_sigmask(block, signals.as_ptr(), nothing) } {
        0 => Ok(()),
        errno => Err(Errno::from_raw_os_error(errno)),
    }
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
    use super::*;

    #[test]
    fn a_signal_that_is_ignored_is_seen() {
        // Rust has its programs ignore it.
        assert!(is_ignored(libc::SIGPIPE));
        assert!(!is_ignored(libc::SIGUSR2));
        assert!(!is_ignored(-1));
    }
}
