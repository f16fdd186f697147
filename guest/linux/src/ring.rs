//! Timers that are set and ring: the thread that waits for all of them, which the first one that is
//! set starts.

use alloc::sync::Arc;
use alloc::vec::Vec;

use tare_libos::thread;
use tare_libos::time::Instant;

use crate::errno::{Errno, Result};
use crate::files::timer::Setting;
use crate::pending::Info;
use crate::process::Process;
use crate::timers::Notify;

/// Stack of the thread that waits, bytes.
const STACK_BYTES: usize = 16 * 1024;

/// Sets the alarm; gives what it was set to.
pub(crate) fn set_alarm(process: &Arc<Process>, setting: Setting) -> Result<Setting> {
    let old = process.timers.set_alarm(setting);
    look_again(process, setting)?;
    Ok(old)
}

/// Sets a timer; gives what it was set to.
pub(crate) fn set_timer(process: &Arc<Process>, id: u32, setting: Setting) -> Result<Setting> {
    let old = process.timers.set(id, setting)?;
    look_again(process, setting)?;
    Ok(old)
}

/// Removes a timer, and its signal if that waits.
pub(crate) fn remove_timer(process: &Process, id: u32) -> Result<()> {
    process.timers.remove(id)?;
    process.pending.remove_timer(id);
    let threads = process.threads.lock();
    threads
        .values()
        .for_each(|thread| thread.pending.remove_timer(id));
    Ok(())
}

/// Has the thread that waits look at the times again, or starts it for the first that is set.
fn look_again(process: &Arc<Process>, setting: Setting) -> Result<()> {
    let mut waiter = process.timers.waiter.lock();
    if let Some(waiter) = &*waiter {
        waiter.unpark();
        return Ok(());
    }
    if setting.next_ns == 0 {
        return Ok(());
    }
    let process = process.clone();
    let started = thread::Builder::new()
        .name("timers")
        .stack_size(STACK_BYTES)
        .spawn(move || wait(&process))
        .map_err(|_| Errno::ENOMEM)?;
    *waiter = Some(started.thread().clone());
    Ok(())
}

fn wait(process: &Process) {
    let mut due = Vec::new();
    loop {
        let next_ns = process.timers.ring(&mut due);
        for (notify, signal, info) in due.drain(..) {
            send(process, notify, signal, info);
        }
        match next_ns {
            Some(next_ns) => thread::park_until(Instant::from_nanos(next_ns)),
            None => thread::park(),
        }
    }
}

fn send(process: &Process, notify: Notify, signal: u32, info: Info) {
    let sent = match notify {
        Notify::None => Ok(()),
        Notify::Process => process.send(None, signal, info),
        Notify::Thread(number) => {
            let thread = process.threads.lock().get(&number).cloned();
            // One that has ended gets nothing.
            thread.map_or(Ok(()), |thread| process.send(Some(&thread), signal, info))
        }
    };
    if let Err(Errno(errno)) = sent {
        log::debug!("a timer's signal {signal} is lost: error {errno}");
    }
}
