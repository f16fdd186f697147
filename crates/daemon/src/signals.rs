//! SIGINT, SIGTERM and SIGHUP as an event for the main thread.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::event::{EventfdFlags, eventfd};
use tare_host::signals::{ENDS, requests_to_end};
use vmm_sys_util::signal::{register_signal_handler, unblock_signal};

static RECEIVED: AtomicI32 = AtomicI32::new(0);
static EVENT: OnceLock<OwnedFd> = OnceLock::new();

/// What a signal requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// SIGINT: Ctrl-C.
    Interrupt,
    /// SIGTERM or SIGHUP.
    Terminate,
}

/// Makes the signals that request an end set an event, which is returned: the same one for each
/// call. Delivers what was held back ([`hold_back`](tare_host::signals::hold_back)). A SIGHUP that
/// this process was started to ignore (`nohup`) stays ignored.
pub fn install() -> std::io::Result<BorrowedFd<'static>> {
    if EVENT.get().is_none() {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let _ = EVENT.set(event);
        for signal in requests_to_end() {
            register_signal_handler(signal, note)
                .map_err(|error| std::io::Error::from_raw_os_error(error.errno()))?;
        }
        for signal in ENDS {
            unblock_signal(signal).map_err(|_| std::io::ErrorKind::InvalidInput)?;
        }
    }
    let event = EVENT.get().map(|event| event.as_fd());
    event.ok_or_else(|| std::io::ErrorKind::NotFound.into())
}

/// The request of the first signal that came.
pub fn received() -> Option<Request> {
    match RECEIVED.load(Ordering::Acquire) {
        0 => None,
        libc::SIGINT => Some(Request::Interrupt),
        _ => Some(Request::Terminate),
    }
}

/// Async-signal-safe: an atomic and a write.
extern "C" fn note(signal: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let _ = RECEIVED.compare_exchange(0, signal, Ordering::Release, Ordering::Relaxed);
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
        for _ in 0..1000 {
            if received().is_some() {
                break;
            }
            thread::sleep(time::Duration::from_millis(10));
        }
        assert_eq!(RECEIVED.load(Ordering::Acquire), libc::SIGTERM);
        assert!(is_ignored(libc::SIGHUP));
    }
}
