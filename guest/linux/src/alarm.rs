//! The process's timer (`setitimer(2)`, `alarm(2)`): SIGALRM at a time.

use alloc::sync::Arc;

use linux_raw_sys::general::SIGALRM;
use tare_libos::sync::SpinLock;
use tare_libos::thread::{self, Thread as Waiter};
use tare_libos::time::Instant;

use crate::errno::{Errno, Result};
use crate::files::timer::Setting;
use crate::process::Process;

/// Stack of the thread that waits, bytes.
const STACK_BYTES: usize = 16 * 1024;

/// The timer; a thread waits for it from its first use on.
#[derive(Default)]
pub(crate) struct Alarm {
    setting: SpinLock<Setting>,
    waiter: SpinLock<Option<Waiter>>,
}

impl Alarm {
    /// Sets it; gives what it was set to.
    pub(crate) fn set(process: &Arc<Process>, setting: Setting) -> Result<Setting> {
        let alarm = &process.alarm;
        let old = core::mem::replace(&mut *alarm.setting.lock(), setting);
        let mut waiter = alarm.waiter.lock();
        if let Some(waiter) = &*waiter {
            waiter.unpark();
        } else if setting.next_ns != 0 {
            let process = process.clone();
            let started = thread::Builder::new()
                .name("alarm")
                .stack_size(STACK_BYTES)
                .spawn(move || process.alarm.wait(&process))
                .map_err(|_| Errno::ENOMEM)?;
            *waiter = Some(started.thread().clone());
        }
        Ok(old)
    }

    pub(crate) fn setting(&self) -> Setting {
        *self.setting.lock()
    }

    fn wait(&self, process: &Process) {
        loop {
            let next_ns = self.setting.lock().next_ns;
            if next_ns == 0 {
                thread::park();
                continue;
            }
            if Instant::now().as_nanos() < next_ns {
                thread::park_until(Instant::from_nanos(next_ns));
                continue;
            }
            let mut setting = self.setting.lock();
            if setting.next_ns != next_ns {
                continue;
            }
            setting.next_ns = match setting.period_ns {
                0 => 0,
                period => Instant::now().as_nanos().saturating_add(period),
            };
            drop(setting);
            process.send(None, SIGALRM);
        }
    }
}
