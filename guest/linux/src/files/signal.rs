//! Signals as a file (`signalfd(2)`, kernel `fs/signalfd.c`): each read takes those of a set that
//! wait for the thread that reads or for any, blocked or not.

use alloc::string::String;
use alloc::sync::Arc;

use linux_raw_sys::general::POLLIN;
use tare_libos::sync::SpinLock;
use tare_libos::thread::{self, Thread as Waiter};

use super::{File, Status};
use crate::errno::{Errno, Result};
use crate::pending::{Info, SI_TIMER};
use crate::process::Process;
use crate::signals::Mask;
use crate::thread::Thread;

/// Bytes of `struct signalfd_siginfo` (kernel `include/uapi/linux/signalfd.h`).
const RECORD_BYTES: usize = 128;

/// Signals of a set.
pub(crate) struct SignalFile {
    process: Arc<Process>,
    set: SpinLock<Mask>,
}

impl SignalFile {
    pub(crate) fn new(process: &Arc<Process>, set: Mask) -> Self {
        Self {
            process: process.clone(),
            set: SpinLock::new(set),
        }
    }

    /// Changes the set, at which those who wait look.
    pub(crate) fn set(&self, set: Mask) {
        *self.set.lock() = set;
        self.process.arrivals.watchers.wake();
    }

    /// The thread of the program that calls.
    fn current(&self) -> Option<Arc<Thread>> {
        let waiter = thread::current();
        let threads = self.process.threads.lock();
        threads
            .values()
            .find(|thread| thread.is_run_by(&waiter))
            .cloned()
    }
}

/// A signal as a read gives it.
fn record(signal: u32, info: &Info) -> [u8; RECORD_BYTES] {
    let mut bytes = [0; RECORD_BYTES];
    let mut put = |at: usize, word: u32| bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
    let origin = [info.origin as u32, (info.origin >> 32) as u32];
    put(0, signal);
    put(8, info.code as u32);
    if info.code == SI_TIMER {
        put(24, origin[0]);
        put(32, origin[1]);
    } else {
        put(12, origin[0]);
        put(16, origin[1]);
    }
    if info.code < 0 {
        put(44, info.value as u32);
        put(48, info.value as u32);
        put(52, (info.value >> 32) as u32);
    }
    bytes
}

impl File for SignalFile {
    fn has_normal_data(&self) -> bool {
        false
    }

    fn read(&self, to: &mut [u8]) -> Result<usize> {
        let set = *self.set.lock();
        let (records, _) = to.as_chunks_mut::<RECORD_BYTES>();
        if records.is_empty() {
            return Err(Errno::EINVAL);
        }
        let thread = self.current().ok_or(Errno::EAGAIN)?;
        let mut done = 0;
        for slot in records {
            let Some((signal, info)) = self.process.take_of(&thread, set) else {
                break;
            };
            *slot = record(signal, &info);
            done += RECORD_BYTES;
        }
        if done == 0 {
            return Err(Errno::EAGAIN);
        }
        Ok(done)
    }

    fn status(&self) -> Result<Status> {
        Ok(Status::anonymous())
    }

    fn seek(&self, _offset: i64, _whence: u32) -> Result {
        Ok(0)
    }

    fn ready(&self) -> u32 {
        let set = self.set.lock().0;
        let is_there = self.process.pending.bits() & set != 0
            || self
                .current()
                .is_some_and(|thread| thread.pending.bits() & set != 0);
        if is_there { POLLIN } else { 0 }
    }

    fn arrivals(&self) -> u64 {
        self.process.arrivals.count()
    }

    fn watch(&self, waiter: &Waiter) {
        self.process.arrivals.watchers.add(waiter);
    }

    fn unwatch(&self, waiter: &Waiter) {
        self.process.arrivals.watchers.remove(waiter);
    }

    fn name(&self) -> String {
        String::from("anon_inode:[signalfd]")
    }
}

#[cfg(test)]
mod tests {
    use super::super::Open;
    use super::super::epoll::{Epoll, Interest};
    use super::*;
    use crate::pending::SI_USER;
    use linux_raw_sys::general::EPOLLET;

    const TERM: u32 = 15;
    const USR1: u32 = 10;

    fn word(bytes: &[u8], at: usize) -> u32 {
        let word = bytes[at..].first_chunk();
        word.map_or(0, |word| u32::from_le_bytes(*word))
    }

    #[test]
    fn signals_of_the_set_are_read_and_gone() {
        let (process, thread) = Process::of_test();
        thread.begin();
        let set = Mask(Mask::of(TERM).0 | Mask::of(USR1).0);
        let file = SignalFile::new(&process, set);
        let mut bytes = [0; 3 * RECORD_BYTES];
        assert_eq!(file.read(&mut bytes[..100]), Err(Errno::EINVAL));
        assert_eq!(
            (file.read(&mut bytes), file.ready()),
            (Err(Errno::EAGAIN), 0)
        );
        thread
            .blocked
            .store(set.0, core::sync::atomic::Ordering::Relaxed);
        assert_eq!(process.send(None, TERM, Info::sent(SI_USER, 3)), Ok(()));
        let to_thread = Info {
            value: 5 << 32 | 9,
            ..Info::sent(-1, 4)
        };
        assert_eq!(process.send(Some(&thread), USR1, to_thread), Ok(()));
        assert_eq!(process.send(None, 12, Info::default()), Ok(()));
        assert_eq!(file.ready(), POLLIN);
        assert_eq!(file.read(&mut bytes), Ok(2 * RECORD_BYTES));
        // The thread's own first.
        let fields = [0, 8, 12, 44, 48, 52].map(|at| word(&bytes, at));
        assert_eq!(fields, [USR1, u32::MAX, 4, 9, 9, 5]);
        assert_eq!(word(&bytes, RECORD_BYTES), TERM);
        assert_eq!(word(&bytes, RECORD_BYTES + 12), 3);
        assert_eq!(file.ready(), 0, "another signal is not of the set");
        file.set(Mask::of(12));
        assert_eq!(file.ready(), POLLIN);
    }

    #[test]
    fn a_timers_signal_has_its_overruns() {
        let info = Info {
            code: SI_TIMER,
            origin: 7 << 32 | 2,
            value: 1,
            timer: Some(2),
        };
        let bytes = record(TERM, &info);
        let fields = [12, 24, 32, 44, 48].map(|at| word(&bytes, at));
        assert_eq!(fields, [0, 2, 7, 1, 1]);
    }

    #[test]
    fn an_event_queue_reports_each_signal_that_comes() {
        let (process, thread) = Process::of_test();
        thread.begin();
        let set = Mask::of(TERM);
        thread
            .blocked
            .store(set.0, core::sync::atomic::Ordering::Relaxed);
        let open = Open::new(Arc::new(SignalFile::new(&process, set)), 0);
        let queue = Epoll::default();
        let interest = Interest {
            events: POLLIN | EPOLLET,
            data: 1,
        };
        assert_eq!(queue.add(3, &open, interest), Ok(()));
        assert!(queue.take(1).is_empty());
        for _ in 0..2 {
            assert_eq!(process.send(None, TERM, Info::default()), Ok(()));
            assert_eq!(queue.take(1).len(), 1);
            assert!(queue.take(1).is_empty());
        }
    }
}
