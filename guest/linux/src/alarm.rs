//! The process's timer (`setitimer(2)`, `alarm(2)`): rings at a time.

use alloc::sync::Arc;

use tare_libos::sync::SpinLock;
use tare_libos::thread::{self, Thread as Waiter};
use tare_libos::time::Instant;

use crate::errno::{Errno, Result};
use crate::files::timer::Setting;

/// Stack of the thread that waits, bytes.
const STACK_BYTES: usize = 16 * 1024;

/// The timer; a thread waits for it from its first use on.
#[derive(Default)]
pub(crate) struct Alarm {
    setting: SpinLock<Setting>,
    waiter: SpinLock<Option<Waiter>>,
}

impl Alarm {
    /// Sets it, to call `ring` at its times; gives what it was set to. The thread that waits
    /// keeps the first `ring`.
    pub(crate) fn set(
        self: &Arc<Self>,
        setting: Setting,
        ring: impl Fn() + Send + 'static,
    ) -> Result<Setting> {
        let old = core::mem::replace(&mut *self.setting.lock(), setting);
        let mut waiter = self.waiter.lock();
        if let Some(waiter) = &*waiter {
            waiter.unpark();
        } else if setting.next_ns != 0 {
            let alarm = self.clone();
            let started = thread::Builder::new()
                .name("alarm")
                .stack_size(STACK_BYTES)
                .spawn(move || alarm.wait(ring))
                .map_err(|_| Errno::ENOMEM)?;
            *waiter = Some(started.thread().clone());
        }
        Ok(old)
    }

    pub(crate) fn setting(&self) -> Setting {
        *self.setting.lock()
    }

    fn wait(&self, ring: impl Fn()) {
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
            ring();
        }
    }
}
