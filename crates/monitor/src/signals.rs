//! Signals for the guest's program: they wait in the monitor until the guest reads them at
//! [`ports::SIGNAL`], so that none is lost while it starts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tare_abi::ports;
use tare_host::signal_number::SignalNumber;
use vmm_sys_util::eventfd::EventFd;

/// A signal that comes again within this is the same request: a job's processes and the process
/// outside each pass it on (`timeout`, service managers).
const SAME: Duration = Duration::from_secs(1);

/// The port and its interrupt line. Raised on the main thread, read on vCPU threads.
#[derive(Debug)]
pub(crate) struct ProgramSignals {
    /// A bit for each signal, one below its number.
    waiting: AtomicU64,
    line: EventFd,
}

impl ProgramSignals {
    /// Raises `line` for each signal.
    pub(crate) fn new(line: EventFd) -> Self {
        Self {
            waiting: AtomicU64::new(0),
            line,
        }
    }

    /// The guest is to send its program this signal. Signals that wait are counted once, as in Linux.
    pub(crate) fn raise(&self, signal: SignalNumber) {
        let bit = 1 << (signal.raw() - 1);
        self.waiting.fetch_or(bit, Ordering::Release);
        // KVM drains an irqfd at once, so its counter is never full.
        let _ = self.line.write(1);
    }

    /// A read of the port: the lowest signal that waits, which is taken, or 0.
    pub(crate) fn read(&self, data: &mut [u8]) {
        match data {
            [_, _, _, _] => data.copy_from_slice(&self.take().to_le_bytes()),
            _ => data.fill(0xff),
        }
    }

    fn take(&self) -> u32 {
        let without_lowest = |waiting: u64| waiting.checked_sub(1).map(|less| waiting & less);
        let order = Ordering::AcqRel;
        match self
            .waiting
            .fetch_update(order, Ordering::Acquire, without_lowest)
        {
            Ok(before) => before.trailing_zeros() + 1,
            Err(_) => ports::NO_SIGNAL,
        }
    }
}

/// What a request to end becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The program gets the signal.
    Programs,
    /// It has it already.
    Same,
    /// The machine ends at once.
    Ends,
}

/// The requests to end that came as signals: the first is the program's, one that comes later ends the
/// machine.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    first: Option<Instant>,
    /// A bit for each signal since, at its number.
    passed: u64,
    /// Whether the program was asked to end through the control socket.
    was_asked: bool,
}

impl Requests {
    /// One came through the control socket. Whether it is the first: who asks again fears that
    /// nothing heard it.
    pub(crate) fn ask(&mut self) -> bool {
        !std::mem::replace(&mut self.was_asked, true)
    }

    /// A signal came, at `now`.
    pub(crate) fn next(&mut self, signal: i32, now: Instant) -> Turn {
        let first = *self.first.get_or_insert(now);
        if now.duration_since(first) >= SAME {
            return Turn::Ends;
        }
        let bit = 1 << (signal & 63);
        let is_new = self.passed & bit == 0;
        self.passed |= bit;
        if is_new { Turn::Programs } else { Turn::Same }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signals() -> ProgramSignals {
        ProgramSignals::new(EventFd::new(libc::EFD_NONBLOCK).unwrap())
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
    fn a_request_that_comes_again_later_ends_the_machine() {
        let begin = Instant::now();
        let at = |ms: u64| begin + Duration::from_millis(ms);
        let mut requests = Requests::default();
        assert_eq!(requests.next(libc::SIGINT, at(0)), Turn::Programs);
        assert_eq!(requests.next(libc::SIGINT, at(2)), Turn::Same);
        // Whoever sends another signal soon after means it.
        assert_eq!(requests.next(libc::SIGTERM, at(500)), Turn::Programs);
        assert_eq!(requests.next(libc::SIGTERM, at(999)), Turn::Same);
        assert_eq!(requests.next(libc::SIGINT, at(1000)), Turn::Ends);
        assert_eq!(requests.next(libc::SIGTERM, at(5000)), Turn::Ends);
    }
}
