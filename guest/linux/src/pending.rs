//! Signals that wait to be taken, with what `siginfo` says of each (`sigqueue(3)`,
//! `signal(7)`: a real-time signal waits as often as it was sent, another one once).

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use linux_raw_sys::general::SIGRTMIN;
use tare_libos::sync::SpinLock;

use crate::errno::{Errno, Result};
use crate::signals::Mask;

/// Most signals that wait for one thread, or for any (`RLIMIT_SIGPENDING`).
pub(crate) const MOST_WAITING: usize = 1024;

/// `si_code` of `kill(2)`, `tgkill(2)` and timers (kernel
/// `include/uapi/asm-generic/siginfo.h`).
pub(crate) const SI_USER: i32 = 0;
pub(crate) const SI_TKILL: i32 = -6;
pub(crate) const SI_TIMER: i32 = -2;
pub(crate) const SI_KERNEL: i32 = 0x80;

/// What `siginfo` says of a signal besides its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Info {
    /// `si_code`.
    pub(crate) code: i32,
    /// The 8 bytes at offset 16: sender and user, timer and overruns, or the address of a fault.
    pub(crate) origin: u64,
    /// The 8 bytes at offset 24: `si_value`.
    pub(crate) value: u64,
    /// The timer whose signal it is, whatever a program writes as code.
    pub(crate) timer: Option<u32>,
}

impl Info {
    /// Of a signal that a process sent.
    pub(crate) const fn sent(code: i32, process: u32) -> Self {
        Self {
            code,
            origin: process as u64,
            value: 0,
            timer: None,
        }
    }

    /// `siginfo` from its start to behind `si_value`.
    pub(crate) fn bytes(&self, signal: u32) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[..4].copy_from_slice(&signal.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.code.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.origin.to_le_bytes());
        bytes[24..].copy_from_slice(&self.value.to_le_bytes());
        bytes
    }
}

/// Signals that wait for a thread, or for any.
#[derive(Default)]
pub(crate) struct Pending {
    /// Which ones do, so that who looks need not take the lock.
    bits: AtomicU64,
    queue: SpinLock<Vec<(u32, Info)>>,
}

impl Pending {
    pub(crate) const fn new() -> Self {
        Self {
            bits: AtomicU64::new(0),
            queue: SpinLock::new(Vec::new()),
        }
    }

    pub(crate) fn bits(&self) -> u64 {
        self.bits.load(Ordering::Acquire)
    }

    /// Adds a signal; EAGAIN if too many wait.
    pub(crate) fn add(&self, signal: u32, info: Info) -> Result<()> {
        let bit = Mask::of(signal).0;
        let mut queue = self.queue.lock();
        let is_there = match info.timer {
            // One signal at most, and the number of timers is limited.
            Some(_) => queue.iter().any(|waiting| waiting.1.timer == info.timer),
            None if signal < SIGRTMIN => self.bits() & bit != 0,
            None => false,
        };
        if is_there {
            return Ok(());
        }
        if info.timer.is_none() && queue.len() >= MOST_WAITING {
            return Err(Errno::EAGAIN);
        }
        queue.push((signal, info));
        self.bits.fetch_or(bit, Ordering::AcqRel);
        Ok(())
    }

    /// Adds a signal that waited elsewhere, however many wait.
    pub(crate) fn adopt(&self, signal: u32, info: Info) {
        let mut queue = self.queue.lock();
        queue.push((signal, info));
        self.bits.fetch_or(Mask::of(signal).0, Ordering::AcqRel);
    }

    /// Takes the signal that was sent first of those with this number.
    pub(crate) fn take(&self, signal: u32) -> Option<Info> {
        let mut queue = self.queue.lock();
        let at = queue.iter().position(|waiting| waiting.0 == signal)?;
        let (_, info) = queue.remove(at);
        self.set_bits(&queue);
        Some(info)
    }

    /// Removes a timer's signal.
    pub(crate) fn remove_timer(&self, timer: u32) {
        let mut queue = self.queue.lock();
        queue.retain(|(_, info)| info.timer != Some(timer));
        self.set_bits(&queue);
    }

    fn set_bits(&self, queue: &[(u32, Info)]) {
        let bits = queue
            .iter()
            .fold(0, |bits, waiting| bits | Mask::of(waiting.0).0);
        self.bits.store(bits, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERM: u32 = 15;
    const REAL_TIME: u32 = SIGRTMIN + 2;

    fn with_value(value: u64) -> Info {
        Info {
            value,
            ..Info::sent(-1, 1)
        }
    }

    #[test]
    fn a_signal_waits_once_and_a_real_time_signal_as_often_as_sent() {
        let pending = Pending::new();
        for value in [1, 2] {
            pending.add(TERM, with_value(value)).unwrap();
            pending.add(REAL_TIME, with_value(value)).unwrap();
        }
        assert_eq!(pending.bits(), Mask::of(TERM).0 | Mask::of(REAL_TIME).0);
        assert_eq!(pending.take(TERM), Some(with_value(1)));
        assert_eq!(pending.take(TERM), None);
        assert_eq!(pending.take(REAL_TIME), Some(with_value(1)));
        assert_eq!(pending.bits(), Mask::of(REAL_TIME).0);
        assert_eq!(pending.take(REAL_TIME), Some(with_value(2)));
        assert_eq!(pending.bits(), 0);
    }

    #[test]
    fn only_so_many_wait() {
        let pending = Pending::new();
        for _ in 0..MOST_WAITING {
            pending.add(REAL_TIME, Info::default()).unwrap();
        }
        assert_eq!(pending.add(REAL_TIME, Info::default()), Err(Errno::EAGAIN));
        while pending.take(REAL_TIME).is_some() {}
        assert_eq!(pending.bits(), 0);
        assert_eq!(pending.add(REAL_TIME, Info::default()), Ok(()));
    }

    #[test]
    fn a_timers_signal_waits_beside_one_that_was_sent() {
        let info = Info {
            code: SI_TIMER,
            origin: 3,
            value: 7,
            timer: Some(3),
        };
        // Whoever writes a timer's code is not one.
        let forged = Info {
            timer: None,
            ..info
        };
        let pending = Pending::new();
        for _ in 0..MOST_WAITING {
            pending.add(REAL_TIME, Info::default()).unwrap();
        }
        assert_eq!(pending.add(REAL_TIME, forged), Err(Errno::EAGAIN));
        while pending.take(REAL_TIME).is_some() {}
        pending.add(TERM, Info::default()).unwrap();
        // Set again, it rings again: still one signal.
        pending.add(TERM, info).unwrap();
        pending.add(TERM, info).unwrap();
        assert_eq!(pending.take(TERM), Some(Info::default()));
        pending.remove_timer(4);
        assert_eq!(pending.bits(), Mask::of(TERM).0, "another timer's");
        pending.remove_timer(3);
        assert_eq!((pending.bits(), pending.take(TERM)), (0, None));
        let bytes = info.bytes(TERM);
        assert_eq!((bytes[0], bytes[16], bytes[24]), (15, 3, 7));
    }
}
