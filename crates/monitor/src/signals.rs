//! SIGINT, SIGTERM and SIGHUP as an event for the main thread, SIGSYS as a
//! sentence.

use std::sync::{
    OnceLock,
    atomic::{AtomicI32, Ordering},
};

use vmm_sys_util::{errno, eventfd::EventFd, signal::register_signal_handler};

use crate::ending::Ending;

static RECEIVED: AtomicI32 = AtomicI32::new(0);
static EVENT: OnceLock<EventFd> = OnceLock::new();

/// Lets the signals that ask for an end signal `event`; call once.
pub fn install(event: EventFd) -> Result<(), errno::Error> {
    if EVENT.set(event).is_err() {
        return Ok(());
    }
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        register_signal_handler(signal, note)?;
    }
    Ok(())
}

/// The event, once installed.
pub fn event() -> Option<&'static EventFd> {
    EVENT.get()
}

/// What the signal that came means.
pub fn ending() -> Option<Ending> {
    match RECEIVED.load(Ordering::Acquire) {
        0 => None,
        libc::SIGINT => Some(Ending::Interrupted),
        _ => Some(Ending::Terminated),
    }
}

/// Async-signal-safe: an atomic and a write.
extern "C" fn note(signal: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let _ = RECEIVED.compare_exchange(0, signal, Ordering::Release, Ordering::Relaxed);
    if let Some(event) = EVENT.get() {
        let _ = event.write(1);
    }
}
