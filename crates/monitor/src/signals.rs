//! Signals for the guest's program: they wait in the monitor until the guest reads them, a program at
//! [`ports::SIGNAL`], so that none is lost while it starts, and a Linux guest at a port of its console
//! ([`tare_abi::streams::SIGNALS`]).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fd::BorrowedFd;
use tare_abi::ports;
use tare_abi::streams::KEY;
use tare_host::signal_number::SignalNumber;
use vmm_sys_util::eventfd::EventFd;

use crate::inherit::borrow;

/// The signals that wait, and what tells that there are some. Raised on the main thread, read on vCPU
/// threads or the I/O thread.
#[derive(Debug)]
pub(crate) struct ProgramSignals {
    /// A bit for each signal, one below its number.
    waiting: AtomicU64,
    /// Those that a key of the terminal sent, in the same way.
    keys: AtomicU64,
    line: EventFd,
    is_read: AtomicBool,
}

impl ProgramSignals {
    /// Of a program: raises `line` for each signal.
    pub(crate) fn of_program(line: EventFd) -> Self {
        Self {
            waiting: AtomicU64::new(0),
            keys: AtomicU64::new(0),
            line,
            is_read: AtomicBool::new(true),
        }
    }

    /// Of a Linux guest's command, which gets none before the guest reads: `event` is for the I/O thread.
    pub(crate) fn of_command(event: EventFd) -> Self {
        Self {
            is_read: AtomicBool::new(false),
            ..Self::of_program(event)
        }
    }

    /// Whether the guest reads signals: before that the machine ends in place of its command.
    pub(crate) fn is_read(&self) -> bool {
        self.is_read.load(Ordering::Acquire)
    }

    /// The guest is to send its program this signal. Signals that wait are counted once, as in Linux.
    pub(crate) fn raise(&self, signal: SignalNumber) {
        self.add(&self.waiting, signal);
    }

    /// The same for what is in the foreground of the guest's terminal.
    pub(crate) fn raise_key(&self, signal: SignalNumber) {
        self.add(&self.keys, signal);
    }

    fn add(&self, to: &AtomicU64, signal: SignalNumber) {
        let bit = 1 << (signal.raw() - 1);
        to.fetch_or(bit, Ordering::Release);
        // KVM drains an irqfd at once and the I/O thread its event, so the counter is never full.
        let _ = self.line.write(1);
    }

    /// Readable when a signal waits.
    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        borrow(&self.line)
    }

    /// A Linux guest reads its port: the next byte for it, if there is one.
    pub(crate) fn read_port(&self) -> Option<u8> {
        self.is_read.store(true, Ordering::Release);
        // Before the look: a signal that comes after it sets the event again.
        let _ = self.line.read();
        let key = take(&self.keys).map(|number| number | KEY);
        let byte = key.or_else(|| take(&self.waiting))?;
        // More may wait.
        let _ = self.line.write(1);
        Some(byte)
    }

    /// A read of the port: the lowest signal that waits, which is taken, or 0.
    pub(crate) fn read(&self, data: &mut [u8]) {
        match data {
            [_, _, _, _] => {
                let number = take(&self.waiting).map_or(ports::NO_SIGNAL, u32::from);
                data.copy_from_slice(&number.to_le_bytes());
            }
            _ => data.fill(0xff),
        }
    }
}

/// Takes the lowest signal of a set.
fn take(set: &AtomicU64) -> Option<u8> {
    let without_lowest = |waiting: u64| waiting.checked_sub(1).map(|less| waiting & less);
    let before = set.fetch_update(Ordering::AcqRel, Ordering::Acquire, without_lowest);
    before.ok().map(|before| before.trailing_zeros() as u8 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signals() -> ProgramSignals {
        ProgramSignals::of_program(EventFd::new(libc::EFD_NONBLOCK).unwrap())
    }

    fn read(signals: &ProgramSignals) -> u32 {
        let mut data = [0xaa; 4];
        signals.read(&mut data);
        u32::from_le_bytes(data)
    }

    #[test]
    fn signals_wait_until_they_are_read_each_once() {
        let signals = signals();
        assert_eq!(read(&signals), ports::NO_SIGNAL);
        for number in [64, 1, 15, 1] {
            signals.raise(SignalNumber::from_raw(number).unwrap());
        }
        assert_eq!(signals.line.read().unwrap(), 4);
        assert_eq!(
            [(); 4].map(|()| read(&signals)),
            [1, 15, 64, ports::NO_SIGNAL]
        );
        signals.raise(SignalNumber::TERM);
        assert_eq!(read(&signals), 15);
    }

    #[test]
    fn a_read_of_another_width_takes_no_signal() {
        let signals = signals();
        signals.raise(SignalNumber::TERM);
        for width in [0, 1, 2, 8] {
            let mut data = vec![0; width];
            signals.read(&mut data);
            assert!(data.iter().all(|byte| *byte == 0xff), "{width}");
        }
        assert_eq!(read(&signals), 15);
    }

    #[test]
    fn a_port_has_a_byte_for_each_signal_and_says_that_it_is_read() {
        let signals = ProgramSignals::of_command(EventFd::new(libc::EFD_NONBLOCK).unwrap());
        assert!(!signals.is_read());
        signals.raise(SignalNumber::TERM);
        signals.raise(SignalNumber::from_raw(64).unwrap());
        signals.raise_key(SignalNumber::from_raw(2).unwrap());
        for byte in [KEY | 2, 15, 64] {
            // As long as something waits.
            assert!(has_event(&signals), "{byte}");
            assert_eq!(signals.read_port(), Some(byte));
        }
        assert_eq!(signals.read_port(), None);
        assert!(signals.is_read() && !has_event(&signals));
        signals.raise(SignalNumber::TERM);
        assert!(has_event(&signals));
        assert_eq!(signals.read_port(), Some(15));
    }

    fn has_event(signals: &ProgramSignals) -> bool {
        let poll = crate::poll::Poll::new().unwrap();
        poll.add(signals.event(), 1).unwrap();
        let mut ready = Vec::new();
        poll.wait(&mut ready, crate::poll::Wait::No).unwrap();
        ready == [1]
    }
}
