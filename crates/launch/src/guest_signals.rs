//! Signals for the command of a Linux guest in QEMU: what becomes of those that the machine's process
//! gets. They go as bytes into a socket, of which QEMU has the other end as a port of the guest
//! ([`tare_abi::streams::SIGNALS`]).

use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGUSR1, SIGUSR2};
use tare_abi::streams::KEY;
use tare_host::child::take_inherited;
use tare_host::end_requests::{EndRequests, Keys, Turn};
use tare_host::signal_number::SignalNumber;

/// Requests to end the command with its own stop signal: `tare stop`. It comes again each second, which
/// changes nothing.
pub const STOP_REQUEST: Signal = Signal::POWER;
const STOP: i32 = STOP_REQUEST.as_raw();

/// The way to a guest, as the process gets it that waits for QEMU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GuestSignals {
    /// A socket, which is inherited.
    pub(crate) socket: RawFd,
    /// What asks the command to end.
    pub(crate) stop: SignalNumber,
    /// Whose the terminal's keys are.
    pub(crate) keys: Keys,
}

/// What a signal becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The command gets it, or has it.
    Passed,
    /// The same, for a signal that requests the command's end.
    Asked,
    /// The machine ends at once.
    Ends,
}

/// Passes signals on.
#[derive(Debug)]
pub(crate) struct Passing {
    socket: OwnedFd,
    stop: SignalNumber,
    requests: EndRequests,
    is_heard: bool,
}

impl GuestSignals {
    /// To be called once, by the process that passes the signals on, before it starts another one.
    pub(crate) fn open(&self) -> io::Result<Passing> {
        Ok(Passing {
            socket: take_inherited(self.socket)?,
            stop: self.stop,
            requests: EndRequests::new(self.keys),
            is_heard: false,
        })
    }
}

impl Passing {
    /// A signal came, at `now`.
    pub(crate) fn take(&mut self, signal: i32, now: Instant) -> Fate {
        // Without a command there is nothing that an end could lose.
        if !self.is_heard() {
            return match signal {
                SIGUSR1 | SIGUSR2 => Fate::Passed,
                _ => Fate::Ends,
            };
        }
        if signal == STOP {
            return if self.requests.ask() {
                self.send(self.stop.into(), Fate::Asked)
            } else {
                Fate::Asked
            };
        }
        match self.requests.next(signal, now) {
            Turn::Foregrounds => self.send(signal as u8 | KEY, Fate::Passed),
            Turn::Passed => self.send(signal as u8, Fate::Passed),
            Turn::Programs => self.send(signal as u8, Fate::Asked),
            Turn::Same => Fate::Asked,
            Turn::Ends => Fate::Ends,
        }
    }

    /// Whether the guest reads: it has written something then.
    fn is_heard(&mut self) -> bool {
        if !self.is_heard {
            let got = recv(&self.socket, &mut [0; 1][..], RecvFlags::DONTWAIT);
            self.is_heard = got.is_ok_and(|(_, count)| count > 0);
        }
        self.is_heard
    }

    /// A guest that has stopped reading does not delay the next signal, which may end it.
    fn send(&self, byte: u8, fate: Fate) -> Fate {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match send(&self.socket, &[byte], flags) {
            Ok(_) | Err(Errno::AGAIN) => fate,
            Err(_) => Fate::Ends,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsRawFd as _;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

    use super::*;

    fn passing(keys: Keys) -> (Passing, UnixStream) {
        let (ours, guests) = UnixStream::pair().unwrap();
        let signals = GuestSignals {
            socket: ours.as_raw_fd(),
            stop: SignalNumber::from_raw(28).unwrap(),
            keys,
        };
        let passing = signals.open().unwrap();
        guests.set_nonblocking(true).unwrap();
        (passing, guests)
    }

    fn got(mut guests: &UnixStream) -> Vec<u8> {
        let mut bytes = [0; 16];
        let count = guests.read(&mut bytes).unwrap_or(0);
        bytes[..count].to_vec()
    }

    #[test]
    fn before_the_guest_reads_the_machine_ends_and_nothing_waits_for_it() {
        let (mut passing, mut guests) = passing(Keys::Signals);
        let now = Instant::now();
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT, STOP] {
            assert_eq!(passing.take(signal, now), Fate::Ends, "{signal}");
        }
        assert_eq!(passing.take(SIGUSR1, now), Fate::Passed);
        guests.write_all(&[1]).unwrap();
        assert_eq!(passing.take(SIGTERM, now), Fate::Asked);
        assert_eq!(got(&guests), [15]);
    }

    #[test]
    fn the_command_gets_signals_and_the_second_request_ends_the_machine() {
        let (mut passing, mut guests) = passing(Keys::Signals);
        guests.write_all(&[1]).unwrap();
        let begin = Instant::now();
        let later = begin + Duration::from_secs(2);
        for (signal, at, fate, bytes) in [
            (SIGHUP, begin, Fate::Passed, &[1][..]),
            (SIGQUIT, begin, Fate::Passed, &[3]),
            (SIGINT, begin, Fate::Asked, &[2]),
            (SIGINT, begin, Fate::Asked, &[]),
            (SIGUSR2, later, Fate::Passed, &[12]),
            (SIGINT, later, Fate::Ends, &[]),
        ] {
            assert_eq!(passing.take(signal, at), fate, "{signal}");
            assert_eq!(got(&guests), bytes, "{signal}");
        }
    }

    #[test]
    fn a_stop_is_the_commands_own_signal_once() {
        let (mut passing, mut guests) = passing(Keys::Signals);
        guests.write_all(&[1]).unwrap();
        let begin = Instant::now();
        for (second, bytes) in [(0, &[28][..]), (1, &[]), (2, &[])] {
            let at = begin + Duration::from_secs(second);
            assert_eq!(passing.take(STOP, at), Fate::Asked);
            assert_eq!(got(&guests), bytes);
        }
    }

    #[test]
    fn a_console_gets_each_ctrl_c_and_ctrl_backslash_ends_the_machine() {
        let (mut passing, mut guests) = passing(Keys::Consoles);
        guests.write_all(&[1]).unwrap();
        let begin = Instant::now();
        for second in 0..3 {
            let at = begin + Duration::from_secs(second);
            assert_eq!(passing.take(SIGINT, at), Fate::Passed);
            assert_eq!(got(&guests), [KEY | 2]);
        }
        assert_eq!(passing.take(SIGQUIT, begin), Fate::Ends);
    }

    #[test]
    fn a_guest_that_does_not_read_delays_nothing_and_one_that_has_gone_ends() {
        let (mut passing, mut guests) = passing(Keys::Signals);
        guests.write_all(&[1]).unwrap();
        let now = Instant::now();
        // More than the socket holds.
        for _ in 0..100_000 {
            assert_eq!(passing.take(SIGHUP, now), Fate::Passed);
        }
        drop(guests);
        assert_eq!(passing.take(SIGHUP, now), Fate::Ends);
    }
}
