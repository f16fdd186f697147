//! SIGINT, SIGTERM and SIGHUP, and others that a program of this process is to get, as an event for
//! the main thread.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::{EventfdFlags, eventfd};
use tare_host::signals::{ENDS, requests_to_end, unblock};
use vmm_sys_util::signal::register_signal_handler;

/// A bit for each signal that came, at its number.
static RECEIVED: AtomicU64 = AtomicU64::new(0);
static EVENT: OnceLock<OwnedFd> = OnceLock::new();

/// What a signal requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// SIGINT: Ctrl-C.
    Interrupt,
    /// SIGTERM or SIGHUP.
    Terminate,
}

impl Request {
    /// What this signal requests, if it requests an end.
    pub fn of(signal: i32) -> Option<Self> {
        match signal {
            libc::SIGINT => Some(Self::Interrupt),
            libc::SIGTERM | libc::SIGHUP => Some(Self::Terminate),
            _ => None,
        }
    }
}

/// Makes the signals that request an end set an event, which is returned: the same one for each
/// call. Delivers what was held back ([`hold_back`](tare_host::signals::hold_back)). A SIGHUP that
/// this process was started to ignore (`nohup`) stays ignored.
pub fn install() -> std::io::Result<BorrowedFd<'static>> {
    if EVENT.get().is_none() {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let _ = EVENT.set(event);
        handle(requests_to_end())?;
        unblock(&ENDS)?;
    }
    let event = EVENT.get().map(|event| event.as_fd());
    event.ok_or_else(|| std::io::ErrorKind::NotFound.into())
}

/// The same for further signals.
pub fn install_also(signals: &[i32]) -> std::io::Result<()> {
    install()?;
    handle(signals.iter().copied())?;
    unblock(signals)?;
    Ok(())
}

fn handle(signals: impl Iterator<Item = i32>) -> std::io::Result<()> {
    for signal in signals {
        register_signal_handler(signal, note)
            .map_err(|error| std::io::Error::from_raw_os_error(error.errno()))?;
    }
    Ok(())
}

/// The signals that came since the last call, in the order of their numbers.
pub fn take() -> impl Iterator<Item = i32> {
    if let Some(event) = EVENT.get() {
        // Before the set, so that no signal is in it whose event is taken here.
        let _ = rustix::io::read(event, &mut [0; 8]);
    }
    let received = RECEIVED.swap(0, Ordering::AcqRel);
    (0..64).filter(move |signal| received & 1 << signal != 0)
}

/// Async-signal-safe: an atomic and a write.
extern "C" fn note(signal: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    if (0..64).contains(&signal) {
        RECEIVED.fetch_or(1 << signal, Ordering::Release);
    }
    if let Some(event) = EVENT.get() {
        let _ = rustix::io::write(event, &1u64.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::process::Command;
    use std::thread;
    use std::time;

    use rustix::process::{Signal, getpid, kill_process};

    use tare_host::signals::is_ignored;

    use super::*;

    /// This test starts itself again as `nohup` would: signals are the whole process's.
    #[test]
    fn a_hangup_that_is_ignored_ends_no_daemon() {
        const AGAIN: &str = "TARE_TEST_HANGUP_IS_IGNORED";
        if env::var_os(AGAIN).is_none() {
            let name = "signals::tests::a_hangup_that_is_ignored_ends_no_daemon";
            let mut again = Command::new("sh");
            again.args(["-c", "trap '' HUP; exec \"$0\" --exact \"$1\""]);
            again.arg(env::current_exe().unwrap()).arg(name);
            let done = again.env(AGAIN, "1").output().unwrap();
            let said = String::from_utf8_lossy(&done.stdout);
            assert!(done.status.success() && said.contains("1 passed"), "{said}");
            return;
        }
        install().unwrap();
        kill_process(getpid(), Signal::HUP).unwrap();
        kill_process(getpid(), Signal::TERM).unwrap();
        // Another thread may handle it.
        let came = (0..1000).find_map(|_| {
            thread::sleep(time::Duration::from_millis(10));
            take().next()
        });
        assert_eq!(came, Some(libc::SIGTERM));
        assert!(is_ignored(libc::SIGHUP));
    }
}
