//! Counts the time limits and timers of the program that ran out, in a table that the host reads
//! ([`tare_abi::expiries`]): what wakes a machine whose program seems to do nothing.

use tare_abi::expiries::{NAME_BYTES, Origin, SETITIMER, TIMER_SETTIME, Table};

use crate::process::{PID, Process};
use crate::thread::Thread;

/// The table. An image says where it is by `expiries = ` of `tare_libos::entry!`.
pub static EXPIRIES: Table = Table::new();

/// The limit of a thread's call has run out, or the timer that such a call has set.
pub(crate) fn count(call: u32, thread: &Thread) {
    count_as(call, thread.number, *thread.name.lock());
}

/// A timer that sends a signal is due. Which thread has set it is not known: it is the process's.
pub(crate) fn count_timer(process: &Process, timer: Option<u32>) {
    let first = process.threads.lock().get(&PID).cloned();
    // That thread may have ended.
    let name = first.map_or([0; NAME_BYTES], |first| *first.name.lock());
    let call = timer.map_or(SETITIMER, |_| TIMER_SETTIME);
    count_as(call, PID, name);
}

fn count_as(call: u32, thread: u32, name: [u8; NAME_BYTES]) {
    let origin = Origin { call, thread, name };
    EXPIRIES.count(&origin);
}
